"""Paged caches in which anything that must not be read is poison, and the right answers."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

ACCURACY = {torch.float32: 5e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
NO_BLOCK = 2**30  # in table entries beyond a context


def lengths(block_size: int) -> list[int]:
    """Contexts that end at, before and after a block's edge."""
    return [1, max(1, block_size - 1), block_size, block_size + 1, 3 * block_size + 5]


@dataclass
class Case:
    """A step: queries, the cache with all keys and values in it, and softmax attention's result."""

    query: Tensor  # [num_tokens, num_heads, head_dim]
    layer_cache: Tensor
    block_tables: Tensor
    seq_lens: Tensor
    query_start_loc: Tensor
    max_query_len: int
    expected: Tensor  # float64

    @property
    def where(self) -> tuple[Tensor, Tensor]:
        return self.block_tables, self.seq_lens

    def check(self, output: Tensor) -> None:
        assert output.dtype == self.query.dtype
        error = (output.double() - self.expected).abs().max()  # NaN compares false
        assert error < ACCURACY[self.query.dtype], error


def make_case(
    lens: Sequence[tuple[int, int]],
    block_size: int = 8,
    heads: tuple[int, int, int] = (6, 2, 64),
    window: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Case:
    """Sequences of (new tokens, context) in scrambled blocks; slots without a token are NaN."""
    num_heads, num_kv_heads, head_dim = heads
    generator = torch.Generator().manual_seed(len(lens) + block_size + head_dim)
    counts = [-(-context // block_size) for _, context in lens]
    free = list(range(sum(counts) + 3))
    random.Random(block_size).shuffle(free)
    shape = (2, len(free), block_size, num_kv_heads, head_dim)
    cache = torch.full(shape, math.nan, dtype=dtype)
    tables = torch.full((len(lens), max(counts, default=0) + 2), NO_BLOCK)
    queries, expected = [], []
    for index, (new, context) in enumerate(lens):
        key, value = torch.randn(2, context, num_kv_heads, head_dim, generator=generator).to(dtype)
        query = torch.randn(new, num_heads, head_dim, generator=generator).to(dtype)
        for entry in range(counts[index]):
            tables[index, entry] = block = free.pop()
            rows = slice(entry * block_size, (entry + 1) * block_size)
            cache[0, block, : len(key[rows])] = key[rows]
            cache[1, block, : len(key[rows])] = value[rows]
        queries.append(query)
        expected.append(softmax_attention(query, key, value, window))
    new_lens = [new for new, _ in lens]
    return Case(
        query=torch.cat(queries),
        layer_cache=cache,
        block_tables=tables,
        seq_lens=torch.tensor([context for _, context in lens]),
        query_start_loc=torch.tensor([0, *new_lens]).cumsum(0),
        max_query_len=max(new_lens),
        expected=torch.cat(expected),
    )


def decodes(*contexts: int) -> list[tuple[int, int]]:
    return [(1, context) for context in contexts]


def softmax_attention(query: Tensor, key: Tensor, value: Tensor, window: int | None) -> Tensor:
    """One sequence in float64, all scores at once."""
    query, key, value = query.double(), key.double(), value.double()
    group = query.shape[1] // key.shape[1]
    key, value = (heads.repeat_interleave(group, dim=1) for heads in (key, value))
    scores = torch.einsum("qhd,thd->hqt", query, key) / math.sqrt(query.shape[2])
    positions = torch.arange(len(key))
    age = positions[len(key) - len(query) :, None] - positions
    hidden = (age < 0) | (age >= (window or len(key)))
    return torch.einsum("hqt,thd->qhd", scores.masked_fill(hidden, -math.inf).softmax(-1), value)
