"""What every wrapper checks before a launch, so that a mistake is a ValueError and not garbage.

A GPU reads 16 bytes at once only where the compiler knows that every pointer and every stride is a
multiple of 16. If one of them is not, all loads of keys and values shrink to single elements. So a
cache must be aligned, and a query that is not is copied: it is small.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ALIGNED = 16  # bytes of a pointer; elements of a stride: what Triton calls divisible
SMALLEST_TILE = 16  # rows, columns and depth of a matrix product, at least
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
NO_WINDOW = 2**31 - 1  # tokens; wider than any context


def is_interpreting() -> bool:
    """Tell whether Triton runs kernels as plain Python, on tensors in host memory."""
    return not isinstance(tl.max, triton.JITFunction)  # settled when triton was imported


def padded(size: int) -> int:
    """Give the size of a tile that holds `size`: tiles are powers of two.

    >>> padded(3), padded(80)
    (16, 128)
    """
    return max(SMALLEST_TILE, 1 << (size - 1).bit_length())


def pipeline(tile_bytes: int) -> dict[str, int]:
    """Give warps and stages for a loop over tiles of keys and values of `tile_bytes` each.

    Blocks are found through a table, and each load of it takes up a stage, too: 5 stages on NVIDIA
    keep two pairs of tiles in flight, 3 keep one. AMD's pipeline has 2. Tiles above 16 KiB need the
    registers of 8 warps.
    """
    is_small = tile_bytes <= 16 * 1024
    stages = 2 if torch.version.hip else 5 if is_small else 3
    return {"num_warps": 4 if is_small else 8, "num_stages": stages}


def window_or_all(window: int | None) -> int:
    """Give a window in tokens that a kernel can compute with.

    Raises:
        ValueError: It is below 1.
    """
    if window is not None and window < 1:
        raise ValueError(f"a window has at least 1 token, not {window}")
    return NO_WINDOW if window is None else min(window, NO_WINDOW)


def is_aligned(tensor: Tensor) -> bool:
    """Tell whether 16 bytes at once can be read: the last dimension is dense, all else aligned."""
    strides = tensor.stride()
    return (
        strides[-1] == 1
        and tensor.data_ptr() % ALIGNED == 0
        and all(stride % ALIGNED == 0 for stride in strides[:-1])
    )


def dense_rows(tensor: Tensor) -> Tensor:
    """Give [num_tokens, heads, head_dim] with a token's heads side by side, copied if need be."""
    if is_aligned(tensor) and tensor.stride(1) == tensor.shape[2]:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def check_cache(layer_cache: Tensor, heads: Tensor) -> None:
    """Check a layer's cache against [num_tokens, heads, head_dim] that is read or written.

    Raises:
        ValueError: A kernel can't work on it; the message says why.
    """
    check_place(layer_cache)
    if layer_cache.dim() != 5 or layer_cache.shape[0] != 2:
        raise ValueError(
            "a layer's cache is [2, num_blocks, block_size, num_kv_heads, head_dim], not "
            f"{list(layer_cache.shape)}"
        )
    if heads.dim() != 3 or heads.shape[2] != layer_cache.shape[4]:
        raise ValueError(
            f"[num_tokens, heads, head_dim] is {list(heads.shape)}; the cache has "
            f"head_dim {layer_cache.shape[4]}"
        )
    if heads.dtype not in DTYPES:
        raise ValueError(f"kernels compute in fp32, fp16 or bf16, not {heads.dtype}")
    if not is_aligned(layer_cache):
        raise ValueError(
            f"the cache's strides {layer_cache.stride()} (head_dim {layer_cache.shape[4]}) and its "
            f"address must be multiples of {ALIGNED}, the last stride 1: else every load shrinks"
        )


def check_same_dtype(layer_cache: Tensor, heads: Tensor) -> None:
    """Raise ValueError where a cache keeps another dtype than what is read or written."""
    if heads.dtype != layer_cache.dtype:
        raise ValueError(f"the cache is {layer_cache.dtype}, the heads are {heads.dtype}")


def check_group(num_heads: int, num_kv_heads: int) -> int:
    """Give how many query heads share a KV head.

    Raises:
        ValueError: It is no whole number.
    """
    if num_heads % num_kv_heads:
        raise ValueError(f"{num_heads} query heads can't share {num_kv_heads} KV heads evenly")
    return num_heads // num_kv_heads


def check_place(tensor: Tensor) -> None:
    """Raise ValueError where a kernel can't reach a tensor's memory."""
    if tensor.is_cuda or is_interpreting():
        return
    raise ValueError(
        f"a Triton kernel can't run on {tensor.device}: it needs a GPU, or TRITON_INTERPRET=1 in "
        "the environment before triton is imported"
    )


def check_tables(block_tables: Tensor, seq_lens: Tensor) -> None:
    """Raise ValueError unless tables [num_seqs, max_blocks] and lengths [num_seqs] fit."""
    if block_tables.dim() != 2 or seq_lens.shape != block_tables.shape[:1]:
        raise ValueError(
            f"block tables are [num_seqs, max_blocks] and lengths [num_seqs], not "
            f"{list(block_tables.shape)} and {list(seq_lens.shape)}"
        )
    if block_tables.stride(1) != 1 or seq_lens.stride(0) != 1:
        raise ValueError("block tables and lengths must be dense in their last dimension")
