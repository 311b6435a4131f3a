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
from torch.nn import functional

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
        self, metadata: AttentionMetadata, kv_cache: Tensor, window: int | None
    ) -> AttentionPlan:
        """Prepare what all layers with this window share in a step; `kv_cache` tells its shape."""


def get_attention_backend(name: str, device: torch.device | str) -> AttentionBackend:
    """Choose a backend by name: "sdpa", "reference", or "auto", the fastest for the device.

    Raises:
        ConfigError: There is none of that name.
    """
    backends: dict[str, Callable[[], AttentionBackend]] = {
        "auto": SDPABackend,
        "sdpa": SDPABackend,
        "reference": ReferenceBackend,
    }
    if name not in backends:
        raise ConfigError(
            f"no attention backend {name!r} for {device}: there are {', '.join(backends)}"
        )
    return backends[name]()


class ReferenceBackend:
    """The kernels' readable twins: one sequence and one block at a time."""

    def plan(
        self, metadata: AttentionMetadata, kv_cache: Tensor, window: int | None
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


class SDPABackend:
    """Gather each sequence's blocks into one piece, then torch's scaled dot product attention."""

    def plan(
        self, metadata: AttentionMetadata, kv_cache: Tensor, window: int | None
    ) -> AttentionPlan:
        """Work out the gathers and masks of this step."""
        starts = [0, *accumulate(metadata.query_lens)]
        groups: list[_Group] = []
        decodes: list[int] = []
        for seq, query_len in enumerate(metadata.query_lens):
            if query_len == 1:
                decodes.append(seq)
            else:
                groups.append(_Group.build([seq], starts, metadata, kv_cache, window))
        if decodes:
            groups.append(_Group.build(decodes, starts, metadata, kv_cache, window))
        writable = metadata.slot_mapping >= 0
        tokens = None if bool(writable.all()) else writable.nonzero().squeeze(1)
        slots = metadata.slot_mapping if tokens is None else metadata.slot_mapping[tokens]
        return _SDPAPlan(groups, tokens, slots)


@dataclass(frozen=True)
class _SDPAPlan:
    groups: list[_Group]
    tokens: Tensor | None  # the tokens that are written; None: all
    slots: Tensor  # their slots

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, layer_cache: Tensor) -> Tensor:
        if self.tokens is not None:
            key, value = key[self.tokens], value[self.tokens]
        by_slot = layer_cache.flatten(1, 2)  # [2, num_slots, num_kv_heads, head_dim]
        by_slot[0].index_copy_(0, self.slots, key)
        by_slot[1].index_copy_(0, self.slots, value)
        if len(self.groups) == 1 and self.groups[0].rows is None:
            return self.groups[0].attend(query, layer_cache)
        output = torch.empty_like(query)
        for group in self.groups:
            rows = group.rows
            output[rows] = group.attend(query[rows], layer_cache)
        return output


@dataclass(frozen=True)
class _Group:
    """Sequences with the same number of new tokens, attended to together.

    rows: Their tokens [num_seqs * query_len]; None: all tokens of the step, in order. blocks: [2 *
    num_seqs * max_blocks], the rows of K and then V in a cache seen as [2 * num_blocks, ...]. mask:
    [num_seqs, 1, query_len, context], True where a query sees a key.
    """

    rows: Tensor | None
    blocks: Tensor
    mask: Tensor

    @classmethod
    def build(
        cls,
        seqs: list[int],
        starts: list[int],
        metadata: AttentionMetadata,
        kv_cache: Tensor,
        window: int | None,
    ) -> _Group:
        query_len = metadata.query_lens[seqs[0]]
        num_blocks, block_size = kv_cache.shape[2:4]
        device = metadata.block_tables.device
        max_blocks = -(-max(metadata.seq_lens_list[seq] for seq in seqs) // block_size)
        blocks = metadata.block_tables[seqs, :max_blocks].flatten()
        rows = [starts[seq] + i for seq in seqs for i in range(query_len)]
        offsets = torch.arange(-query_len, 0, device=device)
        positions = metadata.seq_lens[seqs][:, None] + offsets
        keys = torch.arange(max_blocks * block_size, device=device)
        age = positions[:, None, :, None] - keys
        mask = age >= 0 if window is None else (age >= 0) & (age < window)
        all_rows = rows == list(range(starts[-1]))
        return cls(
            rows=None if all_rows else torch.tensor(rows, device=device),
            blocks=torch.cat([blocks, blocks + num_blocks]),
            mask=mask,
        )

    def attend(self, query: Tensor, layer_cache: Tensor) -> Tensor:
        num_seqs, _, query_len, _ = self.mask.shape
        num_heads, head_dim = query.shape[1:]
        num_kv_heads = layer_cache.shape[3]
        gathered = layer_cache.view(-1, layer_cache[0, 0].numel()).index_select(0, self.blocks)
        key, value = gathered.view(2, num_seqs, -1, num_kv_heads, head_dim).transpose(2, 3)
        queries = query.view(num_seqs, query_len, num_heads, head_dim).transpose(1, 2)
        attended = functional.scaled_dot_product_attention(
            queries, key, value, attn_mask=self.mask, enable_gqa=True
        )
        return attended.transpose(1, 2).reshape(query.shape)
