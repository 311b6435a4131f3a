"""Softmax attention in plain torch, in two forms with one meaning.

`SDPA` is torch's own. `Matmul` is the textbook formula; on CPUs it takes half of SDPA's time or
less, as bf16 products run on oneDNN there, and as the values of decodes are summed where they lie,
block by block.

A layer's keys (and its values) are seen as an embedding table [num_slots * num_kv_heads, head_dim]:
row `slot * num_kv_heads + kv_head` is what one KV head keeps of one token. A context is then a list
of rows, as a text is a list of token ids, and what looks up and sums embeddings looks up keys and
sums values.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Contexts:
    """Where the contexts of n sequences lie that decode together, all padded to one length.

    Attributes:
        kv_rows: [n, num_kv_heads, context], the rows of each KV head; padding may name any row.
        head_rows: [n, num_heads, context], the same rows for each query head.
        bias: [n, context], 0 for a token that is seen, else -inf.
    """

    kv_rows: Tensor
    head_rows: Tensor
    bias: Tensor


class AttentionMath(Protocol):
    """How to attend, once it is known to what."""

    def sequence(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        """Attend from several queries [n, num_heads, head_dim] of one sequence.

        `key` and `value` are [num_kv_heads, context, head_dim]; `bias` is [n, context], 0 where a
        query sees a key, else -inf. Gives the query's shape.
        """

    def decodes(self, query: Tensor, keys: Tensor, values: Tensor, contexts: Contexts) -> Tensor:
        """Attend from one query of each of n sequences, [n, num_heads, head_dim].

        `keys` and `values` are the layer's, [num_slots * num_kv_heads, head_dim]. Gives the query's
        shape.
        """


class SDPA:
    """Torch's scaled dot product attention: scores are fp32, whatever the inputs are."""

    def sequence(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        """Attend from several queries of one sequence."""
        attended = functional.scaled_dot_product_attention(
            query.transpose(0, 1)[None], key[None], value[None], attn_mask=bias, enable_gqa=True
        )
        return attended[0].transpose(0, 1)

    def decodes(self, query: Tensor, keys: Tensor, values: Tensor, contexts: Contexts) -> Tensor:
        """Attend with the heads that share a KV head as if they were queries of one sequence."""
        num_seqs, num_kv_heads, _ = contexts.kv_rows.shape
        attended = functional.scaled_dot_product_attention(
            query.reshape(num_seqs, num_kv_heads, -1, query.shape[2]),
            functional.embedding(contexts.kv_rows, keys),
            functional.embedding(contexts.kv_rows, values),
            attn_mask=contexts.bias[:, None, None],
        )
        return attended.reshape(query.shape)


class Matmul:
    """Two products around a softmax: scores have the inputs' dtype."""

    def sequence(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        """Attend with all queries that read one KV head as the rows of one matrix."""
        num_queries, _, head_dim = query.shape
        num_kv_heads, context, _ = key.shape
        grouped = query.reshape(num_queries, num_kv_heads, -1, head_dim).permute(1, 2, 0, 3)
        products = torch.bmm(grouped.flatten(1, 2), key.transpose(1, 2))
        scores = products.view(num_kv_heads, -1, num_queries, context)
        weights = torch.add(bias, scores, alpha=1 / sqrt(head_dim)).softmax(dim=-1)
        attended = torch.bmm(weights.flatten(1, 2), value).view(grouped.shape)
        return attended.permute(2, 0, 1, 3).reshape(query.shape)

    def decodes(self, query: Tensor, keys: Tensor, values: Tensor, contexts: Contexts) -> Tensor:
        """Look up the keys; the weighted sum of values is a bag of embeddings for each head."""
        num_seqs, _, context = contexts.kv_rows.shape
        head_dim = query.shape[2]
        key = functional.embedding(contexts.kv_rows, keys).flatten(0, 1)
        products = torch.bmm(query.reshape(len(key), -1, head_dim), key.transpose(1, 2))
        scores = products.view(num_seqs, -1, context)  # [num_seqs, num_heads, context]
        weights = torch.add(contexts.bias[:, None], scores, alpha=1 / sqrt(head_dim)).softmax(-1)
        bags = functional.embedding_bag(
            contexts.head_rows.flatten(0, 1),
            values,
            mode="sum",
            per_sample_weights=weights.flatten(0, 1),
        )
        return bags.view(query.shape)


def fastest(dtype: torch.dtype, device: torch.device) -> AttentionMath:
    """Choose: Matmul on a CPU, but SDPA elsewhere, and for fp16, whose scores can overflow."""
    return SDPA() if device.type != "cpu" or dtype == torch.float16 else Matmul()
