"""A buddy allocator: runs of neighbouring blocks, each a power of two long.

A free run that is too long is cut into two halves, its *buddies*, until one has the right length;
when both buddies are free again they grow together. A run of length s begins at a multiple of s, so
the buddy of the run at `first` begins at `first ^ s`. A pool whose size is no power of two begins
as the powers that add up to it: 11 blocks are runs of 8, 2 and 1.
"""

from __future__ import annotations

from array import array

from minipaged.errors import ConfigError, OutOfBlocksError


def order_for(num_blocks: int) -> int:
    """Give the smallest k such that 2**k blocks are enough.

    >>> [order_for(n) for n in (0, 1, 2, 3, 4, 5, 1025)]
    [0, 0, 1, 2, 2, 3, 11]
    """
    return max(num_blocks - 1, 0).bit_length()


def most_slabs(pool_blocks: int, num_blocks: int) -> int:
    """Give how many slabs of `num_blocks` an empty pool of `pool_blocks` could hand out.

    >>> most_slabs(15728, 2048), most_slabs(15, 5)
    (7, 1)
    """
    return pool_blocks >> order_for(num_blocks)


class BuddyPool:
    """A fixed number of blocks that are handed out in slabs of 1, 2, 4, 8, ... neighbours.

    It has what others ask a pool of blocks for: `num_blocks`, `num_free`, `ref_count`, `hash_of`,
    `find` and `free_order`. Nothing is shared here, and nothing is cached.

    >>> pool = BuddyPool(num_blocks=16)
    >>> pool.allocate(5), pool.allocate(3), pool.num_free
    (range(0, 8), range(8, 12), 4)
    >>> pool.count_slabs(5)  # four blocks are free, but no eight in a row
    0
    >>> pool.release(0), pool.release(8), pool.free_slabs()
    (None, None, [range(0, 16)])
    """

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ConfigError(f"num_blocks must be at least 1, not {num_blocks}")
        self.num_blocks = num_blocks
        self.num_free = num_blocks
        self.ref_count = array("q", [0] * num_blocks)
        self.hash_of: dict[int, str] = {}
        self._free: list[set[int]] = [set() for _ in range(num_blocks.bit_length())]
        self._order_of: dict[int, int] = {}
        first = 0
        for order in reversed(range(len(self._free))):
            if num_blocks >> order & 1:
                self._free[order].add(first)
                first += 1 << order

    def allocate(self, num_blocks: int) -> range:
        """Take the shortest free run that holds `num_blocks` blocks, the lowest of several.

        Returns:
            The blocks of the slab: a power of two of them, at least `num_blocks`.

        Raises:
            OutOfBlocksError: No free run is long enough. The pool is unchanged.
        """
        wanted = order_for(num_blocks)
        order = next((k for k in range(wanted, len(self._free)) if self._free[k]), None)
        if order is None:
            longest = max(map(len, self.free_slabs()), default=0)
            raise OutOfBlocksError(
                f"need {1 << wanted} blocks in a row, {self.num_free} of {self.num_blocks} free, "
                f"at most {longest} in one piece"
            )
        first = min(self._free[order])
        self._free[order].remove(first)
        while order > wanted:
            order -= 1
            self._free[order].add(first + (1 << order))
        self._mark(first, order, 1)
        self._order_of[first] = order
        return range(first, first + (1 << order))

    def release(self, first: int) -> None:
        """Give back the slab that begins at block `first`; free buddies grow together.

        Raises:
            ValueError: No slab begins there. The pool is unchanged.
        """
        if first not in self._order_of:
            raise ValueError(f"no slab begins at block {first}")
        order = self._order_of.pop(first)
        self._mark(first, order, 0)
        while (buddy := first ^ (1 << order)) in self._free[order]:
            self._free[order].remove(buddy)
            first = min(first, buddy)
            order += 1
        self._free[order].add(first)

    def count_slabs(self, num_blocks: int) -> int:
        """Give how many slabs of this size could be taken now, one after the other."""
        wanted = order_for(num_blocks)
        return sum(
            len(self._free[order]) << (order - wanted) for order in range(wanted, len(self._free))
        )

    def most_slabs(self, num_blocks: int) -> int:
        """Give how many slabs of this size an empty pool could hand out."""
        return most_slabs(self.num_blocks, num_blocks)

    def free_slabs(self) -> list[range]:
        """Give the free runs in order of their place."""
        runs = ((first, order) for order, firsts in enumerate(self._free) for first in firsts)
        return [range(first, first + (1 << order)) for first, order in sorted(runs)]

    def free_order(self) -> list[int]:
        """Give the free blocks."""
        return [block for run in self.free_slabs() for block in run]

    def find(self, content_hash: str) -> int | None:
        """Give the block with this content: None, as nothing is cached here."""
        return None

    def _mark(self, first: int, order: int, count: int) -> None:
        size = 1 << order
        self.ref_count[first : first + size] = array("q", [count]) * size
        self.num_free += size if count == 0 else -size
