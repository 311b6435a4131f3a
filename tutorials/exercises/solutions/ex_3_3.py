"""Exercise 3.3: build the block table."""


class BlockTable:
    """The blocks of one sequence. They are taken one by one, as the text grows."""

    def __init__(self, block_size):
        self.block_size = block_size
        self.block_ids = []
        self.num_tokens = 0

    def append(self, num_new_tokens, allocate):
        """Make room for the next tokens and give the slot of each."""
        size = self.block_size
        stop = self.num_tokens + num_new_tokens
        self.block_ids += allocate((stop + size - 1) // size - len(self.block_ids))
        positions = range(self.num_tokens, stop)
        self.num_tokens = stop
        return [self.block_ids[p // size] * size + p % size for p in positions]
