"""Inputs for the kernels: caches of any shape, with blocks in order or scattered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Heads(NamedTuple):
    """The shape of one layer's attention."""

    num_heads: int
    num_kv_heads: int
    head_dim: int


LLAMA_3_8B = Heads(32, 8, 128)


@dataclass(frozen=True)
class Context:
    """Sequences whose keys and values lie in a cache, and a query for each of their new tokens.

    `query` is [num_tokens, num_heads, head_dim], `layer_cache` [2, num_blocks, block_size,
    num_kv_heads, head_dim]; blocks that nobody owns are NaN.
    """

    query: Tensor
    layer_cache: Tensor
    block_tables: Tensor
    seq_lens: Tensor
    query_start_loc: Tensor
    max_query_len: int

    @property
    def kv_bytes(self) -> int:
        """Give the bytes of keys and values that attention must read."""
        row = self.layer_cache[:, 0, 0].numel() * self.layer_cache.element_size()
        return int(self.seq_lens.sum()) * row


def context(
    heads: Heads,
    seq_lens: list[int],
    block_size: int,
    dtype: torch.dtype,
    device: torch.device,
    query_lens: list[int] | None = None,
    scattered: bool = True,
) -> Context:
    """Give random sequences. Scattered blocks are in random order; others lie side by side."""
    query_lens = query_lens or [1] * len(seq_lens)
    counts = [-(-length // block_size) for length in seq_lens]
    generator = torch.Generator(device).manual_seed(0)
    num_blocks = sum(counts)
    shape = (2, num_blocks + 1, block_size, heads.num_kv_heads, heads.head_dim)
    cache = torch.randn(shape, dtype=dtype, device=device, generator=generator)
    cache[:, num_blocks] = torch.nan
    order = torch.arange(num_blocks, device=device)
    if scattered:
        order = torch.randperm(num_blocks, device=device, generator=generator)
    tables = torch.full((len(counts), max(counts)), num_blocks, device=device)
    for row, blocks in zip(tables, torch.split(order, counts), strict=True):
        row[: len(blocks)] = blocks
    query_shape = (sum(query_lens), heads.num_heads, heads.head_dim)
    return Context(
        query=torch.randn(query_shape, dtype=dtype, device=device, generator=generator),
        layer_cache=cache,
        block_tables=tables,
        seq_lens=torch.tensor(seq_lens, device=device),
        query_start_loc=torch.tensor([0, *query_lens], device=device).cumsum(0),
        max_query_len=max(query_lens),
    )
