"""Exercise 6.2: append with copy-on-write."""


def append_with_copy_on_write(table, num_tokens, ref_counts, free_list, block_size):
    """Make position `num_tokens`, the next one, writable by this sequence alone.

    table       the sequence's block table; changed in place
    num_tokens  tokens that it has so far, so the next one is written at this position
    ref_counts  ref_counts[block] is the number of table entries that name a block; changed in place
    free_list   the free blocks; a new one is taken from the front, at index 0
    block_size  tokens in a block

    There are three cases. On a block boundary the table gets a new block. In a block that others
    hold as well the sequence gets a copy of its own and leaves the shared one. In a block that it
    holds alone there is nothing to do.

    Returns the copies to run before the write, as a list of pairs (source, target); often none: [].

    With table [0, 1], num_tokens 6, ref_counts [2, 2, 0, 0], free_list [2, 3] and block_size 4 it
    returns [(1, 2)] and leaves table [0, 2], ref_counts [2, 1, 1, 0] and free_list [3].
    """
    raise NotImplementedError("Exercise 6.2: append with copy-on-write")
