"""Decode attention for few, long contexts: each is split among several programs (flash-decoding).

`paged_decode` starts one program a sequence and KV head. With 1 sequence and 8 KV heads that is 8
programs, and a GPU with 132 processors idles. Here a context is cut into `SPLITS` parts; each
program gives the attention over its part and the part's log-sum-exp, the logarithm of the sum of
exp(score). A second, small kernel weighs the parts by these (Dao et al., 2023).

Tiles are apart from blocks: each token of a tile finds its own block, so any block size will do.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from minipaged_kernels.launch import (
    attention_arguments,
    check_one_query_each,
    check_same_dtype,
    padded,
    pipeline,
    tile_tokens,
    window_or_all,
)

MOST_SPLITS = 128
WAVES = 2  # programs a processor, so that one computes while another waits for memory


@triton.jit(do_not_specialize=["stride_table", "window"])
def split_kernel(
    parts,  # [num_seqs, num_heads, SPLITS, head_dim], fp32
    log_sums,  # [num_seqs, num_heads, SPLITS], fp32
    query,  # [num_seqs, num_heads, head_dim]
    key_cache,  # [num_blocks, block_size, num_kv_heads, head_dim]
    value_cache,  # the same
    block_tables,  # [num_seqs, max_blocks]
    seq_lens,  # [num_seqs]
    scale,
    window,
    stride_query,
    stride_block,
    stride_slot,
    stride_head,
    stride_table,
    SPLITS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    TILE: tl.constexpr,  # tokens
    ROWS: tl.constexpr,
    DIMS: tl.constexpr,
):
    """Attend from the query heads of one KV head to one part of one sequence's context."""
    seq = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    rows, dims = tl.arange(0, ROWS), tl.arange(0, DIMS)

    heads = kv_head * GROUP + rows
    is_head = (rows < GROUP)[:, None] & (dims < HEAD_DIM)[None, :]
    q_here = query + seq * stride_query + heads[:, None] * HEAD_DIM + dims[None, :]
    q = tl.load(q_here, mask=is_head, other=0.0)  # [ROWS, DIMS]

    seq_len = tl.load(seq_lens + seq).to(tl.int32)
    first_token = tl.maximum(seq_len - window, 0)
    share = tl.cdiv(tl.cdiv(seq_len - first_token, SPLITS), TILE) * TILE
    begin = first_token + split * share
    end = tl.minimum(begin + share, seq_len)  # not above `begin`: this part is empty

    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    weighted = tl.zeros([ROWS, DIMS], tl.float32)
    for start in range(begin, end, TILE):
        tokens = start + tl.arange(0, TILE)
        visible = tokens < end
        entry = block_tables + seq * stride_table + tokens // BLOCK_SIZE
        block = tl.load(entry, mask=visible, other=0).to(tl.int64)  # [TILE]
        row = block * stride_block + (tokens % BLOCK_SIZE) * stride_slot + kv_head * stride_head
        here = row[:, None] + dims[None, :]
        mask = visible[:, None] & (dims < HEAD_DIM)[None, :]
        k = tl.load(key_cache + here, mask=mask, other=0.0)  # [TILE, DIMS]
        v = tl.load(value_cache + here, mask=mask, other=0.0)

        scores = tl.dot(q, k.T, input_precision="ieee") * scale  # [ROWS, TILE]
        scores = tl.where(visible[None, :], scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, axis=1))
        weights = tl.exp(scores - new_largest[:, None])
        rescale = tl.exp(largest - new_largest)
        total = total * rescale + tl.sum(weights, axis=1)
        weighted *= rescale[:, None]
        weighted += tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        largest = new_largest

    total = tl.maximum(total, 1.0)  # an empty part: zeros, and -inf below
    part = (seq * tl.num_programs(1) * GROUP + heads) * SPLITS + split  # [ROWS]
    here = part[:, None] * HEAD_DIM + dims[None, :]
    tl.store(parts + here, weighted / total[:, None], mask=is_head)
    tl.store(log_sums + part, largest + tl.log(total), mask=rows < GROUP)


@triton.jit
def reduce_kernel(
    output,  # [num_seqs, num_heads, head_dim]
    parts,  # [num_seqs, num_heads, SPLITS, head_dim], fp32
    log_sums,  # [num_seqs, num_heads, SPLITS], fp32
    stride_output,
    SPLITS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr,
):
    """Weigh the parts of one sequence and query head."""
    seq = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    splits, dims = tl.arange(0, SPLITS), tl.arange(0, DIMS)
    part = (seq * tl.num_programs(1) + head) * SPLITS + splits

    log_sum = tl.load(log_sums + part)  # [SPLITS]
    largest = tl.max(log_sum, axis=0)
    weights = tl.exp(log_sum - tl.where(largest == float("-inf"), 0.0, largest))
    is_dim = dims < HEAD_DIM
    here = part[:, None] * HEAD_DIM + dims[None, :]
    attended = tl.load(parts + here, mask=is_dim[None, :], other=0.0)  # [SPLITS, DIMS]
    result = tl.sum(weights[:, None] * attended, axis=0) / tl.maximum(tl.sum(weights, axis=0), 1.0)
    there = output + seq * stride_output + head * HEAD_DIM + dims
    tl.store(there, result.to(output.dtype.element_ty), mask=is_dim)


def paged_decode_split_kv(
    query: Tensor,
    layer_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    window: int | None = None,
    num_splits: int | None = None,
    tile: int | None = None,
) -> Tensor:
    """Attend from each sequence's newest token to its whole context, as `paged_decode` does.

    Args:
        query: [num_seqs, num_heads, head_dim].
        layer_cache: [2, num_blocks, block_size, num_kv_heads, head_dim]; any block size.
        block_tables: [num_seqs, max_blocks]; entries beyond a context may hold anything.
        seq_lens: [num_seqs], new token included; a context of 0 tokens gives zeros.
        window: The query at position p sees positions above p - window; None: all.
        num_splits: Parts of each context, 1, 2, 4 to 128; None: as the machine and batch ask for.
        tile: Tokens of a tile, 16, 32, 64 or 128; None: what fits.

    Returns:
        [num_seqs, num_heads, head_dim] in the query's dtype.

    Raises:
        ValueError: Shapes, dtypes or strides don't fit.
    """
    arguments = attention_arguments(query, layer_cache, block_tables, seq_lens, window)
    check_same_dtype(layer_cache, query)
    check_one_query_each(query, seq_lens)
    fitting = tile_tokens(query.shape[2], query.element_size())
    tile = fitting if tile is None else tile
    splits = splits_for(layer_cache, block_tables, window) if num_splits is None else num_splits
    check_parts(splits, tile)
    output: Tensor = arguments.pop("output")
    stride_output = arguments.pop("stride_output")
    if len(query):
        parts, log_sums = attend_to_parts(arguments, splits, tile)
        reduce_kernel[(len(query), query.shape[1])](
            output=output,
            parts=parts,
            log_sums=log_sums,
            stride_output=stride_output,
            SPLITS=splits,
            HEAD_DIM=arguments["HEAD_DIM"],
            DIMS=arguments["DIMS"],
            num_warps=4,
        )
    return output


def check_parts(splits: int, tile: int) -> None:
    """Raise ValueError unless both are powers of two that a program can hold."""
    powers = [1 << exponent for exponent in range(MOST_SPLITS.bit_length())]
    if splits not in powers or tile not in powers[4:]:
        raise ValueError(
            f"splits and tile are powers of two up to {MOST_SPLITS}, the tile from 16 on: "
            f"{splits}, {tile}"
        )


def attend_to_parts(arguments: dict[str, Any], splits: int, tile: int) -> tuple[Tensor, Tensor]:
    """Attend to each part: [num_seqs, num_heads, splits, head_dim], and log-sum-exp, both fp32."""
    query: Tensor = arguments["query"]
    num_seqs, num_heads, head_dim = query.shape
    shape = (num_seqs, num_heads, splits, head_dim)
    parts = torch.empty(shape, dtype=torch.float32, device=query.device)
    log_sums = torch.empty(shape[:3], dtype=torch.float32, device=query.device)
    split_kernel[(num_seqs, num_heads // arguments["GROUP"], splits)](
        **arguments,
        parts=parts,
        log_sums=log_sums,
        SPLITS=splits,
        TILE=tile,
        ROWS=padded(arguments["GROUP"]),
        **pipeline(tile * arguments["DIMS"] * query.element_size()),
    )
    return parts, log_sums


def splits_for(layer_cache: Tensor, block_tables: Tensor, window: int | None) -> int:
    """Give how many parts suit this batch on this machine; the tables are as long as need be."""
    _, _, block_size, num_kv_heads, head_dim = layer_cache.shape
    longest = min(block_tables.shape[1] * block_size, window_or_all(window))
    tile = tile_tokens(head_dim, layer_cache.element_size())
    processors = num_processors(layer_cache.device)
    return choose_num_splits(len(block_tables) * num_kv_heads, longest, tile, processors)


def choose_num_splits(programs: int, longest: int, tile: int, processors: int) -> int:
    """Give how many parts keep all processors busy, a power of two; no part is below a tile.

    `programs` is what there would be without splits, `longest` the longest context in tokens.

    >>> choose_num_splits(programs=8, longest=8192, tile=64, processors=132)
    32
    >>> choose_num_splits(programs=8, longest=300, tile=64, processors=132)
    4
    >>> choose_num_splits(programs=512, longest=8192, tile=64, processors=132)
    1
    """
    wanted = WAVES * processors // max(1, programs)
    most = max(1, min(wanted, longest // tile, MOST_SPLITS))
    return 1 << (most.bit_length() - 1)


def num_processors(device: torch.device) -> int:
    """Give how many programs a device runs side by side at least; the interpreter runs one."""
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
