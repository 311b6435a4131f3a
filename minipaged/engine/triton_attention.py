"""Attention by the Triton kernels: on a GPU, or step by step in Triton's interpreter.

A step in which every sequence has one new token is a decode; anything else is a packed batch for
`paged_prefill`. The kernels are imported here alone, and only when one of these backends is used:
machines without Triton use the others.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from minipaged.errors import ConfigError

if TYPE_CHECKING:
    from minipaged.engine.attention import AttentionBackend, AttentionMetadata, AttentionPlan

Attend: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # (query, layer_cache) -> output


def has_triton() -> bool:
    """Tell whether Triton is installed; it is not imported."""
    return importlib.util.find_spec("triton") is not None


class TritonBackend:
    """Attend by kernels; a cache that they can't read goes to `otherwise`, if there is one."""

    def __init__(self, otherwise: AttentionBackend | None = None) -> None:
        self.otherwise = otherwise

    def plan(
        self, metadata: AttentionMetadata, kv_cache: Tensor, num_heads: int, window: int | None
    ) -> AttentionPlan:
        """Choose the kernel for this step.

        Raises:
            ConfigError: The kernels can't read this cache.
        """
        problem = unreadable(kv_cache)
        if problem and self.otherwise is not None:
            return self.otherwise.plan(metadata, kv_cache, num_heads, window)
        if problem:
            raise ConfigError(f'{problem}: choose attention="sdpa"')
        is_decode = all(count == 1 for count in metadata.query_lens)
        attend = decode(metadata, kv_cache, window) if is_decode else prefill(metadata, window)
        return partial(write_and_attend, metadata.slot_mapping, attend)


def unreadable(kv_cache: Tensor) -> str | None:
    """Tell why the kernels can't read a cache; None: they can."""
    from minipaged_kernels.launch import ALIGNED

    head_dim = kv_cache.shape[5]
    if head_dim % ALIGNED == 0:
        return None
    return f"the kernels need a head_dim that is a multiple of {ALIGNED}, not {head_dim}"


def decode(metadata: AttentionMetadata, kv_cache: Tensor, window: int | None) -> Attend:
    """Give the decode kernel for this batch: split, where programs would be too few."""
    from minipaged_kernels import paged_decode_split_kv as split
    from minipaged_kernels.paged_decode import LARGEST_TILE, paged_decode, tile_bytes

    tables, seq_lens = metadata.block_tables, metadata.seq_lens
    splits = split.splits_for(kv_cache[0], tables, window)
    fits = tile_bytes(kv_cache[0], kv_cache.element_size()) <= LARGEST_TILE
    kernel = paged_decode if fits else split.paged_decode_split_kv
    if splits > 1:
        kernel = partial(split.paged_decode_split_kv, num_splits=splits)
    return partial(kernel, block_tables=tables, seq_lens=seq_lens, window=window)


def prefill(metadata: AttentionMetadata, window: int | None) -> Attend:
    """Give the kernel for sequences with any number of new tokens."""
    from minipaged_kernels.paged_prefill import paged_prefill

    return partial(
        paged_prefill,
        block_tables=metadata.block_tables,
        seq_lens=metadata.seq_lens,
        query_start_loc=metadata.query_start_loc,
        max_query_len=max(metadata.query_lens),
        window=window,
    )


def write_and_attend(
    slot_mapping: Tensor,
    attend: Attend,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    layer_cache: Tensor,
) -> Tensor:
    """Write a layer's new keys and values, then attend: what a plan does."""
    from minipaged_kernels.kv_write import kv_write

    with torch.cuda.device(query.get_device()):  # where kernels start; -1, the CPU, changes nothing
        kv_write(key, value, layer_cache, slot_mapping)
        return attend(query, layer_cache)


def triton_backend(device: torch.device) -> TritonBackend:
    """Give the backend for a GPU.

    Raises:
        ConfigError: Triton isn't installed, or the device is none of its GPUs.
    """
    _require_triton("triton")
    if device.type != "cuda":
        raise ConfigError(
            f'attention="triton" needs a GPU, not {device}; "triton-interpret" runs the same '
            "kernels here, slowly"
        )
    return TritonBackend()


def interpreting_backend(device: torch.device) -> TritonBackend:
    """Give the backend that runs the kernels as plain Python, for tests and lessons.

    Raises:
        ConfigError: Triton isn't installed, or was imported to compile.
    """
    _require_triton("triton-interpret")
    from minipaged_kernels.launch import is_interpreting

    if not is_interpreting():
        raise ConfigError(
            'attention="triton-interpret" needs TRITON_INTERPRET=1 in the environment before '
            "triton is imported: set it and start Python anew"
        )
    if device.type != "cpu":
        raise ConfigError(f'attention="triton-interpret" runs on the CPU, not on {device}')
    from minipaged_kernels.interpreter import cure_bf16

    cure_bf16()
    return TritonBackend()


def _require_triton(name: str) -> None:
    if not has_triton():
        raise ConfigError(
            f'attention="{name}" needs Triton, which is not installed '
            "(on Linux: pip install triton); others need nothing"
        )
