"""Exercise 5.2: the kernel's loop through the block table, in Triton or what stands in for it."""

from minipaged.exercises.tiles import jit, tl


@jit
def paged_decode_inner(
    q,
    key_cache,
    value_cache,
    block_table,
    seq_len,
    kv_head,
    scale,
    BLOCK_SIZE,
    NUM_KV_HEADS,
    HEAD_DIM,
):
    """Attend from the query heads of one KV head to all tokens of one sequence.

    q            [rows, HEAD_DIM], already loaded
    key_cache    pointer to the first element of [num_blocks, BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM]
    value_cache  the same for values
    block_table  pointer to this sequence's table: entry i is the block of logical block i
    seq_len      tokens of the sequence; behind them, slots and table may hold anything, even NaN
    kv_head      the KV head whose keys and values are to be read
    scale        what scores are multiplied by

    With a block table of [5, 2], BLOCK_SIZE 4 and seq_len 6, the loop runs twice: it reads slots 0
    to 3 of block 5, then slots 0 and 1 of block 2. Return the result, [rows, HEAD_DIM].

    Tiles begin as tl.full([q.shape[0]], float("-inf"), tl.float32), or tl.zeros([...], tl.float32).
    Beside these you need arange, cdiv, load (with mask and other), dot, trans, where, maximum, exp,
    max and sum (with axis).
    """
    raise NotImplementedError("Exercise 5.2: go through the block table, block after block")
