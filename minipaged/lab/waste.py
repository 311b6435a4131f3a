"""Waste by kind over a run, from its events: of a simulation that goes on, or of a trace.

`waste_kinds` defines the kinds. Which empty slots are internal, never to be used, is known only
when they are given back. `WasteMeter` reads the events once and then corrects what it noted before:
such a slot was internal all the time that it was held. So it needs no second pass, and beside what
lives now it keeps six integers a sample.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from minipaged.lab.waste_kinds import Occupancy, Waste, WasteSeries, occupancy
from minipaged.memory import events as ev
from minipaged.memory.trace import TraceHeader, TraceReader, TraceStep

__all__ = [
    "Occupancy",
    "Waste",
    "WasteMeter",
    "WasteSeries",
    "measure",
    "measure_file",
    "occupancy",
]


class WasteMeter:
    """Follows events and notes the occupancy whenever it is told to.

    >>> meter = WasteMeter(num_blocks=4, block_size=4)
    >>> meter.observe(ev.BlockAllocated(0, 0, 2, "prompt"))
    >>> meter.observe(ev.Prefilled(0, 0, (7, 8), ("a", "b")))
    >>> meter.sample()
    Occupancy(pool=16, tokens=2, empty=2, rounding=0, free=12, shared=0)
    >>> meter.observe(ev.Written((0,), (9,), ("c",)))
    >>> meter.observe(ev.Released(0, (2,), "finished"))
    >>> meter.series().at(0)  # one slot was used later, one never
    Waste(pool=16, tokens=2, reserved=1, internal=1, rounding=0, free=12, shared=0)
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.pool = num_blocks * block_size
        self.num_samples = 0
        self._columns = tuple(array("q") for _ in Occupancy._fields[1:])
        self._changes = array("q", [0])  # of internal slots, from one sample to the next
        self._ref_count: dict[int, int] = {}
        self._since: dict[int, int] = {}
        self._tables: dict[int, list[int]] = {}
        self._num_tokens: dict[int, int] = {}
        self._slabs: dict[int, _Slab] = {}
        self._tokens = self._held = self._rounding = self._extra_refs = 0

    def observe(self, event: ev.Event) -> None:
        """Take the next event: in order, none left out."""
        handler = _HANDLERS.get(event.kind)
        if handler:
            handler(self, event)

    def now(self) -> Occupancy:
        """Give the slots by kind, as far as they are known."""
        empty = self._held - self._tokens - self._rounding
        shared = self._extra_refs * self.block_size
        free = self.pool - self._held
        return Occupancy(self.pool, self._tokens, empty, self._rounding, free, shared)

    def sample(self) -> Occupancy:
        """Note the state of this moment, and give it."""
        now = self.now()
        for column, slots in zip(self._columns, now[1:], strict=True):
            column.append(slots)
        self._changes.append(0)
        self.num_samples += 1
        return now

    def series(self) -> WasteSeries:
        """Give the waste at every sample so far; what is held now counts as if it ended now."""
        changes = self._changes[:]
        for since, unused in self._unused_now():
            changes[since] += unused
            changes[self.num_samples] -= unused
        columns = tuple(column[:] for column in self._columns)
        return WasteSeries(self.pool, columns, array("q", list(accumulate(changes))[:-1]))

    # --- events ---------------------------------------------------------------------------------

    def _fork(self, event: ev.Forked) -> None:
        self._num_tokens[event.child] = self._num_tokens.get(event.parent, 0)

    def _hit(self, event: ev.PrefixHit) -> None:
        for block in event.blocks:
            self._hold(event.seq, block, self.block_size)
        self._count(event.seq, len(event.blocks) * self.block_size)

    def _alloc(self, event: ev.BlockAllocated) -> None:
        self._hold(event.seq, event.block, 0)

    def _share(self, event: ev.BlockShared) -> None:
        self._hold(event.seq, event.block, 0)

    def _copy(self, event: ev.BlockCopied) -> None:
        table, filled = self._tables[event.seq], self._filled(event.seq, event.index)
        self._drop(event.source, filled)
        self._take(event.target, filled)
        table[event.index] = event.target

    def _prefill(self, event: ev.Prefilled) -> None:
        self._count(event.seq, len(event.tokens))
        self._tokens += len(event.tokens)

    def _write(self, event: ev.Written) -> None:
        num_tokens = self._num_tokens
        for seq in event.seqs:
            num_tokens[seq] = num_tokens.get(seq, 0) + 1
        self._tokens += len(event.seqs)

    def _swap_out(self, event: ev.SwappedOut) -> None:
        for index, (source, _) in enumerate(event.moves):
            self._drop(source, self._filled(event.seq, index))
        self._tables.pop(event.seq, None)

    def _swap_in(self, event: ev.SwappedIn) -> None:
        for index, (_, target) in enumerate(event.moves):
            self._hold(event.seq, target, self._filled(event.seq, index))

    def _reserve(self, event: ev.SlabReserved) -> None:
        slots = event.num_blocks * self.block_size
        self._slabs[event.seq] = _Slab(slots, event.num_tokens, self.num_samples)
        self._held += slots
        self._rounding += slots - event.num_tokens

    def _release(self, event: ev.Released) -> None:
        if event.seq in self._slabs:
            self._release_slab(event.seq)
        table = self._tables.get(event.seq, [])
        if table:
            for block in event.blocks:
                table.pop()
                self._drop(block, self._filled(event.seq, len(table)))
        if not table:  # of blocks in the swap pool only the count of tokens is kept
            self._tables.pop(event.seq, None)
            self._num_tokens.pop(event.seq, None)

    # --- slots ----------------------------------------------------------------------------------

    def _count(self, seq: int, num_tokens: int) -> None:
        self._num_tokens[seq] = self._num_tokens.get(seq, 0) + num_tokens

    def _filled(self, seq: int, index: int) -> int:
        """Give how many tokens are in entry `index` of a sequence's table."""
        rest = self._num_tokens.get(seq, 0) - index * self.block_size
        return min(max(rest, 0), self.block_size)

    def _hold(self, seq: int, block: int, filled: int) -> None:
        """Put a block behind a table; the first who holds it takes it with its tokens."""
        self._tables.setdefault(seq, []).append(block)
        if block in self._ref_count:
            self._ref_count[block] += 1
            self._extra_refs += 1
        else:
            self._take(block, filled)

    def _take(self, block: int, filled: int) -> None:
        self._ref_count[block] = 1
        self._since[block] = self.num_samples
        self._held += self.block_size
        self._tokens += filled

    def _drop(self, block: int, filled: int) -> None:
        """Take one reference; with the last one the block's empty slots turn out to be internal."""
        self._ref_count[block] -= 1
        if self._ref_count[block]:
            self._extra_refs -= 1
            return
        del self._ref_count[block]
        self._held -= self.block_size
        self._tokens -= filled
        self._was_unused(self._since.pop(block), self.block_size - filled)

    def _release_slab(self, seq: int) -> None:
        slab, num_tokens = self._slabs.pop(seq), self._num_tokens.get(seq, 0)
        self._held -= slab.slots
        self._rounding -= slab.slots - slab.asked
        self._tokens -= num_tokens
        self._was_unused(slab.since, slab.asked - num_tokens)

    def _was_unused(self, since: int, slots: int) -> None:
        self._changes[since] += slots
        self._changes[self.num_samples] -= slots

    def _unused_now(self) -> Iterable[tuple[int, int]]:
        """Give (sample of its begin, empty slots) of each block and slab that is held now."""
        filled = {
            block: self._filled(seq, index)
            for seq, table in self._tables.items()
            for index, block in enumerate(table)
        }
        for block, tokens in filled.items():
            yield self._since[block], self.block_size - tokens
        for seq, slab in self._slabs.items():
            yield slab.since, slab.asked - self._num_tokens.get(seq, 0)


class _Slab(NamedTuple):
    """A slab's slots, those that were asked for, and the first sample that sees it."""

    slots: int
    asked: int
    since: int


_HANDLERS: dict[str, Callable[[WasteMeter, Any], None]] = {
    kind: getattr(WasteMeter, f"_{kind}")
    for kind in (
        *("fork", "hit", "alloc", "share", "copy", "prefill", "write"),
        *("swap_out", "swap_in", "release", "reserve"),
    )
}


def measure(header: TraceHeader, steps: Iterable[TraceStep], every: int = 1) -> WasteSeries:
    """Give the waste during every step of a run, or during each `every`-th one.

    A step is looked at behind its last write, while everybody in it still holds what they have.
    The steps are read once, so they may come from a file of any length.
    """
    meter = WasteMeter(header.num_blocks, header.block_size)
    for number, step in enumerate(steps, 1):
        stop = _behind_last_write(step.events)
        for event in step.events[:stop]:
            meter.observe(event)
        if number % every == 0:
            meter.sample()
        for event in step.events[stop:]:
            meter.observe(event)
    return meter.series()


def _behind_last_write(events: Sequence[ev.Event]) -> int:
    """Give how many events there are up to the last write; all, where there is none."""
    writes = (n for n, event in enumerate(events, 1) if event.kind in ("prefill", "write"))
    return max(writes, default=len(events))


def measure_file(path: str | Path, every: int = 1) -> WasteSeries:
    """Give the waste of a trace file.

    Raises:
        TraceError: The file can't be read.
    """
    with TraceReader(path) as reader:
        return measure(reader.header, reader, every)
