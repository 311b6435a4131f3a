"""Decode attention over a paged cache: one new query a sequence. Read this kernel first.

One program a sequence and KV head. It walks through the sequence's block table, one physical block
after another, and keeps three running values of what it has seen (online softmax): the largest
score, the sum of exp(score - largest), and the values weighted by it. The query heads that share
the KV head are the rows of one small matrix, so that keys and values are read once for all.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from minipaged_kernels.launch import (
    attention_arguments,
    check_one_query_each,
    check_same_dtype,
    padded,
    pipeline,
)

LARGEST_TILE = 32 * 1024  # bytes of a block's keys, which are one tile here; larger ones spill


@triton.jit(do_not_specialize=["stride_table", "window"])
def paged_decode_kernel(
    output,  # [num_seqs, num_heads, head_dim]
    query,  # [num_seqs, num_heads, head_dim]
    key_cache,  # [num_blocks, block_size, num_kv_heads, head_dim]
    value_cache,  # the same
    block_tables,  # [num_seqs, max_blocks]
    seq_lens,  # [num_seqs]
    scale,
    window,
    stride_output,
    stride_query,
    stride_block,
    stride_slot,
    stride_head,
    stride_table,
    BLOCK_SIZE: tl.constexpr,
    GROUP: tl.constexpr,  # query heads that share a KV head
    HEAD_DIM: tl.constexpr,
    SLOTS: tl.constexpr,  # BLOCK_SIZE, GROUP and HEAD_DIM, rounded up to a power of two from 16 on
    ROWS: tl.constexpr,
    DIMS: tl.constexpr,
):
    """Attend from one sequence's query heads that share one KV head."""
    seq = tl.program_id(0).to(tl.int64)  # 64 bits: a cache may have more than 2^31 elements
    kv_head = tl.program_id(1)
    rows, dims, slots = tl.arange(0, ROWS), tl.arange(0, DIMS), tl.arange(0, SLOTS)

    heads = (kv_head * GROUP + rows)[:, None] * HEAD_DIM + dims[None, :]
    is_head = (rows < GROUP)[:, None] & (dims < HEAD_DIM)[None, :]
    q = tl.load(query + seq * stride_query + heads, mask=is_head, other=0.0)  # [ROWS, DIMS]

    seq_len = tl.load(seq_lens + seq).to(tl.int32)
    first_token = tl.maximum(seq_len - window, 0)
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    weighted = tl.zeros([ROWS, DIMS], tl.float32)

    for index in range(first_token // BLOCK_SIZE, tl.cdiv(seq_len, BLOCK_SIZE)):
        block = tl.load(block_tables + seq * stride_table + index).to(tl.int64)
        tokens = index * BLOCK_SIZE + slots
        visible = (slots < BLOCK_SIZE) & (tokens >= first_token) & (tokens < seq_len)
        here = block * stride_block + kv_head * stride_head
        here += slots[:, None] * stride_slot + dims[None, :]
        mask = visible[:, None] & (dims < HEAD_DIM)[None, :]
        k = tl.load(key_cache + here, mask=mask, other=0.0)  # [SLOTS, DIMS]
        v = tl.load(value_cache + here, mask=mask, other=0.0)

        scores = tl.dot(q, k.T, input_precision="ieee") * scale  # [ROWS, SLOTS]
        scores = tl.where(visible[None, :], scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, axis=1))
        weights = tl.exp(scores - new_largest[:, None])
        rescale = tl.exp(largest - new_largest)
        total = total * rescale + tl.sum(weights, axis=1)
        weighted *= rescale[:, None]
        weighted += tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        largest = new_largest

    # The largest score's own weight is 1, so the total is below 1 only where no token was seen.
    result = weighted / tl.maximum(total, 1.0)[:, None]
    tl.store(output + seq * stride_output + heads, result.to(output.dtype.element_ty), mask=is_head)


def paged_decode(
    query: Tensor,
    layer_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    window: int | None = None,
) -> Tensor:
    """Attend from each sequence's newest token to its whole context.

    Args:
        query: [num_seqs, num_heads, head_dim].
        layer_cache: [2, num_blocks, block_size, num_kv_heads, head_dim].
        block_tables: [num_seqs, max_blocks]; entries beyond a context may hold anything.
        seq_lens: [num_seqs], new token included; a context of 0 tokens gives zeros.
        window: The query at position p sees positions above p - window; None: all.

    Returns:
        [num_seqs, num_heads, head_dim] in the query's dtype.

    Raises:
        ValueError: Shapes, dtypes or strides don't fit.
    """
    arguments = attention_arguments(query, layer_cache, block_tables, seq_lens, window)
    check_same_dtype(layer_cache, query)
    check_one_query_each(query, seq_lens)
    check_tile(layer_cache, query.element_size())
    if len(query):
        paged_decode_kernel[(len(query), layer_cache.shape[3])](
            **arguments,
            SLOTS=padded(layer_cache.shape[2]),
            ROWS=padded(arguments["GROUP"]),
            **pipeline(tile_bytes(layer_cache, query.element_size())),
        )
    output: Tensor = arguments["output"]
    return output


def tile_bytes(layer_cache: Tensor, element_bytes: int) -> int:
    """Give the bytes of a block's keys of one KV head, as the tile that computes with them."""
    _, _, block_size, _, head_dim = layer_cache.shape
    return padded(block_size) * padded(head_dim) * element_bytes


def check_tile(layer_cache: Tensor, element_bytes: int) -> None:
    """Raise ValueError where a block is too large a tile."""
    size = tile_bytes(layer_cache, element_bytes)
    if size > LARGEST_TILE:
        raise ValueError(
            f"a block of {layer_cache.shape[2]} tokens is a tile of {size} bytes here, above "
            f"{LARGEST_TILE}: take smaller blocks, or paged_decode_split_kv"
        )
