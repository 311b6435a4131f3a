"""Exercise 6.3: free what nobody else holds."""


def free(tables, ref_counts, free_list, seq):
    """End a sequence: give its references back, and the blocks that nobody else holds.

    tables      the block table of each sequence; loses the one of `seq`
    ref_counts  ref_counts[block] is the number of table entries that name a block; changed in place
    free_list   the free blocks; a block that becomes free is put at the end
    seq         a sequence that has a table

    A table is given back from its tail to its head: others are likelier to share the head, so it
    should be the last to be taken again.

    With tables {"A": [0, 1, 2], "B": [0, 3]}, ref_counts [2, 1, 1, 1] and an empty free_list,
    free(tables, ref_counts, free_list, "A") leaves tables {"B": [0, 3]}, ref_counts [1, 0, 0, 1]
    and free_list [2, 1].
    """
    raise NotImplementedError("Exercise 6.3: free what nobody else holds")
