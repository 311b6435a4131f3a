"""Move blocks between a GPU's memory and the host's: batched, in torch.

A transfer between the two costs microseconds before its first byte, so blocks do not go one by one:
they are gathered side by side, cross in one transfer, and are put into their places.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from minipaged_kernels.block_pairs import check_pairs, check_planes


def swap_blocks(
    source_cache: Tensor, target_cache: Tensor, pairs: Sequence[tuple[int, int]]
) -> None:
    """Copy blocks, (source, target), from one cache to another, in all layers.

    Both are [num_layers, 2, num_blocks, ...], one on the host or both. Mutates `target_cache`.

    Raises:
        ValueError: Blocks of the two differ, one isn't there, or is the target of two pairs.
    """
    check_planes(source_cache)
    check_same_blocks(source_cache, target_cache)
    check_pairs(pairs, source_cache.shape[2], target_cache.shape[2])
    if not pairs:
        return
    sources, targets = torch.tensor(pairs).unbind(1)
    gathered = source_cache.index_select(2, sources.to(source_cache.device))
    crossed = gathered.to(target_cache.device)
    target_cache.index_copy_(2, targets.to(target_cache.device), crossed)


def check_same_blocks(source_cache: Tensor, target_cache: Tensor) -> None:
    """Raise ValueError where the blocks of two caches differ in shape or dtype."""
    source, target = (
        (cache.dtype, cache.shape[:2], cache.shape[3:]) for cache in (source_cache, target_cache)
    )
    if source != target:
        raise ValueError(
            f"blocks differ: {source_cache.dtype} {list(source_cache.shape)} and "
            f"{target_cache.dtype} {list(target_cache.shape)}"
        )
