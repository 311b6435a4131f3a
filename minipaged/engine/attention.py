"""Attention over a paged KV cache: what a step's tokens are, and the backends that attend.

One rule covers prefill, chunked prefill, cached prefixes and decode: a query at position p sees the
positions up to p (and above p - window). A backend is chosen by name. Once a step (and for each
window that the model has) it plans; the plan is then called once a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import torch
from minipaged_kernels import reference
from torch import Tensor

from minipaged.engine import triton_attention
from minipaged.engine.attention_math import SDPA, Matmul
from minipaged.engine.gather_attention import GatherBackend
from minipaged.errors import ConfigError


@dataclass(frozen=True)
class AttentionMetadata:
    """Which token belongs to which sequence, and where each sequence's context lies."""

    query_start_loc: Tensor  # [num_seqs + 1]: where each sequence's tokens start
    seq_lens: Tensor  # [num_seqs]: each context's length, this step's tokens included
    block_tables: Tensor  # [num_seqs, max_blocks]: physical blocks; rows are padded with block 0
    slot_mapping: Tensor  # [num_tokens]: where each token's K and V go; -1: nowhere
    query_lens: list[int]  # [num_seqs]: this step's tokens
    seq_lens_list: list[int]  # seq_lens for Python


def build_metadata(
    query_lens: Sequence[int],
    seq_lens: Sequence[int],
    block_tables: Sequence[Sequence[int]],
    slot_mapping: Sequence[int],
    device: torch.device | str = "cpu",
) -> AttentionMetadata:
    """Describe a step: sequence i computes its last `query_lens[i]` of `seq_lens[i]` tokens.

    >>> metadata = build_metadata([3, 1], [3, 6], [[7], [2, 9]], [28, 29, 30, 37])
    >>> metadata.query_start_loc.tolist(), metadata.block_tables.tolist()
    ([0, 3, 4], [[7, 0], [2, 9]])
    """
    assert len(query_lens) == len(seq_lens) == len(block_tables), "one entry a sequence"
    assert sum(query_lens) == len(slot_mapping), "one slot a token"
    width = max(map(len, block_tables), default=0)
    padded = [[*table, *[0] * (width - len(table))] for table in block_tables]

    def tensor(values: object) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    return AttentionMetadata(
        query_start_loc=tensor([0, *accumulate(query_lens)]),
        seq_lens=tensor(list(seq_lens)),
        block_tables=tensor(padded),
        slot_mapping=tensor(list(slot_mapping)),
        query_lens=list(query_lens),
        seq_lens_list=list(seq_lens),
    )


class AttentionPlan(Protocol):
    """What one step's attention does in every layer."""

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, layer_cache: Tensor) -> Tensor:
        """Write the new keys and values, then attend from the new queries.

        Args:
            query: [num_tokens, num_heads, head_dim].
            key: [num_tokens, num_kv_heads, head_dim], to be written into the slots; so is `value`.
            value: [num_tokens, num_kv_heads, head_dim].
            layer_cache: [2, num_blocks, block_size, num_kv_heads, head_dim]; mutated.

        Returns:
            [num_tokens, num_heads, head_dim].
        """


class AttentionBackend(Protocol):
    """One way to attend: a GPU's kernel, or plain torch."""

    def plan(
        self, metadata: AttentionMetadata, kv_cache: Tensor, num_heads: int, window: int | None
    ) -> AttentionPlan:
        """Prepare what all layers with this window share in a step; `kv_cache` tells its shape."""


def get_attention_backend(name: str, device: torch.device | str) -> AttentionBackend:
    """Choose a backend by name.

    "triton" runs the kernels on a GPU, "triton-interpret" the same in Triton's interpreter, slowly;
    "sdpa" and "matmul" look up whole contexts, then use torch's attention or plain matrix products;
    "reference" goes block by block. "auto" is the fastest on the device: kernels on a GPU that has
    Triton, else the faster of "sdpa" and "matmul".

    Raises:
        ConfigError: There is none of that name, or it can't run here.
    """
    device = torch.device(device)
    backends: dict[str, Callable[[], AttentionBackend]] = {
        "auto": lambda: auto_backend(device),
        "triton": lambda: triton_attention.triton_backend(device),
        "triton-interpret": lambda: triton_attention.interpreting_backend(device),
        "sdpa": lambda: GatherBackend(SDPA()),
        "matmul": lambda: GatherBackend(Matmul()),
        "reference": ReferenceBackend,
    }
    if name not in backends:
        raise ConfigError(
            f"no attention backend {name!r} for {device}: choose from {', '.join(backends)}"
        )
    return backends[name]()


def auto_backend(device: torch.device) -> AttentionBackend:
    """Give the fastest backend; on a GPU, caches that the kernels can't read go to torch."""
    if device.type == "cuda" and triton_attention.has_triton():
        return triton_attention.TritonBackend(otherwise=GatherBackend())
    return GatherBackend()


class ReferenceBackend:
    """The kernels' readable twins: one sequence and one block at a time."""

    def plan(
        self, metadata: AttentionMetadata, kv_cache: Tensor, num_heads: int, window: int | None
    ) -> AttentionPlan:
        """Plan nothing: the reference works everything out in each layer."""

        def attend(query: Tensor, key: Tensor, value: Tensor, layer_cache: Tensor) -> Tensor:
            reference.kv_write(key, value, layer_cache, metadata.slot_mapping)
            return reference.paged_attention(
                query,
                layer_cache,
                metadata.block_tables,
                metadata.seq_lens,
                metadata.query_start_loc,
                window,
            )

        return attend
