"""The KV cache itself: one tensor, and what is done to whole blocks of it.

`kv_cache` is `[num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim]`. A token's row is
contiguous, so a write is one row; and all layers of a block are copied or swapped by one operation.
Who owns which block is the business of `minipaged.memory`: here are only bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from minipaged_kernels import swap
from torch import Tensor

from minipaged.engine.triton_attention import has_triton
from minipaged.errors import ConfigError
from minipaged.models.config import ModelConfig


def allocate(
    config: ModelConfig,
    num_blocks: int,
    block_size: int,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Allocate the cache, filled with zeros.

    Zeros and not garbage: padded table entries are read before they are masked, and a NaN survives
    a mask.

    Raises:
        ConfigError: A size is below 1.
    """
    if num_blocks < 1 or block_size < 1:
        raise ConfigError(f"a KV cache needs blocks: {num_blocks=}, {block_size=}, at least 1 each")
    shape = (config.num_layers, 2, num_blocks, block_size, config.num_kv_heads, config.head_dim)
    return torch.zeros(shape, dtype=dtype, device=device)


def bytes_per_block(config: ModelConfig, block_size: int, dtype: torch.dtype) -> int:
    """Give the bytes that one block takes, K and V of all layers together.

    >>> from minipaged.models.config import ModelConfig
    >>> opt_13b = ModelConfig("llama", 1, 5120, 1, 40, 40, 40, 128, 2048, 1e-5, 10000.0, False)
    >>> bytes_per_block(opt_13b, block_size=1, dtype=torch.float16) // 1024
    800
    """
    return config.kv_elements_per_token * block_size * dtype.itemsize


def blocks_within(
    memory_bytes: int, config: ModelConfig, block_size: int, dtype: torch.dtype
) -> int:
    """Give how many blocks fit into `memory_bytes`.

    Raises:
        ConfigError: Not even one does.
    """
    size = bytes_per_block(config, block_size, dtype)
    if memory_bytes < size:
        raise ConfigError(f"{memory_bytes} bytes hold no KV block: one takes {size} bytes")
    return memory_bytes // size


def copy_blocks(kv_cache: Tensor, pairs: Sequence[tuple[int, int]]) -> None:
    """Copy block to block, (source, target), in all layers; mutates `kv_cache`.

    No target may be another pair's source or target: the result would depend on the order.
    """
    if not pairs:
        return
    sources, targets = _independent(pairs)
    if kv_cache.is_cuda and has_triton():
        from minipaged_kernels import copy_blocks as kernel

        with torch.cuda.device(kv_cache.device):
            kernel.copy_blocks(kv_cache, pairs)
    else:
        kv_cache[:, :, targets] = kv_cache[:, :, sources]


def swap_blocks(
    source_cache: Tensor, target_cache: Tensor, pairs: Sequence[tuple[int, int]]
) -> None:
    """Copy blocks, (source, target), between the device's and a swap cache; mutates the target."""
    swap.swap_blocks(source_cache, target_cache, pairs)


def _independent(pairs: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    sources = [source for source, _ in pairs]
    targets = [target for _, target in pairs]
    assert len(set(targets)) == len(targets), f"a block is the target of two copies: {pairs}"
    assert not set(targets) & set(sources), f"a block is both source and target: {pairs}"
    return sources, targets
