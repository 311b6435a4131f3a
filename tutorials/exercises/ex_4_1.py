"""Exercise 4.1: write keys and values into their slots."""


def kv_write(key, value, layer_cache, slot_mapping):
    """Write each token's key and value into its slot of the cache, in place.

    key, value    tensors [num_tokens, num_kv_heads, head_dim]
    layer_cache   tensor [2, num_blocks, block_size, num_kv_heads, head_dim]: keys, then values
    slot_mapping  tensor [num_tokens] of integers; -1: this token is not written

    With blocks of 4 tokens, slot_mapping [9, -1] writes token 0 into block 2 at offset 1:
    layer_cache[0, 2, 1] is key[0], layer_cache[1, 2, 1] is value[0], and nothing else changes.
    """
    raise NotImplementedError("Exercise 4.1: put each token's key and value into its slot")
