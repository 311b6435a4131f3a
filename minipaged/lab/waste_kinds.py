"""Where the memory of the KV cache goes: one definition of each kind of waste, for every manager.

All in slots, the room of one token. Every slot of the pool is one of these:

    tokens     holds the KV of a token; one that several sequences share counts once
    reserved   empty, and will hold a token before whoever has the slot gives it back
    internal   empty, and never will: it is held for nothing
    rounding   in a slab, but beyond what its request asked for: the buddy allocator gives powers of
               two, and nobody can use the rest
    free       held by nobody; a cached block that could be evicted is free

    tokens + reserved + internal + external = pool        with external = rounding + free

What the paper's Fig. 2 calls "external and other" is `external`. Its `free` part is waste only
while somebody waits for memory and can't have it, as in the paper's saturated runs; where nobody
waits, it is room to spare. `shared` comes on top of the pool: the slots that would be held, too, if
every sequence had blocks of its own.

`reserved` and `internal` look alike as long as a run goes on: a live view says "reserved or
internal" (`Occupancy.empty`). The split is known when a slot is given back.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from minipaged.memory.snapshot import MemorySnapshot


class Waste(NamedTuple):
    """Slots by kind at one moment, or on average."""

    pool: float
    tokens: float
    reserved: float
    internal: float
    rounding: float
    free: float
    shared: float

    @property
    def external(self) -> float:
        """Slots of no use to anybody who waits."""
        return self.rounding + self.free

    @property
    def held(self) -> float:
        """Slots that sequences hold."""
        return self.pool - self.free

    def share(self, kind: str) -> float:
        """Give the part of the pool (0 to 1) that is of this kind.

        >>> Waste(200, 150, 20, 10, 0, 20, 50).share("tokens")
        0.75
        """
        return float(getattr(self, kind)) / self.pool

    @property
    def unused_share(self) -> float:
        """The part (0 to 1) of what sequences hold that never will have a token."""
        return (self.internal + self.rounding) / self.held if self.held else 0.0


class Occupancy(NamedTuple):
    """Slots by kind as they are known while a run goes on: `empty` is reserved or internal."""

    pool: int
    tokens: int
    empty: int
    rounding: int
    free: int
    shared: int

    def split(self, internal: int) -> Waste:
        """Give the kinds, once it is known how many of the empty slots stay empty."""
        pool, tokens, empty, rounding, free, shared = self
        return Waste(pool, tokens, empty - internal, internal, rounding, free, shared)


def occupancy(snapshot: MemorySnapshot, reserved: Mapping[int, int] | None = None) -> Occupancy:
    """Give what can be said of a single state of memory.

    Args:
        snapshot: Of any manager, or of a replayed trace.
        reserved: Tokens that each sequence asked for, where slabs are longer than that.
    """
    size, held = snapshot.block_size, snapshot.num_used * snapshot.block_size
    asked = (reserved or {}).items()
    rounding = sum(len(snapshot.tables[seq]) * size - tokens for seq, tokens in asked)
    empty = snapshot.num_empty_slots
    pool = snapshot.num_blocks * size
    shared = snapshot.num_blocks_saved * size
    return Occupancy(pool, held - empty, empty - rounding, rounding, pool - held, shared)


@dataclass(frozen=True)
class WasteSeries:
    """Waste at every sampled moment, as columns of slots."""

    pool: int
    columns: tuple[array[int], ...]
    internal: array[int]

    def __len__(self) -> int:
        return len(self.internal)

    def at(self, sample: int) -> Waste:
        """Give the waste at a sample."""
        now = Occupancy(self.pool, *(column[sample] for column in self.columns))
        return now.split(self.internal[sample])

    def average(self, start: int = 0, stop: int | None = None) -> Waste:
        """Give the mean of the samples from `start` to before `stop`.

        Raises:
            ValueError: There is none.
        """
        internal = self.internal[start:stop]
        if not internal:
            raise ValueError(f"no sample from {start} to {stop} in {len(self)}")
        sums = Occupancy(self.pool * len(internal), *(sum(c[start:stop]) for c in self.columns))
        return Waste(*(total / len(internal) for total in sums.split(sum(internal))))
