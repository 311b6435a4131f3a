"""Every kernel on a device against float64: the worst error, and whether that is as it must be."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from cases import Context, Heads, context
from measuring import Row
from minipaged_kernels import reference
from minipaged_kernels.copy_blocks import copy_blocks
from minipaged_kernels.kv_write import kv_write
from minipaged_kernels.kv_write_int8 import kv_write_int8
from minipaged_kernels.paged_decode import paged_decode
from minipaged_kernels.paged_decode_int8 import paged_decode_int8
from minipaged_kernels.paged_decode_split_kv import paged_decode_split_kv
from minipaged_kernels.paged_prefill import paged_prefill
from minipaged_kernels.swap import swap_blocks
from torch import Tensor

SECTION = "correctness: worst error against float64"
TOLERANCES = {torch.float32: 5e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def check_device(device: torch.device, shapes: list[tuple[Heads, int]]) -> list[Row]:
    """Check every kernel with every dtype, for each shape: heads, and a block's tokens."""
    rows = []
    for heads, block_size in shapes:
        for dtype in TOLERANCES:
            for name, error, tolerance in errors(device, heads, block_size, dtype):
                label = f"{name}, {str(dtype)[6:]}, {tuple(heads)}, block {block_size}"
                note = "" if error <= tolerance else f"WRONG: above {tolerance}"
                rows.append(Row(SECTION, label, error=error, note=note))
    return rows


def errors(
    device: torch.device, heads: Heads, block_size: int, dtype: torch.dtype
) -> Iterator[tuple[str, float, float]]:
    """Give each kernel's name, worst error and tolerance."""
    lengths = [1, block_size - 1 or 1, block_size, block_size + 1, 3 * block_size + 5]
    decoding = context(heads, lengths, block_size, dtype, device)
    mixed = context(heads, lengths, block_size, dtype, device, [1, 1, block_size, 1, 7])
    for window in (None, block_size + 3):
        kind = "" if window is None else f", window {window}"
        for name, attend, given in attention(decoding, mixed, window):
            wanted = exact(given, window)
            yield name + kind, worst(attend(), wanted), TOLERANCES[dtype]
    for name, moved, wanted in moves(decoding):
        yield name, worst(moved, wanted), 0.0
    yield "paged_decode_int8", int8_error(decoding), 2 * TOLERANCES[dtype]


def attention(
    decoding: Context, mixed: Context, window: int | None
) -> list[tuple[str, Callable[[], Tensor], Context]]:
    """Give each attention kernel with what it is called with."""
    one_each = (decoding.query, decoding.layer_cache, decoding.block_tables, decoding.seq_lens)
    packed = (mixed.query, mixed.layer_cache, mixed.block_tables, mixed.seq_lens)
    packed_lens = mixed.query_start_loc, mixed.max_query_len
    return [
        ("paged_decode", lambda: paged_decode(*one_each, window), decoding),
        ("split_kv, 1 split", lambda: paged_decode_split_kv(*one_each, window, 1), decoding),
        ("split_kv, 4 splits", lambda: paged_decode_split_kv(*one_each, window, 4), decoding),
        ("paged_prefill", lambda: paged_prefill(*packed, *packed_lens, window), mixed),
    ]


def exact(given: Context, window: int | None) -> Tensor:
    """Give attention in float64, on the host."""
    return reference.paged_attention(
        given.query.cpu().double(),
        given.layer_cache.cpu().double(),
        given.block_tables.cpu(),
        given.seq_lens.cpu(),
        given.query_start_loc.cpu(),
        window,
    )


def worst(found: Tensor, wanted: Tensor) -> float:
    """Give the largest difference; infinity where something is not finite."""
    difference = (found.cpu().double() - wanted.cpu().double()).abs().max().item()
    return difference if difference == difference else float("inf")


def moves(given: Context) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Give what writes and copies leave behind, and what they should."""
    cache = torch.zeros_like(given.layer_cache)
    device, num_blocks, block_size = cache.device, cache.shape[1], cache.shape[2]
    rows = given.query[:, : cache.shape[3]].contiguous()
    slots = torch.tensor([block_size + i for i in range(len(rows))], device=device)
    slots[1] = -1
    wanted = cache.clone()
    kv_write(rows, -rows, cache, slots)
    reference.kv_write(rows, -rows, wanted, slots)
    yield "kv_write", cache, wanted

    layers = torch.stack([cache, 2 * cache])
    wanted = layers.clone()
    copy_blocks(layers, [(1, 0), (1, num_blocks - 1)])
    reference.copy_blocks(wanted, [1, 1], [0, num_blocks - 1])
    yield "copy_blocks", layers, wanted

    host = torch.zeros(2, 2, 3, *cache.shape[2:], dtype=cache.dtype)
    swap_blocks(layers, host, [(1, 2), (0, 1)])
    yield "swap_blocks", host[:, :, [2, 1]], layers[:, :, [1, 0]]


def int8_error(given: Context) -> float:
    """Give the worst error of decode over int8 against float64 on the same integers."""
    cache = given.layer_cache
    integers = torch.zeros(cache.shape, dtype=torch.int8, device=cache.device)
    scales = torch.zeros(cache.shape[:-1], device=cache.device)
    heads = cache[:, :-1].flatten(1, 2)  # the last block belongs to nobody
    slots = torch.arange(heads.shape[1], device=cache.device)
    kv_write_int8(heads[0].contiguous(), heads[1].contiguous(), integers, scales, slots)
    place = given.block_tables, given.seq_lens
    found = paged_decode_int8(given.query, integers, scales, *place)
    wanted = reference.paged_decode_int8(
        given.query.cpu().double(),
        integers.cpu().double(),
        scales.cpu().double(),
        given.block_tables.cpu(),
        given.seq_lens.cpu(),
    )
    return worst(found, wanted)
