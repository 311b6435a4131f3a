"""A KV cache that can be read: it tells who gets the keys and values of somebody else.

Reference counts and tables can all be right while a block holds the wrong thing. Here the KV of a
token is what a real one depends on: the token, its position, and a checksum of everything before it
*as it was read from this cache*. So a wrong block poisons all that is computed behind it, as it
would in a model. Blocks are moved, written and wiped as the manager says, and then read back
through the block tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

from minipaged.memory.replay import IntegrityError
from minipaged.memory.snapshot import MemorySnapshot


class Cell(NamedTuple):
    """The KV of one token: itself, its place, and a checksum of the text up to it."""

    token: int
    position: int
    checksum: int


def cells(token_ids: Sequence[int], start: int = 0, checksum: int = 0) -> Iterator[Cell]:
    """Yield the KV of tokens that begin at `start`, behind a text with that checksum.

    >>> first, second = cells([7, 7])
    >>> first.checksum == second.checksum
    False
    """
    for position, token in enumerate(token_ids, start):
        checksum = crc32(b"%d " % token, checksum)
        yield Cell(token, position, checksum)


class CheckedKV:
    """One cell for each slot of the pool and of the swap pool; None where nothing means anything.

    >>> kv = CheckedKV(num_blocks=2, block_size=2)
    >>> kv.write([2, 3], [11, 12], start=0, before=None)
    >>> [cell.token for cell in kv.slots if cell]
    [11, 12]
    """

    def __init__(self, num_blocks: int, block_size: int, num_swap_blocks: int = 0) -> None:
        self.block_size = block_size
        self.slots: list[Cell | None] = [None] * (num_blocks * block_size)
        self.swap_slots: list[Cell | None] = [None] * (num_swap_blocks * block_size)

    def swap_out(self, moves: Iterable[tuple[int, int]]) -> None:
        """Copy blocks to the swap pool: pairs (block, swap block)."""
        self._move(self.slots, self.swap_slots, moves)

    def swap_in(self, moves: Iterable[tuple[int, int]]) -> None:
        """Copy blocks back from the swap pool: pairs (swap block, block)."""
        self._move(self.swap_slots, self.slots, moves)

    def copy(self, moves: Iterable[tuple[int, int]]) -> None:
        """Copy blocks inside the pool, all at once: pairs (source, target)."""
        self._move(self.slots, self.slots, moves)

    def write(
        self, slots: Sequence[int], token_ids: Sequence[int], start: int, before: int | None
    ) -> None:
        """Compute tokens at positions `start`, ... that follow what lies in the slot `before`.

        Raises:
            IntegrityError: A slot lies outside the pool; a negative one does not wrap around.
        """
        previous = None if before is None else self.slots[before]
        new = cells(token_ids, start, previous.checksum if previous else 0)
        for slot, cell in zip(slots, new, strict=True):
            if not 0 <= slot < len(self.slots):
                raise IntegrityError(f"slot {slot} is not in a pool of {len(self.slots)} slots")
            self.slots[slot] = cell

    def wipe(self, snapshot: MemorySnapshot) -> None:
        """Empty the blocks whose content means nothing: free, and not to be found again."""
        for block, count in enumerate(snapshot.ref_counts):
            if count == 0 and block not in snapshot.hashes:
                self._wipe(self.slots, block)
        for block, count in enumerate(snapshot.swap_ref_counts):
            if count == 0:
                self._wipe(self.swap_slots, block)

    def check(self, snapshot: MemorySnapshot, texts: Mapping[int, Sequence[int]]) -> None:
        """Read back through its block table what each sequence has computed of its text.

        Raises:
            IntegrityError: The first sequence that would attend to something else, and where.
        """
        for tables, slots in (
            (snapshot.tables, self.slots),
            (snapshot.swap_tables, self.swap_slots),
        ):
            for seq, table in tables.items():
                for want in cells(texts[seq][: snapshot.num_tokens[seq]]):
                    block, offset = divmod(want.position, self.block_size)
                    found = slots[table[block] * self.block_size + offset]
                    if found != want:
                        place = f"position {want.position} (block {table[block]})"
                        raise IntegrityError(f"seq {seq}, {place}: {_difference(found, want)}")

    def _move(
        self,
        source: list[Cell | None],
        target: list[Cell | None],
        moves: Iterable[tuple[int, int]],
    ) -> None:
        size = self.block_size
        contents = [(to, self._block(source, block)) for block, to in moves]
        for block, content in contents:
            self._block(target, block)
            target[block * size : (block + 1) * size] = content

    def _block(self, slots: list[Cell | None], block: int) -> list[Cell | None]:
        """Give what is in a block; a list's slice would take any number."""
        size, num_blocks = self.block_size, len(slots) // self.block_size
        if not 0 <= block < num_blocks:
            raise IntegrityError(f"block {block} is not in a pool of {num_blocks} blocks")
        return slots[block * size : (block + 1) * size]

    def _wipe(self, slots: list[Cell | None], block: int) -> None:
        size = self.block_size
        slots[block * size : (block + 1) * size] = [None] * size


def _difference(found: Cell | None, want: Cell) -> str:
    if found is None:
        return f"KV that was never computed, where token {want.token} belongs"
    if found[:2] == want[:2]:
        return f"the KV of token {want.token} behind another text"
    return f"the KV of token {found.token} at {found.position}, where token {want.token} belongs"
