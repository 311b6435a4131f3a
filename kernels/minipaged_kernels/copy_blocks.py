"""Copy whole blocks in all layers at once: what copy-on-write asks for.

A cache is `planes` of blocks, the keys and the values of each layer, and a block copies the same
way in all of them. So all copies of a step are one launch: a program copies a piece of one block in
one plane. Programs run in any order; a block that is read in one copy and written in another would
get what happens to come first, so such pairs are refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from minipaged_kernels.block_pairs import check_independent, check_pairs, check_planes
from minipaged_kernels.launch import check_place

TILE = 1024  # elements a program; with fewer, loads are narrower than 16 bytes


@triton.jit
def copy_blocks_kernel(
    cache,  # [planes, num_blocks, elements of a block]
    pairs,  # [num_pairs, 2]: source and target
    stride_plane,
    stride_block,
    BLOCK_ELEMENTS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Copy one piece of one block in one plane."""
    pair = tl.program_id(0)
    plane = tl.program_id(1).to(tl.int64)
    source = tl.load(pairs + 2 * pair).to(tl.int64)
    target = tl.load(pairs + 2 * pair + 1).to(tl.int64)
    elements = tl.program_id(2) * TILE + tl.arange(0, TILE)
    mask = elements < BLOCK_ELEMENTS

    here = cache + plane * stride_plane + elements
    piece = tl.load(here + source * stride_block, mask=mask, other=0)
    tl.store(here + target * stride_block, piece, mask=mask)


def copy_blocks(kv_cache: Tensor, pairs: Sequence[tuple[int, int]]) -> None:
    """Copy block to block, (source, target), in all layers.

    Mutates `kv_cache` [num_layers, 2, num_blocks, ...]: keys and values, or their scales.

    Raises:
        ValueError: The result would depend on the order, a block isn't there, or memory has gaps.
    """
    check_place(kv_cache)
    check_planes(kv_cache)
    check_pairs(pairs, kv_cache.shape[2], kv_cache.shape[2])
    check_independent(pairs)
    if not kv_cache.is_contiguous():
        raise ValueError(f"the cache must be contiguous, its strides are {kv_cache.stride()}")
    if not pairs:
        return
    planes = kv_cache.flatten(0, 1).flatten(2)  # [planes, num_blocks, elements of a block]
    block_elements = planes.shape[2]
    grid = (len(pairs), planes.shape[0], triton.cdiv(block_elements, TILE))
    copy_blocks_kernel[grid](
        cache=planes,
        pairs=torch.tensor(pairs, dtype=torch.int64, device=kv_cache.device),
        stride_plane=planes.stride(0),
        stride_block=planes.stride(1),
        BLOCK_ELEMENTS=block_elements,
        TILE=TILE,
        num_warps=4,
    )
