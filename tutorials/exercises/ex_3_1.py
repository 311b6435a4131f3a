"""Exercise 3.1: from positions to slots."""


def slot_mapping(block_ids, start, stop, block_size):
    """Give the physical slots of the positions start, start + 1, ..., stop - 1.

    block_ids    the block table: block_ids[0] is the physical block of logical block 0, ...
    start, stop  as in range(start, stop); all these positions lie in blocks of the table
    block_size   tokens in a block

    A slot is a token's place in the whole cache: physical block * block_size + offset.

    slot_mapping([7, 2], start=2, stop=6, block_size=4) -> [30, 31, 8, 9]
    """
    raise NotImplementedError("Exercise 3.1: turn positions into slots")
