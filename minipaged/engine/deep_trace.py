"""Deep traces: where each sequence's newest token looked, block by block.

`AttentionRecorder` stands before an attention backend. The backend attends; the recorder then works
the weights of each sequence's last query out once more, from the keys in the paged cache: plain and
slow. Without it a step has nothing to do with any of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from minipaged.engine.attention import AttentionBackend, AttentionMetadata, AttentionPlan
from minipaged.errors import ConfigError
from minipaged.memory.block_table import blocks_for
from minipaged.memory.events import MEAN_OF_HEADS, Attended, short
from minipaged.models.config import ModelConfig


@dataclass(frozen=True)
class DeepTrace:
    """What a deep trace records beside the events, and the file that it is written to, if any.

    A negative layer counts from the last one. `heads` are query heads; without them the mean of all
    is recorded.
    """

    layers: Sequence[int] = (-1,)
    heads: Sequence[int] = ()
    path: str | Path | None = None

    def recorder(self, config: ModelConfig, backend: AttentionBackend) -> AttentionRecorder:
        """Stand a recorder before a backend.

        Raises:
            ConfigError: The model has no such layer or head.
        """
        layers = [_index("layer", layer, config.num_layers) for layer in self.layers]
        heads = [_index("head", head, config.num_heads) for head in self.heads]
        return AttentionRecorder(backend, layers, heads)


class AttentionRecorder:
    """An attention backend that remembers, for one step, the share of each block in attention."""

    def __init__(self, backend: AttentionBackend, layers: list[int], heads: list[int]) -> None:
        self._backend, self._layers, self._heads = backend, layers, heads
        self._shares: dict[int, list[Tensor]] = {}

    def plan(
        self, metadata: AttentionMetadata, kv_cache: Tensor, num_heads: int, window: int | None
    ) -> AttentionPlan:
        """Let the backend plan, and look over its shoulder in the chosen layers."""
        attend = self._backend.plan(metadata, kv_cache, num_heads, window)

        def attend_and_record(
            query: Tensor, key: Tensor, value: Tensor, layer_cache: Tensor
        ) -> Tensor:
            output = attend(query, key, value, layer_cache)
            layer = layer_cache.storage_offset() // kv_cache.stride(0)
            if layer in self._layers:
                self._shares[layer] = last_query_shares(query, layer_cache[0], metadata, window)
            return output

        return attend_and_record

    def take(self, seqs: Sequence[int]) -> list[Attended]:
        """Give the last step's events, and forget them. `seqs` computed in it, in this order."""
        shares, self._shares = self._shares, {}
        return [
            Attended(seq, layer, head, tuple(to_permille(row)))
            for place, seq in enumerate(seqs)
            for layer in sorted(shares)
            for head, row in self._rows(shares[layer][place])
            if isfinite(sum(row))  # a model whose numbers overflowed looks nowhere
        ]

    def _rows(self, shares: Tensor) -> list[tuple[int, list[float]]]:
        """Give the chosen heads with their shares, out of [num_heads, num_blocks]."""
        if not self._heads:
            return [(MEAN_OF_HEADS, shares.mean(dim=0).tolist())]
        return [(head, shares[head].tolist()) for head in self._heads]


def last_query_shares(
    query: Tensor, keys: Tensor, metadata: AttentionMetadata, window: int | None
) -> list[Tensor]:
    """Sum the attention weights of each sequence's last query by block.

    Args:
        query: [num_tokens, num_heads, head_dim], rotated.
        keys: [num_blocks, block_size, num_kv_heads, head_dim], the layer's cache of keys.
        metadata: Lengths and block tables.
        window: A query at position p sees positions above p - window; None: all up to p.

    Returns:
        For each sequence fp32 [num_heads, blocks of its context].
    """
    block_size, shares = keys.shape[1], []
    last = metadata.query_start_loc[1:].tolist()
    for seq, seq_len in enumerate(metadata.seq_lens_list):
        num_blocks = blocks_for(seq_len, block_size)
        context = keys[metadata.block_tables[seq, :num_blocks]].flatten(0, 1)[:seq_len]
        weights = attention_weights(query[last[seq] - 1], context, window)
        padded = functional.pad(weights, (0, num_blocks * block_size - seq_len))
        shares.append(padded.view(len(weights), num_blocks, block_size).sum(dim=2))
    return shares


def attention_weights(query: Tensor, keys: Tensor, window: int | None = None) -> Tensor:
    """Give softmax(q k^T / sqrt(head_dim)) for the query at the end of a context.

    `query` is [num_heads, head_dim], `keys` [context, num_kv_heads, head_dim]; the result is fp32
    [num_heads, context].
    """
    num_heads, head_dim = query.shape
    keys = keys.float().repeat_interleave(num_heads // keys.shape[1], dim=1)
    scores = torch.einsum("hd,chd->hc", query.float(), keys) / sqrt(head_dim)
    if window is not None:
        scores[:, : max(len(keys) - window, 0)] = float("-inf")
    return scores.softmax(dim=1)


def to_permille(shares: Sequence[float]) -> list[int]:
    """Round shares of 1 to integers that add up to 1000: the largest remainders are rounded up.

    >>> to_permille([1 / 3, 1 / 3, 1 / 3])
    [334, 333, 333]
    """
    scaled = [1000 * share / sum(shares) for share in shares]
    permille = [int(share) for share in scaled]
    by_remainder = sorted(range(len(scaled)), key=lambda i: permille[i] - scaled[i])
    for index in by_remainder[: 1000 - sum(permille)]:
        permille[index] += 1
    return permille


def _index(name: str, index: int, count: int) -> int:
    if type(index) is not int or not -count <= index < count:
        raise ConfigError(f"a deep trace of {name} {short(index)}: the model has {count} of them")
    return index % count
