"""Exercise 2.2: a pool of blocks."""


class BlockPool:
    """Blocks 0, 1, ..., num_blocks - 1: who wants one gets one that nobody else has.

    pool = BlockPool(2)
    pool.allocate() -> 0        pool.allocate() -> 1        pool.num_free() -> 0
    pool.free(0)                pool.num_free() -> 1
    pool.free(0)                raises an error: block 0 is free already
    pool.allocate() -> 0        pool.allocate()    raises an error: no block is free
    """

    def __init__(self, num_blocks):
        """Begin with all blocks free."""
        raise NotImplementedError("Exercise 2.2: build a pool of blocks")

    def allocate(self):
        """Take the block that has been free the longest, and give its number.

        In a new pool that is block 0, then block 1, ...; a block that is given back goes behind all
        others. If no block is free, raise an error (any exception), and change nothing.
        """
        raise NotImplementedError("Exercise 2.2: allocate")

    def free(self, block):
        """Give a block back.

        If it is free already, or no block of this pool, raise an error and change nothing.
        """
        raise NotImplementedError("Exercise 2.2: free")

    def num_free(self):
        """Give how many blocks are free."""
        raise NotImplementedError("Exercise 2.2: num_free")
