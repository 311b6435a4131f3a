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
    """Attend from the query heads of one KV head to all tokens of one sequence."""
    slots, dims = tl.arange(0, BLOCK_SIZE), tl.arange(0, HEAD_DIM)
    largest = tl.full([q.shape[0]], float("-inf"), tl.float32)
    total = tl.zeros([q.shape[0]], tl.float32)
    weighted = tl.zeros([q.shape[0], HEAD_DIM], tl.float32)
    for index in range(tl.cdiv(seq_len, BLOCK_SIZE)):
        block = tl.load(block_table + index)
        visible = index * BLOCK_SIZE + slots < seq_len
        rows = ((block * BLOCK_SIZE + slots) * NUM_KV_HEADS + kv_head) * HEAD_DIM
        here = rows[:, None] + dims[None, :]
        k = tl.load(key_cache + here, mask=visible[:, None], other=0.0)
        v = tl.load(value_cache + here, mask=visible[:, None], other=0.0)
        scores = tl.dot(q, tl.trans(k)) * scale
        scores = tl.where(visible[None, :], scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, axis=1))
        weights = tl.exp(scores - new_largest[:, None])
        rescale = tl.exp(largest - new_largest)
        total = total * rescale + tl.sum(weights, axis=1)
        weighted = weighted * rescale[:, None] + tl.dot(weights, v)
        largest = new_largest
    return weighted / total[:, None]
