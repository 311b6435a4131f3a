"""Exercise 3.3: build the block table."""


class BlockTable:
    """The blocks of one sequence. They are taken one by one, as the text grows.

    block_ids   the physical block of each logical block
    num_tokens  tokens that have a slot
    """

    def __init__(self, block_size):
        self.block_size = block_size
        self.block_ids = []
        self.num_tokens = 0

    def append(self, num_new_tokens, allocate):
        """Make room for the next tokens and give the slot of each.

        allocate(n) gives a list of n free blocks. If there are not so many it gives none and
        raises OutOfBlocksError: let the error pass, and leave the table as it was.

        With allocate(1) -> [7], then allocate(1) -> [2]:
        table = BlockTable(block_size=4)
        table.append(3, allocate) -> [28, 29, 30]
        table.append(2, allocate) -> [31, 8]
        """
        raise NotImplementedError("Exercise 3.3: take the missing blocks, then give the slots")
