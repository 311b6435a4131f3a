"""Exercise 6.1: fork a sequence."""


def fork(tables, ref_counts, parent, child):
    """Let `child` start with the blocks of `parent`; no block is copied."""
    tables[child] = list(tables[parent])
    for block in tables[child]:
        ref_counts[block] += 1
