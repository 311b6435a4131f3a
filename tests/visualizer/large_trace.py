"""A long run on a large pool, as plain events: nothing of the engine is needed to make it."""

from __future__ import annotations

from collections.abc import Iterator

from minipaged.memory.events import (
    BlockAllocated,
    Event,
    Finished,
    Prefilled,
    Released,
    Requested,
    Sampled,
    Written,
)
from minipaged.memory.trace import TraceHeader, TraceStep

BLOCK_SIZE = 16
PROMPT, OUTPUT = 100, 900
WORDS = (" the", " moon", " is", " a", " lantern", ".")


class Run:
    """`num_running` sequences of 1000 tokens each; whoever ends makes room for the next one."""

    def __init__(self, num_blocks: int, num_running: int) -> None:
        self.header = TraceHeader(BLOCK_SIZE, num_blocks, title="a long run")
        self._free = list(range(num_blocks))
        self._tables: dict[int, list[int]] = {}
        self._written: dict[int, int] = {}
        self._num_running = num_running
        self._next_seq = 0

    def steps(self, count: int) -> Iterator[TraceStep]:
        """Give the steps; a new sequence starts in each until enough of them run."""
        for number in range(count):
            decoding = list(self._tables)
            events = [*self._finish(), *self._start(), *self._decode(decoding)]
            yield TraceStep(number, 0, len(decoding), "", tuple(events))

    def _start(self) -> Iterator[Event]:
        if len(self._tables) == self._num_running:
            return
        seq, self._next_seq = self._next_seq, self._next_seq + 1
        self._tables[seq], self._written[seq] = [], 0
        yield Requested(seq, "", PROMPT)
        while len(self._tables[seq]) * BLOCK_SIZE < PROMPT:
            yield self._allocate(seq, "prompt")
        self._written[seq] = PROMPT
        yield Prefilled(seq, 0, tuple(range(PROMPT)), tuple(_word(i) for i in range(PROMPT)))

    def _decode(self, seqs: list[int]) -> Iterator[Event]:
        seqs = [seq for seq in seqs if seq in self._tables]
        for seq in seqs:
            if self._written[seq] % BLOCK_SIZE == 0:
                yield self._allocate(seq, "append")
            self._written[seq] += 1
        tokens = tuple(self._written[seq] for seq in seqs)
        texts = tuple(map(_word, tokens))
        if seqs:
            yield Written(tuple(seqs), tokens, texts)
        running = tuple(self._tables)
        tokens = tuple(self._written[seq] for seq in running)
        yield Sampled(running, tokens, tuple(map(_word, tokens)), (-700,) * len(running))

    def _finish(self) -> Iterator[Event]:
        for seq, written in list(self._written.items()):
            if written == PROMPT + OUTPUT:
                blocks = tuple(reversed(self._tables.pop(seq)))
                del self._written[seq]
                self._free[:0] = blocks
                yield Finished(seq, "length")
                yield Released(seq, blocks, "finished")

    def _allocate(self, seq: int, why: str) -> BlockAllocated:
        block = self._free.pop()
        self._tables[seq].append(block)
        return BlockAllocated(seq, len(self._tables[seq]) - 1, block, why)


def _word(number: int) -> str:
    return WORDS[number % len(WORDS)]
