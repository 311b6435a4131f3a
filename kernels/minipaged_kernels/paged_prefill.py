"""Attention from any number of new tokens a sequence: prefill, chunks and decode in one launch.

The batch is packed ("varlen"): the queries of all sequences lie one after another, and
`query_start_loc` tells where each begins. A program takes a tile of one sequence's queries, with
all the heads that share a KV head: row `r` is query `r // GROUP` and head `r % GROUP`. It goes
through the keys that its last query sees, tile by tile, and hides from each query its future.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from minipaged_kernels.launch import (
    attention_arguments,
    check_indices,
    check_same_dtype,
    padded,
    pipeline,
)

TILE = 32  # tokens; with more, registers spill
ROWS = 64  # of a tile of queries: enough for tensor cores to be busy
FP32_ROWS = 16  # which fp32 does not use, and its products take more registers


@triton.jit(do_not_specialize=["stride_table", "window"])
def paged_prefill_kernel(
    output,  # [num_tokens, num_heads, head_dim]
    query,  # [num_tokens, num_heads, head_dim]
    key_cache,  # [num_blocks, block_size, num_kv_heads, head_dim]
    value_cache,  # the same
    block_tables,  # [num_seqs, max_blocks]
    seq_lens,  # [num_seqs]
    query_start_loc,  # [num_seqs + 1]
    scale,
    window,
    stride_output,
    stride_query,
    stride_block,
    stride_slot,
    stride_head,
    stride_table,
    BLOCK_SIZE: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    QUERIES: tl.constexpr,  # queries of a tile: ROWS // GROUP
    TILE: tl.constexpr,  # tokens
    ROWS: tl.constexpr,
    DIMS: tl.constexpr,
):
    """Attend from a tile of one sequence's queries, with the heads of one KV head."""
    first_query = tl.program_id(0) * QUERIES
    kv_head = tl.program_id(1)
    seq = tl.program_id(2).to(tl.int64)
    first_row = tl.load(query_start_loc + seq).to(tl.int64)
    num_queries = (tl.load(query_start_loc + seq + 1) - first_row).to(tl.int32)
    if first_query >= num_queries:  # the grid is as wide as the longest sequence needs it
        return

    rows, dims = tl.arange(0, ROWS), tl.arange(0, DIMS)
    queries = first_query + rows // GROUP
    is_query = (rows < QUERIES * GROUP) & (queries < num_queries)
    mask_q = is_query[:, None] & (dims < HEAD_DIM)[None, :]
    element = (kv_head * GROUP + rows % GROUP)[:, None] * HEAD_DIM + dims[None, :]
    packed = (first_row + queries)[:, None]
    q = tl.load(query + packed * stride_query + element, mask=mask_q, other=0.0)  # [ROWS, DIMS]

    first_position = tl.load(seq_lens + seq).to(tl.int32) - num_queries  # of the new tokens
    begin = tl.maximum(first_position + first_query + 1 - window, 0)
    end = first_position + tl.minimum(first_query + QUERIES, num_queries)
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    weighted = tl.zeros([ROWS, DIMS], tl.float32)
    for start in range(begin, end, TILE):
        tokens = start + tl.arange(0, TILE)
        is_token = tokens < end
        entry = block_tables + seq * stride_table + tokens // BLOCK_SIZE
        block = tl.load(entry, mask=is_token, other=0).to(tl.int64)  # [TILE]
        row = block * stride_block + (tokens % BLOCK_SIZE) * stride_slot + kv_head * stride_head
        here = row[:, None] + dims[None, :]
        mask = is_token[:, None] & (dims < HEAD_DIM)[None, :]
        k = tl.load(key_cache + here, mask=mask, other=0.0)  # [TILE, DIMS]
        v = tl.load(value_cache + here, mask=mask, other=0.0)

        age = (first_position + queries)[:, None] - tokens[
            None, :
        ]  # 0: the query itself; negative: its future
        visible = (age >= 0) & (age < window)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale  # [ROWS, TILE]
        scores = tl.where(visible, scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, axis=1))
        shift = tl.where(new_largest == float("-inf"), 0.0, new_largest)  # -inf - -inf is NaN
        weights = tl.exp(scores - shift[:, None])
        rescale = tl.exp(largest - shift)
        total = total * rescale + tl.sum(weights, axis=1)
        weighted *= rescale[:, None]
        weighted += tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        largest = new_largest

    result = (weighted / tl.maximum(total, 1.0)[:, None]).to(output.dtype.element_ty)
    tl.store(output + packed * stride_output + element, result, mask=mask_q)


def paged_prefill(
    query: Tensor,
    layer_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    query_start_loc: Tensor,
    max_query_len: int,
    window: int | None = None,
) -> Tensor:
    """Attend from each sequence's newest tokens to its whole context.

    Args:
        query: [num_tokens, num_heads, head_dim], the sequences' tokens one after another.
        layer_cache: [2, num_blocks, block_size, num_kv_heads, head_dim] with the new tokens in it.
        block_tables: [num_seqs, max_blocks]; entries beyond a context may hold anything.
        seq_lens: [num_seqs], the length of each context, new tokens included.
        query_start_loc: [num_seqs + 1], where each sequence's tokens start in `query`.
        max_query_len: The most tokens of one sequence; with less, the rest is left out.
        window: A query at position p sees positions above p - window; None: all up to p.

    Returns:
        [num_tokens, num_heads, head_dim] in the query's dtype.

    Raises:
        ValueError: Shapes, dtypes or strides don't fit.
    """
    arguments = attention_arguments(query, layer_cache, block_tables, seq_lens, window)
    check_same_dtype(layer_cache, query)
    check_starts(query, len(seq_lens), query_start_loc, max_query_len)
    check_indices(layer_cache, query_start_loc=query_start_loc)
    output: Tensor = arguments["output"]
    if len(query) == 0:
        return output
    group = arguments["GROUP"]
    rows = max(FP32_ROWS if query.dtype == torch.float32 else ROWS, padded(group))
    grid = (triton.cdiv(max_query_len, rows // group), layer_cache.shape[3], len(seq_lens))
    paged_prefill_kernel[grid](
        **arguments,
        query_start_loc=query_start_loc,
        QUERIES=rows // group,
        TILE=TILE,
        ROWS=rows,
        **pipeline(TILE * arguments["DIMS"] * query.element_size()),
    )
    return output


def check_starts(query: Tensor, num_seqs: int, query_start_loc: Tensor, max_query_len: int) -> None:
    """Raise ValueError where the packed queries can't be those of so many sequences."""
    if query_start_loc.shape != (num_seqs + 1,):
        raise ValueError(
            f"{num_seqs} sequences need {num_seqs + 1} starts, not {list(query_start_loc.shape)}"
        )
    if max_query_len * num_seqs < len(query):
        raise ValueError(
            f"{num_seqs} sequences of {max_query_len} new tokens at most have no {len(query)}"
        )
