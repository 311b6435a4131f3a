"""Exercise 2.2: a pool of blocks."""

from collections import deque


class BlockPool:
    """Blocks 0, 1, ..., num_blocks - 1: who wants one gets one that nobody else has."""

    def __init__(self, num_blocks):
        """Begin with all blocks free."""
        self._free = deque(range(num_blocks))
        self._used = set()

    def allocate(self):
        """Take the block that has been free the longest, and give its number."""
        if not self._free:
            raise RuntimeError("no block is free")
        block = self._free.popleft()
        self._used.add(block)
        return block

    def free(self, block):
        """Give a block back."""
        if block not in self._used:
            raise ValueError(f"block {block} is not in use")
        self._used.remove(block)
        self._free.append(block)

    def num_free(self):
        """Give how many blocks are free."""
        return len(self._free)
