"""Wrong solutions of chapter 3, and what the counterexample must say about each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

Allocate = Callable[[int], list[int]]

# --- 3.1: from positions to slots -----------------------------------------------------------------


def logical_for_physical(block_ids: Any, start: int, stop: int, block_size: int) -> Any:
    return list(range(start, stop))


def forgets_block_size(block_ids: Any, start: int, stop: int, block_size: int) -> Any:
    return [block_ids[p // block_size] + p % block_size for p in range(start, stop)]


def counts_from_start(block_ids: Any, start: int, stop: int, block_size: int) -> Any:
    """Takes the first block for the block of `start`."""
    return [
        block_ids[(p - start) // block_size] * block_size + p % block_size
        for p in range(start, stop)
    ]


def includes_stop(block_ids: Any, start: int, stop: int, block_size: int) -> Any:
    """Goes one too far, and wraps around to the table's first block."""
    return [
        block_ids[p // block_size % len(block_ids)] * block_size + p % block_size
        for p in range(start, stop + 1)
    ]


def opens_blocks_late(block_ids: Any, start: int, stop: int, block_size: int) -> Any:
    """Off by one at the boundary: the first token of a block is put behind the last one's end."""
    slots = []
    for p in range(start, stop):
        index = max(0, p - 1) // block_size
        slots.append(block_ids[index] * block_size + p - index * block_size)
    return slots


def assumes_neighbours(block_ids: Any, start: int, stop: int, block_size: int) -> Any:
    return [block_ids[0] * block_size + p for p in range(start, stop)]


def uses_up_the_table(block_ids: Any, start: int, stop: int, block_size: int) -> Any:
    slots = [block_ids[p // block_size] * block_size + p % block_size for p in range(start, stop)]
    block_ids.pop()
    return slots


# --- 3.2: when is a block needed? -----------------------------------------------------------------


def one_step_early(num_tokens: int, num_new_tokens: int, num_blocks: int, block_size: int) -> int:
    """Takes the block when the one before is full, not when a token needs it."""
    return max(0, (num_tokens + num_new_tokens) // block_size + 1 - num_blocks)


def rounds_down(num_tokens: int, num_new_tokens: int, num_blocks: int, block_size: int) -> int:
    return max(0, (num_tokens + num_new_tokens) // block_size - num_blocks)


def forgets_the_reserve(
    num_tokens: int, num_new_tokens: int, num_blocks: int, block_size: int
) -> int:
    before = -(-num_tokens // block_size)
    return -(-(num_tokens + num_new_tokens) // block_size) - before


def gives_blocks_back(
    num_tokens: int, num_new_tokens: int, num_blocks: int, block_size: int
) -> int:
    return -(-(num_tokens + num_new_tokens) // block_size) - num_blocks


def forgets_the_last_blocks_room(
    num_tokens: int, num_new_tokens: int, num_blocks: int, block_size: int
) -> int:
    return -(-num_new_tokens // block_size)


def one_block_at_most(
    num_tokens: int, num_new_tokens: int, num_blocks: int, block_size: int
) -> int:
    return int(num_tokens + num_new_tokens > num_blocks * block_size)


# --- 3.3: build the block table -------------------------------------------------------------------


class Right:
    """What the wrong ones below change a little."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.block_ids: list[int] = []
        self.num_tokens = 0

    def missing(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size) - len(self.block_ids)

    def slots(self, start: int, stop: int) -> list[int]:
        size = self.block_size
        return [self.block_ids[p // size] * size + p % size for p in range(start, stop)]

    def append(self, num_new_tokens: int, allocate: Allocate) -> Any:
        start, stop = self.num_tokens, self.num_tokens + num_new_tokens
        self.block_ids += allocate(self.missing(stop))
        self.num_tokens = stop
        return self.slots(start, stop)


class CountsBeforeItAsks(Right):
    """When allocate raises, the tokens are counted already."""

    def append(self, num_new_tokens: int, allocate: Allocate) -> Any:
        start = self.num_tokens
        self.num_tokens += num_new_tokens
        self.block_ids += allocate(self.missing(self.num_tokens))
        return self.slots(start, self.num_tokens)


class AsksOneByOne(Right):
    """What it took before allocate raised is lost."""

    def append(self, num_new_tokens: int, allocate: Allocate) -> Any:
        start, stop = self.num_tokens, self.num_tokens + num_new_tokens
        fresh = [block for _ in range(self.missing(stop)) for block in allocate(1)]
        self.block_ids += fresh
        self.num_tokens = stop
        return self.slots(start, stop)


class TakesABlockTooEarly(Right):
    """Takes the next block as soon as the last one is full."""

    def missing(self, num_tokens: int) -> int:
        return num_tokens // self.block_size + 1 - len(self.block_ids)


class TakesNewBlocksEachTime(Right):
    """Forgets the room in the last block."""

    def append(self, num_new_tokens: int, allocate: Allocate) -> Any:
        start, stop = self.num_tokens, self.num_tokens + num_new_tokens
        self.block_ids += allocate(-(-num_new_tokens // self.block_size))
        self.num_tokens = stop
        return self.slots(start, stop)


class ForgetsOldBlocks(Right):
    """Replaces the table instead of extending it."""

    def append(self, num_new_tokens: int, allocate: Allocate) -> Any:
        start, stop = self.num_tokens, self.num_tokens + num_new_tokens
        fresh = allocate(self.missing(stop))
        self.block_ids = [*self.block_ids, *fresh]
        slots = self.slots(start, stop)
        self.block_ids = fresh or self.block_ids
        self.num_tokens = stop
        return slots


class GivesLogicalSlots(Right):
    def slots(self, start: int, stop: int) -> list[int]:
        return list(range(start, stop))


class SharesOneList(Right):
    """All tables append to the same list."""

    everyones: ClassVar[list[int]] = []

    def __init__(self, block_size: int) -> None:
        super().__init__(block_size)
        self.block_ids = self.everyones


class OneListForAll(Right):
    """As the one before, but emptied when a table is built."""

    everyones: ClassVar[list[int]] = []

    def __init__(self, block_size: int) -> None:
        super().__init__(block_size)
        self.everyones.clear()
        self.block_ids = self.everyones


class ForgetsToCount(Right):
    def append(self, num_new_tokens: int, allocate: Allocate) -> Any:
        before, slots = self.num_tokens, super().append(num_new_tokens, allocate)
        self.num_tokens = before
        return slots


class HidesTheError(Right):
    def append(self, num_new_tokens: int, allocate: Allocate) -> Any:
        try:
            return super().append(num_new_tokens, allocate)
        except Exception:
            return []


WRONG: dict[str, dict[str, tuple[Any, str]]] = {
    "3.1": {
        "takes logical slots for physical ones": (logical_for_physical, "physical block"),
        "forgets to multiply by the block size": (forgets_block_size, "slot"),
        "counts blocks from start": (counts_from_start, "logical block 1"),
        "includes stop": (includes_stop, "position 0: 1 slot; you gave 2"),
        "opens each block one token late": (opens_blocks_late, "logical block 1, offset 0"),
        "assumes that blocks are neighbours": (assumes_neighbours, "logical block 1"),
        "changes the table": (uses_up_the_table, "only to be read"),
    },
    "3.2": {
        "takes the block one step early": (one_step_early, "before a token is written"),
        "rounds down": (rounds_down, "has no block"),
        "forgets blocks reserved ahead": (forgets_the_reserve, "reserved ahead"),
        "gives reserved blocks back": (gives_blocks_back, "none is given back"),
        "forgets the room in the last block": (forgets_the_last_blocks_room, "reserved ahead"),
        "takes one block at most": (one_block_at_most, "has no block"),
    },
    "3.3": {
        "counts tokens before it has blocks": (CountsBeforeItAsks, "after a failure, none more"),
        "asks for blocks one by one": (AsksOneByOne, "nobody can ever give them back"),
        "takes a block too early": (TakesABlockTooEarly, "a block taken too early"),
        "forgets the room in the last block": (TakesNewBlocksEachTime, "a block taken too early"),
        "replaces the table": (ForgetsOldBlocks, "logical order"),
        "gives logical slots": (GivesLogicalSlots, "physical block"),
        "shares one list with all tables": (SharesOneList, "share a list"),
        "shares one list that is emptied": (OneListForAll, "share a list"),
        "forgets to count": (ForgetsToCount, "those of this call, too"),
        "hides the error": (HidesTheError, "let allocate's error pass"),
    },
}
