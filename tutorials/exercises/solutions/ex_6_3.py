"""Exercise 6.3: free what nobody else holds."""


def free(tables, ref_counts, free_list, seq):
    """End a sequence: give its references back, and the blocks that nobody else holds."""
    for block in reversed(tables.pop(seq)):
        ref_counts[block] -= 1
        if ref_counts[block] == 0:
            free_list.append(block)
