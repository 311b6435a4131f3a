"""Physical blocks: which are free, who shares the others, and which can be found by their content.

A block is in one of three states:

    referenced      ref_count >= 1: some block table names it
    free            ref_count == 0: its content means nothing
    free, cached    ref_count == 0, but full of a known prefix: it may be shared again until evicted

Free blocks without content are taken first, then cached ones, each in the order in which they were
freed, least recently first. Every operation takes constant time, whatever the size of the pool.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence

from minipaged.errors import ConfigError, OutOfBlocksError
from minipaged.memory.events import BlockEvicted, Observer, ignore
from minipaged.memory.free_list import FreeList


class BlockPool:
    """A fixed number of blocks with reference counts, a free list and content hashes.

    >>> pool = BlockPool(num_blocks=2)
    >>> pool.allocate(for_seq=0), pool.allocate(for_seq=0), pool.num_free
    (0, 1, 0)
    >>> pool.share(1)
    >>> pool.release([1, 0]), pool.num_free
    (None, 1)
    >>> pool.allocate(for_seq=5)
    0
    """

    def __init__(self, num_blocks: int, notify: Observer = ignore) -> None:
        if num_blocks < 0:
            raise ConfigError(f"a pool can't have {num_blocks} blocks")
        self.num_blocks = num_blocks
        self.ref_count = array("q", [0] * num_blocks)
        self.hash_of: dict[int, str] = {}
        self._block_of: dict[str, int] = {}
        self._free = FreeList.full(num_blocks)
        self._free_cached = FreeList(num_blocks)
        self._notify = notify

    @property
    def num_free(self) -> int:
        """Blocks that `allocate` could hand out, cached ones included."""
        return len(self._free) + len(self._free_cached)

    @property
    def num_free_cached(self) -> int:
        """Free blocks that still hold a findable prefix."""
        return len(self._free_cached)

    def allocate(self, for_seq: int) -> int:
        """Take the least recently freed block and give it one reference.

        Blocks without cached content go first. One with content loses it here: this is eviction,
        and `for_seq` is the sequence that caused it.

        Raises:
            OutOfBlocksError: Every block is referenced. The pool is unchanged.
        """
        if self._free:
            block = self._free.popleft()
        elif self._free_cached:
            block = self._free_cached.popleft()
            self._forget(block, for_seq)
        else:
            raise OutOfBlocksError(f"need 1 block, 0 of {self.num_blocks} free")
        self.ref_count[block] = 1
        return block

    def share(self, block: int) -> None:
        """Add one reference to a block that is in use, or free but still cached.

        A cached block leaves the free list with its content: this is a prefix hit.

        Raises:
            ValueError: The block is free and holds nothing. The pool is unchanged.
        """
        self._check_exists(block)
        if self.ref_count[block] == 0:
            if block not in self._free_cached:
                raise ValueError(f"block {block} is free and holds nothing that could be shared")
            self._free_cached.remove(block)
        self.ref_count[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """Take one reference from each block, in order; one without references becomes free.

        A block that stands in `blocks` twice loses two references. Give a sequence's blocks tail
        first: its head is more likely to be shared, so it should be evicted last.

        Raises:
            ValueError: A block has fewer references than `blocks` asks back. The pool is unchanged.
        """
        counts = self.ref_count
        if len(blocks) == 1:
            self._check_release(blocks[0], 1)
        else:
            for block, times in Counter(blocks).items():
                self._check_release(block, times)
        for block in blocks:
            counts[block] -= 1
            if counts[block] == 0:
                self._append_free(block)

    def publish(self, block: int, content_hash: str) -> bool:
        """Make a referenced block findable by the hash of its content.

        Gives False and changes nothing if another block is known by that hash, or this one by any:
        two identical prompts in one step leave the second with a private duplicate.

        Raises:
            ValueError: The block is free. The pool is unchanged.
        """
        self._check_exists(block)
        if self.ref_count[block] == 0:
            raise ValueError(f"block {block} is free: only a block in use can be published")
        if content_hash in self._block_of or block in self.hash_of:
            return False
        self._block_of[content_hash] = block
        self.hash_of[block] = content_hash
        return True

    def find(self, content_hash: str) -> int | None:
        """Give the block that holds this content, in use or free; None if there is none."""
        return self._block_of.get(content_hash)

    def free_order(self) -> list[int]:
        """Give the free blocks in the order in which `allocate` would take them."""
        return [*self._free, *self._free_cached]

    def _check_exists(self, block: int) -> None:
        if not 0 <= block < self.num_blocks:
            raise ValueError(f"block {block} is not in a pool of {self.num_blocks}")

    def _check_release(self, block: int, times: int) -> None:
        self._check_exists(block)
        if self.ref_count[block] < times:
            raise ValueError(
                f"block {block}: {times} references to release, {self.ref_count[block]} held"
            )

    def _append_free(self, block: int) -> None:
        (self._free_cached if block in self.hash_of else self._free).append(block)

    def _forget(self, block: int, for_seq: int) -> None:
        content_hash = self.hash_of.pop(block)
        del self._block_of[content_hash]
        self._notify(BlockEvicted(block, content_hash, for_seq))
