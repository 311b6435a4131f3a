"""Attention in plain torch: gather a context's blocks into one piece, then attend to it.

A step is cut into passes. A sequence with several new tokens (a prefill, or a chunk of one) is a
pass of its own, slice by slice of its queries: so scores stay in the processor's cache, and hardly
any are computed for the future. Sequences with one new token (decodes) share a pass with others of
like length. All that is the same in every layer (what to gather, who sees what) is worked out once
a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from minipaged.engine.dense_attention import DenseAttention, fastest

if TYPE_CHECKING:
    from minipaged.engine.attention import AttentionMetadata, AttentionPlan

SLICE_QUERIES = 128  # queries a slice; 64 and 256 were slower on CPUs
PASS_WORTH = 4096  # padded tokens whose cost is that of another pass
PASS_TOKENS = 2**16  # the most that a pass gathers, so that it needs little memory


class GatherBackend:
    """Gather, then attend as `dense` does; None: as is fastest for the cache's dtype and device."""

    def __init__(self, dense: DenseAttention | None = None) -> None:
        self.dense = dense

    def plan(
        self, metadata: AttentionMetadata, kv_cache: Tensor, window: int | None
    ) -> AttentionPlan:
        """Cut the step into passes, and work out what each of them gathers and sees."""
        dense = self.dense or fastest(kv_cache.dtype, kv_cache.device)
        planner = _Planner(metadata, kv_cache, window, dense)
        decodes = [seq for seq, count in enumerate(metadata.query_lens) if count == 1]
        others = [seq for seq, count in enumerate(metadata.query_lens) if count > 1]
        passes: list[_Pass] = [planner.sequence_pass(seq) for seq in others]
        passes += map(planner.decode_pass, like_lengths(decodes, metadata.seq_lens_list))
        return _GatherPlan(*written(metadata.slot_mapping), passes)


def like_lengths(seqs: Sequence[int], lengths: Sequence[int]) -> list[list[int]]:
    """Put sequences of like length together, as all are padded to the longest of them.

    >>> like_lengths([0, 1, 2, 3], lengths=[30, 2900, 40, 2800])
    [[1, 3], [0, 2]]
    """
    groups: list[list[int]] = []
    longest_first = sorted(seqs, key=lambda seq: -lengths[seq])
    longest: float = inf
    for done, seq in enumerate(longest_first):
        padding = (longest - lengths[seq]) * (len(seqs) - done)
        full = bool(groups) and (len(groups[-1]) + 1) * longest > PASS_TOKENS
        if padding > PASS_WORTH or full:
            groups.append([])
            longest = lengths[seq]
        groups[-1].append(seq)
    return [sorted(group) for group in groups]


def written(slot_mapping: Tensor) -> tuple[Tensor, Tensor | None]:
    """Give the slots that are written, and the tokens that go there; None: all, in order."""
    wanted = slot_mapping >= 0
    if bool(wanted.all()):
        return slot_mapping, None
    tokens = wanted.nonzero().squeeze(1)
    return slot_mapping[tokens], tokens


def gather(layer_cache: Tensor, rows: Tensor) -> Tensor:
    """Copy the K and V of blocks into one piece each: [2, tokens, num_kv_heads, head_dim].

    `rows` counts blocks in the cache seen as [2 * num_blocks, ...], K's and then V's: one copy.
    """
    by_block = layer_cache.view(-1, layer_cache[0, 0].numel())
    return by_block.index_select(0, rows).view(2, -1, *layer_cache.shape[3:])


class _Pass(Protocol):
    @property
    def rows(self) -> slice | Tensor:
        """Which of the step's tokens it attends from."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layer_cache: Tensor) -> Tensor:
        """Attend from these rows' queries; `key` and `value` are those of the whole step."""


@dataclass(frozen=True)
class _GatherPlan:
    slots: Tensor
    tokens: Tensor | None
    passes: list[_Pass]

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, layer_cache: Tensor) -> Tensor:
        self._write(key, value, layer_cache)
        output = query.new_empty(query.shape)
        for each in self.passes:
            output[each.rows] = each.attend(query[each.rows], key, value, layer_cache)
        return output

    def _write(self, key: Tensor, value: Tensor, layer_cache: Tensor) -> None:
        if self.tokens is not None:
            key, value = key[self.tokens], value[self.tokens]
        keys, values = layer_cache.flatten(1, 2)  # each [num_slots, num_kv_heads, head_dim]
        keys.index_copy_(0, self.slots, key)
        values.index_copy_(0, self.slots, value)


@dataclass(frozen=True)
class _SequencePass:
    """Several queries of one sequence; a bias [n, context up to its last query] for each slice."""

    dense: DenseAttention
    rows: slice
    blocks: Tensor | None  # what to gather; None: this step's tokens are the whole context
    biases: list[Tensor]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layer_cache: Tensor) -> Tensor:
        if self.blocks is None:
            key, value = key[self.rows], value[self.rows]
        else:
            key, value = gather(layer_cache, self.blocks)
        attended = [
            self.dense.sequence(part, key[: bias.shape[1]], value[: bias.shape[1]], bias)
            for part, bias in zip(torch.split(query, SLICE_QUERIES), self.biases, strict=True)
        ]
        return attended[0] if len(attended) == 1 else torch.cat(attended)


@dataclass(frozen=True)
class _DecodePass:
    """One query of each of several sequences; a bias [num_seqs, padded context]."""

    dense: DenseAttention
    rows: slice | Tensor
    blocks: Tensor
    bias: Tensor

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layer_cache: Tensor) -> Tensor:
        gathered = gather(layer_cache, self.blocks)
        keys, values = gathered.view(2, *self.bias.shape, *gathered.shape[2:])
        return self.dense.decodes(query, keys, values, self.bias)


class _Planner:
    """Makes a step's passes."""

    def __init__(
        self,
        metadata: AttentionMetadata,
        kv_cache: Tensor,
        window: int | None,
        dense: DenseAttention,
    ) -> None:
        self.metadata, self.kv_cache = metadata, kv_cache
        self.window, self.dense = window, dense
        self.starts = [0, *accumulate(metadata.query_lens)]

    def sequence_pass(self, seq: int) -> _SequencePass:
        start, stop = self.starts[seq : seq + 2]
        context = self.metadata.seq_lens_list[seq]
        positions = torch.arange(context - (stop - start), context, device=self.kv_cache.device)
        ends = [*range(context - (stop - start) + SLICE_QUERIES, context, SLICE_QUERIES), context]
        parts = zip(torch.split(positions, SLICE_QUERIES), ends, strict=True)
        return _SequencePass(
            dense=self.dense,
            rows=slice(start, stop),
            blocks=None if context == stop - start else self._blocks([seq]),
            biases=[self._bias(part, end) for part, end in parts],
        )

    def decode_pass(self, seqs: list[int]) -> _DecodePass:
        blocks = self._blocks(seqs)
        padded = len(blocks) // (2 * len(seqs)) * self.kv_cache.shape[3]
        index = torch.tensor(seqs, device=self.kv_cache.device)
        rows = self.metadata.query_start_loc[index]
        return _DecodePass(
            dense=self.dense,
            rows=slice(None) if len(seqs) == self.starts[-1] else rows,
            blocks=blocks,
            bias=self._bias(self.metadata.seq_lens[index] - 1, padded),
        )

    def _blocks(self, seqs: list[int]) -> Tensor:
        num_blocks, block_size = self.kv_cache.shape[2:4]
        longest = max(self.metadata.seq_lens_list[seq] for seq in seqs)
        blocks = self.metadata.block_tables[seqs, : -(-longest // block_size)].flatten()
        return torch.cat([blocks, blocks + num_blocks])

    def _bias(self, positions: Tensor, context: int) -> Tensor:
        """Give 0 where a query at one of `positions` sees a key, else -inf: [n, context]."""
        age = positions[:, None] - torch.arange(context, device=positions.device)
        hidden = age < 0 if self.window is None else (age < 0) | (age >= self.window)
        return torch.zeros_like(hidden, dtype=self.kv_cache.dtype).masked_fill_(hidden, -inf)
