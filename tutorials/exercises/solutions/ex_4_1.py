"""Exercise 4.1: write keys and values into their slots."""


def kv_write(key, value, layer_cache, slot_mapping):
    """Write each token's key and value into its slot of the cache, in place."""
    block_size = layer_cache.shape[2]
    for token, slot in enumerate(slot_mapping.tolist()):
        if slot >= 0:
            block, offset = divmod(slot, block_size)
            layer_cache[0, block, offset] = key[token]
            layer_cache[1, block, offset] = value[token]
