"""What is wrong with a list of slots, in words: the first wrong one, and whose memory it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from minipaged.exercises.attempt import Raised, same, shown


@dataclass(frozen=True)
class Place:
    """Where a sequence lies: its block table, and the memory around it.

    Attributes:
        table: The blocks of the sequence.
        block_size: Tokens in a block.
        num_blocks: Blocks in the pool.
        owners: Who holds the other blocks, as far as that has a name.
    """

    table: Sequence[int]
    block_size: int
    num_blocks: int
    owners: Mapping[int, str] = field(default_factory=dict)

    def slot(self, position: int) -> int:
        """Give the slot of a position."""
        index, offset = divmod(position, self.block_size)
        return self.table[index] * self.block_size + offset

    def way(self, position: int) -> str:
        """Tell how to get from a position to its slot."""
        index, offset = divmod(position, self.block_size)
        block = self.table[index]
        return (
            f"position {position} lies in logical block {index}, offset {offset}; the table says "
            f"physical block {block}: slot {block} * {self.block_size} + {offset} = "
            f"{self.slot(position)}"
        )

    def whose(self, slot: Any) -> str:
        """Tell whose a wrong slot is."""
        if type(slot) is not int or not 0 <= slot < self.num_blocks * self.block_size:
            return f"there is no slot {shown(slot)}"
        block = slot // self.block_size
        if block in self.table:
            position = self.table.index(block) * self.block_size + slot % self.block_size
            return f"slot {slot} is the place of position {position} of this sequence"
        owner = self.owners.get(block)
        if owner is not None:
            return f"slot {slot} is in block {block}, which belongs to {owner}"
        return f"slot {slot} is in block {block}, which does not belong to this sequence"


def counted(number: int, noun: str) -> str:
    """Give a number of things: "1 block", "2 blocks".

    >>> counted(1, "block"), counted(0, "block")
    ('1 block', '0 blocks')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def first_difference(got: Any, expected: Sequence[Any]) -> int:
    """Give the index of the first entry that is wrong or missing; 0 if `got` is no list.

    >>> first_difference([7, 8, 4], [7, 8, 9]), first_difference([7], [7, 8])
    (2, 1)
    """
    if not isinstance(got, (list, tuple)):
        return 0
    for index, (mine, right) in enumerate(zip(got, expected, strict=False)):
        if not same(mine, right):
            return index
    return min(len(got), len(expected))


def why_slots(got: Any, start: int, stop: int, place: Place) -> str:
    """Tell why these are not the slots of the positions `[start, stop)`."""
    if isinstance(got, Raised):
        return "an error came instead of a list with one slot for each position"
    if not isinstance(got, (list, tuple)):
        return "a list with one slot for each position was expected"
    if len(got) != stop - start:
        positions = f"position {start}" if stop - start == 1 else f"positions {start} to {stop - 1}"
        return f"{positions}: {counted(stop - start, 'slot')}; you gave {len(got)}"
    expected = [place.slot(position) for position in range(start, stop)]
    wrong = first_difference(got, expected)
    return f"{place.way(start + wrong)}; {place.whose(got[wrong])}"
