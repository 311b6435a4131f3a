"""Exercise 3.2: when is a block needed?"""


def blocks_to_append(num_tokens, num_new_tokens, num_blocks, block_size):
    """Give how many blocks must be taken before the next tokens can be written.

    num_tokens      tokens whose keys and values are written already
    num_new_tokens  tokens that are written in this step
    num_blocks      blocks that the sequence holds; some may be reserved ahead and still empty
    block_size      tokens in a block

    Take a block when a token is about to be written to it, and not before. Give none back.

    blocks_to_append(num_tokens=3, num_new_tokens=3, num_blocks=1, block_size=4) -> 1
    """
    raise NotImplementedError("Exercise 3.2: count the blocks that are missing")
