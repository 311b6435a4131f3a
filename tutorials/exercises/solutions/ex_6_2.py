"""Exercise 6.2: append with copy-on-write."""


def append_with_copy_on_write(table, num_tokens, ref_counts, free_list, block_size):
    """Make position `num_tokens`, the next one, writable by this sequence alone."""
    logical_block = num_tokens // block_size
    if logical_block == len(table):  # on a block boundary
        block = free_list.pop(0)
        ref_counts[block] = 1
        table.append(block)
        return []
    source = table[logical_block]
    if ref_counts[source] == 1:
        return []
    target = free_list.pop(0)
    ref_counts[target] = 1
    ref_counts[source] -= 1
    table[logical_block] = target
    return [(source, target)]
