"""Exercise 4.3: a decode step of several sequences."""


def decode_batch(block_tables, num_computed_tokens, block_size):
    """Describe a step in which every sequence feeds the one token that it sampled last.

    block_tables         a list of blocks for each sequence; there is room for the new token, and
                         perhaps a block that is reserved and empty
    num_computed_tokens  for each sequence, the tokens whose keys and values are in the cache
    block_size           tokens in a block

    Gives three lists, with a number for each sequence:
    positions     where its new token stands in its own text
    seq_lens      how many tokens the new one attends to, itself included
    slot_mapping  the slot that its key and value are written to

    decode_batch([[7, 2], [5]], [4, 1], block_size=4) -> [4, 1], [5, 2], [8, 21]
    """
    raise NotImplementedError("Exercise 4.3: positions, lengths and slots of a step")
