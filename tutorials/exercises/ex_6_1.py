"""Exercise 6.1: fork a sequence."""


def fork(tables, ref_counts, parent, child):
    """Let `child` start with the blocks of `parent`; no block is copied.

    tables      the block table of each sequence: {"A": [0, 1]}; gets one for the child, in place
    ref_counts  ref_counts[block] is the number of table entries that name a block; changed in place
    parent      a sequence that has a table
    child       a sequence that has none yet

    With tables {"A": [0, 1]} and ref_counts [1, 1, 0, 0], fork(tables, ref_counts, "A", "B")
    leaves tables {"A": [0, 1], "B": [0, 1]} and ref_counts [2, 2, 0, 0].
    """
    raise NotImplementedError("Exercise 6.1: fork a sequence")
