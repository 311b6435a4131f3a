"""A waste meter that looks at memory once a step, and at each request when it ends."""

from __future__ import annotations

from minipaged.lab.waste import WasteMeter
from minipaged.memory.events import Event, Finished, Prefilled, Written


class StepMeter(WasteMeter):
    """Samples behind the last write of each step, while everybody still has what is theirs.

    Attributes:
        savings: The part (0 to 1) of each request's blocks that sharing saved, when it ended.
    """

    def __init__(self, num_blocks: int, block_size: int, width: int = 1) -> None:
        super().__init__(num_blocks, block_size)
        self.savings: list[float] = []
        self._width = width
        self._ended: list[tuple[int, int]] = []
        self._written: set[int] = set()

    def observe(self, event: Event) -> None:
        """Take the next event: in order, none left out.

        A step writes to a sequence once: who is written again, as a long prompt is in chunks, is in
        the next step.
        """
        seqs = _written_by(event)
        if self._written and (not seqs or not self._written.isdisjoint(seqs)):
            self.sample()
            self._written.clear()
        self._written.update(seqs)
        if isinstance(event, Finished) and event.why == "length":
            self._end(event.seq)
        super().observe(event)

    def _end(self, seq: int) -> None:
        """Count the blocks of one of a request's sequences; all of them end in a row.

        A block that others hold as well is one that was saved: the last to hold it pays for it.
        """
        table = self._tables.get(seq, [])
        self._ended.append((sum(self._ref_count[block] > 1 for block in table), len(table)))
        if len(self._ended) == self._width:
            saved, blocks = map(sum, zip(*self._ended, strict=True))
            self.savings.append(saved / blocks if blocks else 0.0)
            self._ended.clear()


def _written_by(event: Event) -> tuple[int, ...]:
    if isinstance(event, Prefilled):
        return (event.seq,)
    return event.seqs if isinstance(event, Written) else ()
