"""Decode attention over a cache of 8-bit integers: `paged_decode`, with half the bytes to read.

A key is a row of integers times one scale. The scale is a factor of the whole row, so it need not
be multiplied into the keys: the score is, `q . (integers * scale) = (q . integers) * scale`. A
value's scale goes into its weight in the same way. Nothing of size `head_dim` is ever unpacked.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from minipaged_kernels.launch import (
    attention_arguments,
    check_one_query_each,
    check_scales,
    padded,
    pipeline,
)
from minipaged_kernels.paged_decode import check_tile, tile_bytes


@triton.jit(do_not_specialize=["stride_table", "window"])
def paged_decode_int8_kernel(
    output,  # [num_seqs, num_heads, head_dim]
    query,  # [num_seqs, num_heads, head_dim]
    key_cache,  # [num_blocks, block_size, num_kv_heads, head_dim], int8
    value_cache,  # the same
    key_scales,  # [num_blocks, block_size, num_kv_heads], fp32
    value_scales,  # the same
    block_tables,  # [num_seqs, max_blocks]
    seq_lens,  # [num_seqs]
    scale,
    window,
    stride_output,
    stride_query,
    stride_block,
    stride_slot,
    stride_head,
    stride_scale_block,
    stride_scale_slot,
    stride_table,
    BLOCK_SIZE: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    SLOTS: tl.constexpr,
    ROWS: tl.constexpr,
    DIMS: tl.constexpr,
):
    """Attend from one sequence's query heads that share one KV head."""
    seq = tl.program_id(0).to(tl.int64)
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
        k = tl.load(key_cache + here, mask=mask, other=0).to(q.dtype)  # [SLOTS, DIMS]
        v = tl.load(value_cache + here, mask=mask, other=0).to(q.dtype)  # exact: 8 bits fit
        scale_here = block * stride_scale_block + slots * stride_scale_slot + kv_head
        k_scale = tl.load(key_scales + scale_here, mask=visible, other=0.0)  # [SLOTS]
        v_scale = tl.load(value_scales + scale_here, mask=visible, other=0.0)

        scores = tl.dot(q, k.T, input_precision="ieee") * (k_scale * scale)[None, :]
        scores = tl.where(visible[None, :], scores, float("-inf"))  # [ROWS, SLOTS]
        new_largest = tl.maximum(largest, tl.max(scores, axis=1))
        weights = tl.exp(scores - new_largest[:, None])
        rescale = tl.exp(largest - new_largest)
        total = total * rescale + tl.sum(weights, axis=1)
        weights = (weights * v_scale[None, :]).to(q.dtype)
        weighted *= rescale[:, None]
        weighted += tl.dot(weights, v, input_precision="ieee")
        largest = new_largest

    result = weighted / tl.maximum(total, 1.0)[:, None]
    tl.store(output + seq * stride_output + heads, result.to(output.dtype.element_ty), mask=is_head)


def paged_decode_int8(
    query: Tensor,
    layer_cache: Tensor,
    layer_scales: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    window: int | None = None,
) -> Tensor:
    """Attend from each sequence's newest token to its whole context.

    Args:
        query: [num_seqs, num_heads, head_dim].
        layer_cache: [2, num_blocks, block_size, num_kv_heads, head_dim], int8.
        layer_scales: [2, num_blocks, block_size, num_kv_heads], fp32.
        block_tables: [num_seqs, max_blocks]; entries beyond a context may hold anything.
        seq_lens: [num_seqs], new token included; a context of 0 tokens gives zeros.
        window: The query at position p sees positions above p - window; None: all.

    Returns:
        [num_seqs, num_heads, head_dim] in the query's dtype.

    Raises:
        ValueError: Shapes, dtypes or strides don't fit.
    """
    arguments = attention_arguments(query, layer_cache, block_tables, seq_lens, window)
    check_scales(layer_cache, layer_scales)
    check_one_query_each(query, seq_lens)
    check_tile(layer_cache, query.element_size())
    if len(query):
        paged_decode_int8_kernel[(len(query), layer_cache.shape[3])](
            **arguments,
            key_scales=layer_scales[0],
            value_scales=layer_scales[1],
            stride_scale_block=layer_scales.stride(1),
            stride_scale_slot=layer_scales.stride(2),
            SLOTS=padded(layer_cache.shape[2]),
            ROWS=padded(arguments["GROUP"]),
            **pipeline(tile_bytes(layer_cache, query.element_size())),
        )
    output: Tensor = arguments["output"]
    return output
