"""The operations on a paged KV cache in plain torch: slow, obvious, and right.

A layer's cache is `[2, num_blocks, block_size, num_kv_heads, head_dim]`: keys first, then values.
Token `p` of a sequence lives in block `block_table[p // block_size]` at offset `p % block_size`;
nothing else in this file knows where memory is. Every fast kernel must give what these functions
give.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def kv_write(key: Tensor, value: Tensor, layer_cache: Tensor, slot_mapping: Tensor) -> None:
    """Write each token's key and value [num_tokens, num_kv_heads, head_dim] into its slot.

    A slot is `block_id * block_size + offset`. Slot -1 means "do not write". Mutates `layer_cache`.
    """
    block_size = layer_cache.shape[2]
    for token, slot in enumerate(slot_mapping.tolist()):
        if slot >= 0:
            block, offset = divmod(slot, block_size)
            layer_cache[0, block, offset] = key[token]
            layer_cache[1, block, offset] = value[token]


def copy_blocks(kv_cache: Tensor, sources: list[int], targets: list[int]) -> None:
    """Copy whole blocks, in all layers, of a cache [num_layers, 2, num_blocks, ...]; mutates it."""
    for source, target in zip(sources, targets, strict=True):
        kv_cache[:, :, target] = kv_cache[:, :, source]


def swap_blocks(
    source_cache: Tensor, target_cache: Tensor, sources: list[int], targets: list[int]
) -> None:
    """Copy whole blocks, in all layers, from one cache to another; mutates `target_cache`."""
    for source, target in zip(sources, targets, strict=True):
        target_cache[:, :, target] = source_cache[:, :, source].to(target_cache.device)


def paged_attention(
    query: Tensor,
    layer_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    query_start_loc: Tensor,
    window: int | None = None,
) -> Tensor:
    """Attend from each sequence's newest tokens to its whole context, block by block.

    Args:
        query: [num_tokens, num_heads, head_dim], the sequences' tokens one after another.
        layer_cache: [2, num_blocks, block_size, num_kv_heads, head_dim] with the new tokens in it.
        block_tables: [num_seqs, max_blocks], the physical block of each logical block.
        seq_lens: [num_seqs], the length of each context, new tokens included.
        query_start_loc: [num_seqs + 1], where each sequence's tokens start in `query`.
        window: A query at position p sees positions above p - window; None: all up to p.

    Returns:
        [num_tokens, num_heads, head_dim] in the query's dtype.
    """
    output = torch.empty_like(query)
    starts = query_start_loc.tolist()
    for seq, seq_len in enumerate(seq_lens.tolist()):
        rows = slice(starts[seq], starts[seq + 1])
        output[rows] = attend_one(query[rows], layer_cache, block_tables[seq], seq_len, window)
    return output


def attend_one(
    query: Tensor, layer_cache: Tensor, block_table: Tensor, seq_len: int, window: int | None
) -> Tensor:
    """Attend from one sequence's last tokens [num_queries, num_heads, head_dim]: online softmax.

    Three running values a query and head are all that is kept of the blocks seen so far: the
    largest score, the sum of exp(score - largest), and the values weighted by it. A larger score in
    a later block rescales the other two, so no block is needed twice (Milakov and Gimelshein, 2018;
    Dao et al., 2022).
    """
    num_queries, num_heads, head_dim = query.shape
    block_size = layer_cache.shape[2]
    wide = torch.promote_types(query.dtype, torch.float32)
    scaled = query.to(wide) / math.sqrt(head_dim)
    positions = torch.arange(seq_len - num_queries, seq_len, device=query.device)
    largest = scaled.new_full((num_queries, num_heads, 1), -math.inf)
    total = scaled.new_zeros((num_queries, num_heads, 1))
    weighted = scaled.new_zeros((num_queries, num_heads, head_dim))
    first = 0 if window is None else max(0, seq_len - num_queries - window + 1) // block_size
    for index in range(first, -(-seq_len // block_size)):
        block = layer_cache[:, block_table[index]].to(wide)
        key, value = block  # each [block_size, num_kv_heads, head_dim]
        visible = visible_slots(positions, index * block_size, block_size, window)
        scores = block_scores(scaled, key).masked_fill(~visible[:, None, :], -math.inf)
        new_largest = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
        # Where nothing was visible yet -inf - -inf would be NaN: shifted by 0, zeros stay zeros.
        shift = new_largest.masked_fill(new_largest == -math.inf, 0)
        weights = torch.exp(scores - shift)  # [num_queries, num_heads, block_size]
        rescale = torch.exp(largest - shift)
        total = total * rescale + weights.sum(dim=-1, keepdim=True)
        weighted = weighted * rescale + weigh_values(weights, value)
        largest = new_largest
    return (weighted / total).to(query.dtype)


def visible_slots(positions: Tensor, start: int, block_size: int, window: int | None) -> Tensor:
    """Tell what each query sees of the block starting at `start`: [num_queries, block_size] bool.

    >>> visible_slots(torch.tensor([4, 5]), start=4, block_size=4, window=None).int().tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0]]
    """
    tokens = torch.arange(start, start + block_size, device=positions.device)
    age = positions[:, None] - tokens[None, :]  # 0: the query itself; negative: its future
    return (age >= 0) if window is None else (age >= 0) & (age < window)


def block_scores(query: Tensor, key: Tensor) -> Tensor:
    """Give query . key for a block's keys: [num_queries, num_heads, block_size].

    Heads share keys in groups: query head h reads KV head h // (num_heads // num_kv_heads).
    """
    group = query.shape[1] // key.shape[1]
    return torch.einsum("qhd,thd->qht", query, key.repeat_interleave(group, dim=1))


def weigh_values(weights: Tensor, value: Tensor) -> Tensor:
    """Sum a block's values, weighted: [num_queries, num_heads, block_size] -> [..., head_dim]."""
    group = weights.shape[1] // value.shape[1]
    return torch.einsum("qht,thd->qhd", weights, value.repeat_interleave(group, dim=1))


def paged_decode(
    query: Tensor,
    layer_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    window: int | None = None,
) -> Tensor:
    """Attend from one new token a sequence, [num_seqs, num_heads, head_dim]."""
    query_start_loc = torch.arange(len(query) + 1)
    return paged_attention(query, layer_cache, block_tables, seq_lens, query_start_loc, window)


def merge_parts(parts: Tensor, log_sums: Tensor) -> Tensor:
    """Join attention over the parts of a context: [..., num_parts, head_dim] -> [..., head_dim].

    `log_sums` [..., num_parts] holds log(sum of exp(score)) of each part, -inf for an empty one.
    Softmax over all is the parts' softmax, each weighed by its share of the whole sum.

    >>> merge_parts(torch.tensor([[1.0], [4.0]]), torch.tensor([2.0, 1.0]).log()).tolist()
    [2.0]
    """
    return (torch.softmax(log_sums, dim=-1)[..., None] * parts).sum(dim=-2)


def kv_write_int8(
    key: Tensor, value: Tensor, layer_cache: Tensor, layer_scales: Tensor, slot_mapping: Tensor
) -> None:
    """Write keys and values into an int8 cache; mutates it and `layer_scales`, see `quantize`."""
    for index, new in enumerate((key, value)):
        integers, scales = quantize(new)
        for token, slot in enumerate(slot_mapping.tolist()):
            if slot >= 0:
                block, offset = divmod(slot, layer_cache.shape[2])
                layer_cache[index, block, offset] = integers[token]
                layer_scales[index, block, offset] = scales[token]


def quantize(heads: Tensor) -> tuple[Tensor, Tensor]:
    """Give int8 [..., head_dim] and the fp32 scales [...] that turn it back, one a token and head.

    >>> integers, scales = quantize(torch.tensor([[-2.0, 0.5, 1.0]]))
    >>> integers.tolist(), [round(scale, 6) for scale in scales.tolist()]
    ([[-127, 32, 64]], [0.015748])
    """
    wide = heads.float()
    scales = (wide.abs().amax(dim=-1) / 127).clamp(min=1e-10)
    return torch.floor(wide / scales[..., None] + 0.5).to(torch.int8), scales


def paged_decode_int8(
    query: Tensor,
    layer_cache: Tensor,
    layer_scales: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    window: int | None = None,
) -> Tensor:
    """Attend over an int8 cache: unpack all of it, then decode."""
    unpacked = layer_cache * layer_scales[..., None]
    return paged_decode(query, unpacked, block_tables, seq_lens, window)
