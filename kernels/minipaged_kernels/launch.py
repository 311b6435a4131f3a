"""What every wrapper checks before a launch, so that a mistake is a ValueError and not garbage.

A GPU reads 16 bytes at once only where the compiler knows that every pointer and every stride is a
multiple of 16. If one of them is not, all loads of keys and values shrink to single elements. So a
cache must be aligned, and a query that is not is copied: it is small.

What tables, lengths, starts and slots hold is not checked: the host would wait for the GPU. A block
that is not there reads or writes other memory. `recorder.record` finds such a mistake.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

ALIGNED = 16  # bytes of a pointer; elements of a stride: what Triton calls divisible
SMALLEST_TILE = 16  # rows, columns and depth of a matrix product, at least
SMALL_TILE = 16 * 1024  # bytes
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
INDEX_DTYPES = (torch.int32, torch.int64)
NO_WINDOW = 2**31 - 1  # tokens; wider than any context
LARGEST_BLOCK = (
    2**31 - 1
)  # elements from a block's first to its last: kernels count them in 32 bits


def is_interpreting() -> bool:
    """Tell whether Triton runs kernels as plain Python, on tensors in host memory."""
    return not isinstance(tl.max, triton.JITFunction)  # settled when triton was imported


def is_amd() -> bool:
    """Tell whether GPUs here are AMD's."""
    return torch.version.hip is not None


def padded(size: int) -> int:
    """Give the size of a tile that holds `size`: tiles are powers of two.

    >>> padded(3), padded(80)
    (16, 128)
    """
    return max(SMALLEST_TILE, 1 << (size - 1).bit_length())


def tile_tokens(head_dim: int, element_bytes: int) -> int:
    """Give how many tokens a tile of keys has that takes 16 KiB, but at most 128.

    >>> tile_tokens(head_dim=128, element_bytes=2), tile_tokens(head_dim=64, element_bytes=4)
    (64, 64)
    """
    return max(SMALLEST_TILE, min(128, SMALL_TILE // (padded(head_dim) * element_bytes)))


def pipeline(tile_bytes: int) -> dict[str, int]:
    """Give warps and stages for a loop over tiles of keys and values of `tile_bytes` each.

    Blocks are found through a table, and each load of it takes up a stage, too: 5 stages on NVIDIA
    keep two pairs of tiles in flight, 3 keep one. Larger tiles need the registers of 8 warps. On
    AMD a warp has more registers, and the pipeline 2 stages.
    """
    if is_amd():
        return {"num_warps": 4, "num_stages": 2}
    if tile_bytes <= SMALL_TILE:
        return {"num_warps": 4, "num_stages": 5}
    return {"num_warps": 8, "num_stages": 3}


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
    if heads.shape[1] < 1 or min(layer_cache.shape[2:]) < 1:
        raise ValueError(f"no heads or slots: {list(heads.shape)}, {list(layer_cache.shape)}")
    check_together(layer_cache, heads)
    if heads.dtype not in DTYPES:
        raise ValueError(f"kernels compute in fp32, fp16 or bf16, not {heads.dtype}")
    if not is_aligned(layer_cache):
        raise ValueError(
            f"the cache's strides {layer_cache.stride()} (head_dim {layer_cache.shape[4]}) and its "
            f"address must be multiples of {ALIGNED}, the last stride 1: else every load shrinks"
        )
    span = sum((layer_cache.shape[i] - 1) * layer_cache.stride(i) for i in (2, 3, 4))
    if span > LARGEST_BLOCK:
        raise ValueError(f"a block reaches over {span} elements, above {LARGEST_BLOCK}")


def check_together(layer_cache: Tensor, *others: Tensor) -> None:
    """Raise ValueError where a tensor is not on the cache's device."""
    for other in others:
        if other.device != layer_cache.device:
            raise ValueError(
                f"the cache is on {layer_cache.device}, {list(other.shape)} on {other.device}"
            )


def check_indices(layer_cache: Tensor, **tensors: Tensor) -> None:
    """Raise ValueError unless these are integers a kernel can read one after another."""
    for name, indices in tensors.items():
        check_together(layer_cache, indices)
        if indices.dtype not in INDEX_DTYPES:
            raise ValueError(f"{name} must be int32 or int64, not {indices.dtype}")
        if indices.shape[-1] > 1 and indices.stride(-1) != 1:
            raise ValueError(f"{name} must be dense in the last dimension: {indices.stride()}")


def check_same_dtype(layer_cache: Tensor, heads: Tensor) -> None:
    """Raise ValueError where a cache keeps another dtype than what is read or written."""
    if heads.dtype != layer_cache.dtype:
        raise ValueError(f"the cache is {layer_cache.dtype}, the heads are {heads.dtype}")


def check_scales(layer_cache: Tensor, layer_scales: Tensor) -> None:
    """Raise ValueError unless a cache is int8 and has one fp32 scale a token and KV head."""
    check_together(layer_cache, layer_scales)
    if layer_cache.dtype != torch.int8 or layer_scales.dtype != torch.float32:
        raise ValueError(
            f"the cache must be int8 and its scales fp32, not {layer_cache.dtype} and "
            f"{layer_scales.dtype}"
        )
    if layer_scales.shape != layer_cache.shape[:4] or layer_scales.stride(3) != 1:
        raise ValueError(
            f"scales are {list(layer_cache.shape[:4])} and dense, not {list(layer_scales.shape)} "
            f"with strides {layer_scales.stride()}"
        )


def check_place(tensor: Tensor) -> None:
    """Raise ValueError where a kernel can't reach a tensor's memory."""
    if tensor.is_cuda or (tensor.is_cpu and is_interpreting()):
        return
    raise ValueError(
        f"a Triton kernel can't run on {tensor.device}: it needs a GPU, or TRITON_INTERPRET=1 in "
        "the environment before triton is imported"
    )


def check_tables(layer_cache: Tensor, block_tables: Tensor, seq_lens: Tensor) -> None:
    """Raise ValueError unless tables [num_seqs, max_blocks] and lengths [num_seqs] fit."""
    if block_tables.dim() != 2 or seq_lens.shape != block_tables.shape[:1]:
        raise ValueError(
            "block tables are [num_seqs, max_blocks] and lengths [num_seqs], not "
            f"{list(block_tables.shape)} and {list(seq_lens.shape)}"
        )
    check_indices(layer_cache, block_tables=block_tables, seq_lens=seq_lens)


def check_one_query_each(query: Tensor, seq_lens: Tensor) -> None:
    """Raise ValueError unless each sequence has one query, as in decode."""
    if len(query) != len(seq_lens):
        raise ValueError(f"{len(seq_lens)} sequences decode {len(query)} queries: one each, please")


def attention_arguments(
    query: Tensor, layer_cache: Tensor, block_tables: Tensor, seq_lens: Tensor, window: int | None
) -> dict[str, Any]:
    """Check what every attention kernel takes, and give it by the kernels' names of it.

    Under "output" is new memory for the result. Tiles and pipelines are each kernel's own business.

    Raises:
        ValueError: Shapes, dtypes or strides don't fit.
    """
    check_cache(layer_cache, query)
    check_tables(layer_cache, block_tables, seq_lens)
    _, _, block_size, num_kv_heads, head_dim = layer_cache.shape
    if query.shape[1] % num_kv_heads:
        raise ValueError(f"{query.shape[1]} query heads can't share {num_kv_heads} KV heads evenly")
    query = dense_rows(query)
    output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    return {
        "output": output,
        "query": query,
        "key_cache": layer_cache[0],
        "value_cache": layer_cache[1],
        "block_tables": block_tables,
        "seq_lens": seq_lens,
        "scale": 1 / math.sqrt(head_dim),
        "window": window_or_all(window),
        "stride_output": output.stride(0),
        "stride_query": query.stride(0),
        "stride_block": layer_cache.stride(1),
        "stride_slot": layer_cache.stride(2),
        "stride_head": layer_cache.stride(3),
        "stride_table": block_tables.stride(0),
        "BLOCK_SIZE": block_size,
        "GROUP": query.shape[1] // num_kv_heads,
        "HEAD_DIM": head_dim,
        "DIMS": padded(head_dim),
    }
