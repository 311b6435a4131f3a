"""Exercise 4.2: gather keys and values through the table."""


def gather_kv(layer_cache, block_table, num_tokens):
    """Give a sequence's keys and values as if they lay in one piece.

    layer_cache  tensor [2, num_blocks, block_size, num_kv_heads, head_dim]: keys, then values
    block_table  list of the sequence's physical blocks; the last one may be reserved and empty
    num_tokens   tokens of the sequence that are in the cache

    Gives two tensors (keys, values), each [num_tokens, num_kv_heads, head_dim].

    With blocks of 4 tokens and block_table [7, 2], row 5 of the keys is layer_cache[0, 2, 1].
    """
    raise NotImplementedError("Exercise 4.2: follow the table and put the rows in order")
