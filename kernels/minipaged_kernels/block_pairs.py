"""Which copies of whole blocks make sense: pairs (source, target), run in any order."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def check_planes(kv_cache: Tensor) -> None:
    """Raise ValueError unless a cache has blocks where they are looked for."""
    if kv_cache.dim() < 4:
        raise ValueError(f"a cache is [num_layers, 2, num_blocks, ...], not {list(kv_cache.shape)}")


def check_pairs(pairs: Sequence[tuple[int, int]], num_sources: int, num_targets: int) -> None:
    """Raise ValueError where a block isn't there, or is the target of two pairs."""
    targets = [target for _, target in pairs]
    if len(set(targets)) < len(targets):
        raise ValueError(f"a block is the target of two copies: {list(pairs)}")
    for source, target in pairs:
        if not (0 <= source < num_sources and 0 <= target < num_targets):
            raise ValueError(f"no copy {source} -> {target} among {num_sources} -> {num_targets}")


def check_independent(pairs: Sequence[tuple[int, int]]) -> None:
    """Raise ValueError where one pair's target is a source: the result depends on the order."""
    chained = {source for source, _ in pairs} & {target for _, target in pairs}
    if chained:
        raise ValueError(f"block {min(chained)} is both source and target: {list(pairs)}")
