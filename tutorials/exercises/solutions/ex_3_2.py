"""Exercise 3.2: when is a block needed?"""


def blocks_to_append(num_tokens, num_new_tokens, num_blocks, block_size):
    """Give how many blocks must be taken before the next tokens can be written."""
    filled = (num_tokens + num_new_tokens + block_size - 1) // block_size
    return max(0, filled - num_blocks)
