"""Another order of eviction, to compare with ours.

Both evict what was freed least recently. They differ in the blocks of one sequence, which are freed
at the same moment: ours gives them back tail first, so that a prefix loses its end, and what is
left of it can still be found. Head first, in the order of the table, it loses its beginning: as a
hit must begin there, all the other blocks are in memory for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minipaged.memory.block_pool import BlockPool
from minipaged.memory.events import Observer, ignore
from minipaged.memory.kv_cache_manager import KVCacheManager
from minipaged.memory.prefix_cache import PrefixCache


class HeadFirstPool(BlockPool):
    """A pool that takes blocks back in the order of the table.

    >>> pool = HeadFirstPool(num_blocks=2)
    >>> table = [pool.allocate(for_seq=0), pool.allocate(for_seq=0)]
    >>> pool.release(table[::-1])  # tail first, as the manager asks
    >>> pool.free_order()
    [0, 1]
    """

    def release(self, blocks: Sequence[int]) -> None:
        """Take one reference from each block; those of the head become free first."""
        super().release(blocks[::-1])


class HeadFirstManager(KVCacheManager):
    """A manager on such a pool."""

    def __init__(
        self, num_blocks: int, block_size: int, *, notify: Observer = ignore, **options: Any
    ) -> None:
        super().__init__(num_blocks, block_size, notify=notify, **options)
        self.pool = HeadFirstPool(num_blocks, notify)
        self._prefix_cache = PrefixCache(self.pool, block_size)
