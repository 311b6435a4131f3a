"""Attention in plain torch: a step is cut into passes, and each of them attends on its own.

A sequence with several new tokens (a prefill, or a chunk of one) is a pass, slice by slice of its
queries: so scores stay in the processor's cache, and hardly any are computed for the future.
Sequences with one new token (decodes) share a pass with others of like length. All that is the same
in every layer (which rows of the cache are read, who sees what) is worked out once a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from minipaged.engine.attention_math import AttentionMath, Contexts, fastest

if TYPE_CHECKING:
    from minipaged.engine.attention import AttentionMetadata, AttentionPlan

SLICE_QUERIES = 128  # queries a slice; 64 and 256 were slower on CPUs
PASS_WORTH = 4096  # padded tokens whose cost is that of another pass
PASS_TOKENS = 2**16  # the most tokens that a pass looks up, so that it needs little memory


class GatherBackend:
    """Look up each context's rows, then attend as `math` does; None: as is fastest."""

    def __init__(self, math: AttentionMath | None = None) -> None:
        self.math = math

    def plan(
        self, metadata: AttentionMetadata, kv_cache: Tensor, num_heads: int, window: int | None
    ) -> AttentionPlan:
        """Cut the step into passes, and work out what each of them reads and sees."""
        math = self.math or fastest(kv_cache.dtype, kv_cache.device)
        planner = _Planner(metadata, kv_cache, num_heads, window)
        decodes = [seq for seq, count in enumerate(metadata.query_lens) if count == 1]
        others = [seq for seq, count in enumerate(metadata.query_lens) if count > 1]
        passes: list[_Pass] = [planner.sequence_pass(seq) for seq in others]
        passes += map(planner.decode_pass, like_lengths(decodes, metadata.seq_lens_list))
        return _GatherPlan(math, *written(metadata.slot_mapping), passes)


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


class _Pass(Protocol):
    @property
    def rows(self) -> slice | Tensor:
        """Which of the step's tokens it attends from."""

    def attend(self, math: AttentionMath, step: _LayerStep) -> Tensor:
        """Attend from these tokens: [n, num_heads, head_dim]."""


class _LayerStep(NamedTuple):
    """A step in one layer: what is new, and the cache as tables with a row a token and KV head."""

    query: Tensor
    key: Tensor
    value: Tensor
    keys: Tensor
    values: Tensor


@dataclass(frozen=True)
class _GatherPlan:
    math: AttentionMath
    slots: Tensor
    tokens: Tensor | None
    passes: list[_Pass]

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, layer_cache: Tensor) -> Tensor:
        keys, values = layer_cache.flatten(1, 2)  # each [num_slots, num_kv_heads, head_dim]
        self._write(key, keys)
        self._write(value, values)
        step = _LayerStep(query, key, value, keys.flatten(0, 1), values.flatten(0, 1))
        if len(self.passes) == 1:
            return self.passes[0].attend(self.math, step)
        output = query.new_empty(query.shape)
        for each in self.passes:
            output[each.rows] = each.attend(self.math, step)
        return output

    def _write(self, new: Tensor, cached: Tensor) -> None:
        cached.index_copy_(0, self.slots, new if self.tokens is None else new[self.tokens])


@dataclass(frozen=True)
class _SequencePass:
    """Several queries of one sequence; a bias [n, context up to its last query] for each slice."""

    rows: slice
    kv_rows: Tensor | None  # [num_kv_heads, context]; None: no token is cached yet
    biases: list[Tensor]

    def attend(self, math: AttentionMath, step: _LayerStep) -> Tensor:
        if self.kv_rows is None:
            key, value = step.key[self.rows].transpose(0, 1), step.value[self.rows].transpose(0, 1)
        else:
            key = functional.embedding(self.kv_rows, step.keys)
            value = functional.embedding(self.kv_rows, step.values)
        queries = torch.split(step.query[self.rows], SLICE_QUERIES)
        attended = [
            math.sequence(query, key[:, : bias.shape[1]], value[:, : bias.shape[1]], bias)
            for query, bias in zip(queries, self.biases, strict=True)
        ]
        return attended[0] if len(attended) == 1 else torch.cat(attended)


@dataclass(frozen=True)
class _DecodePass:
    """One query of each of several sequences."""

    rows: slice | Tensor
    contexts: Contexts

    def attend(self, math: AttentionMath, step: _LayerStep) -> Tensor:
        return math.decodes(step.query[self.rows], step.keys, step.values, self.contexts)


class _Planner:
    """Makes a step's passes."""

    def __init__(
        self, metadata: AttentionMetadata, kv_cache: Tensor, num_heads: int, window: int | None
    ) -> None:
        self.metadata, self.num_heads, self.window = metadata, num_heads, window
        self.dtype, self.device = kv_cache.dtype, kv_cache.device
        self.block_size, self.num_kv_heads = kv_cache.shape[3:5]
        self.starts = [0, *accumulate(metadata.query_lens)]

    def sequence_pass(self, seq: int) -> _SequencePass:
        start, stop = self.starts[seq : seq + 2]
        context = self.metadata.seq_lens_list[seq]
        first = context - (stop - start)  # the first query's position
        positions = torch.arange(first, context, device=self.device)
        ends = [*range(first + SLICE_QUERIES, context, SLICE_QUERIES), context]
        parts = zip(torch.split(positions, SLICE_QUERIES), ends, strict=True)
        return _SequencePass(
            rows=slice(start, stop),
            kv_rows=self._kv_rows([seq])[0] if first else None,
            biases=[self._bias(part, end) for part, end in parts],
        )

    def decode_pass(self, seqs: list[int]) -> _DecodePass:
        index = torch.tensor(seqs, device=self.device)
        kv_rows = self._kv_rows(seqs)
        contexts = Contexts(
            kv_rows=kv_rows,
            head_rows=kv_rows.repeat_interleave(self.num_heads // self.num_kv_heads, dim=1),
            bias=self._bias(self.metadata.seq_lens[index] - 1, kv_rows.shape[2]),
        )
        all_tokens = len(seqs) == self.starts[-1]
        rows = slice(None) if all_tokens else self.metadata.query_start_loc[index]
        return _DecodePass(rows, contexts)

    def _kv_rows(self, seqs: list[int]) -> Tensor:
        """Give the rows of the sequences' contexts: [num_seqs, num_kv_heads, context], padded."""
        longest = max(self.metadata.seq_lens_list[seq] for seq in seqs)
        blocks = self.metadata.block_tables[seqs, : -(-longest // self.block_size), None]
        offsets = torch.arange(self.block_size, device=self.device)
        slots = (blocks * self.block_size + offsets).flatten(1)
        kv_heads = torch.arange(self.num_kv_heads, device=self.device)
        return slots[:, None] * self.num_kv_heads + kv_heads[:, None]

    def _bias(self, positions: Tensor, context: int) -> Tensor:
        """Give 0 where a query at one of `positions` sees a key, else -inf: [n, context]."""
        age = positions[:, None] - torch.arange(context, device=self.device)
        hidden = age < 0 if self.window is None else (age < 0) | (age >= self.window)
        return torch.zeros_like(hidden, dtype=self.dtype).masked_fill_(hidden, -inf)
