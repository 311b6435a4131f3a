"""Softmax attention on keys and values that lie in one piece, in two forms with one meaning.

`SDPA` is torch's own. `Matmul` is the textbook formula in matrix products: in bf16 on CPUs it takes
about half of SDPA's time, as oneDNN multiplies bf16 matrices with instructions that SDPA does not
use there.

Shapes: a sequence attends from query [n, num_heads, head_dim] to key and value [context,
num_kv_heads, head_dim]; decodes attend from one query each, [num_seqs, num_heads, head_dim], to
[num_seqs, context, num_kv_heads, head_dim]. The bias, [n, context] or [num_seqs, context], is 0
where a query sees a key, else -inf.
"""

from __future__ import annotations

from math import sqrt
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


class DenseAttention(Protocol):
    """What happens once a context is in one piece."""

    def sequence(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        """Attend from several queries of one sequence; gives the query's shape."""

    def decodes(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        """Attend from one query of each of several sequences; gives the query's shape."""


class SDPA:
    """Torch's scaled dot product attention: scores are fp32, whatever the inputs are."""

    def sequence(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        """Attend from several queries of one sequence."""
        query, key, value = (x.transpose(0, 1)[None] for x in (query, key, value))
        attended = scaled_dot_product_attention(query, key, value, attn_mask=bias, enable_gqa=True)
        return attended[0].transpose(0, 1)

    def decodes(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        """Attend with the heads that share a KV head as if they were its queries."""
        num_seqs, num_heads, head_dim = query.shape
        grouped = query.reshape(num_seqs, key.shape[2], -1, head_dim)
        attended = scaled_dot_product_attention(
            grouped, key.transpose(1, 2), value.transpose(1, 2), attn_mask=bias[:, None, None]
        )
        return attended.reshape(num_seqs, num_heads, head_dim)


class Matmul:
    """Two matrix products around a softmax: scores have the inputs' dtype."""

    def sequence(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        """Attend with all queries that read one KV head as the rows of one matrix."""
        num_queries, num_heads, head_dim = query.shape
        context, num_kv_heads, _ = key.shape
        grouped = query.reshape(num_queries, num_kv_heads, -1, head_dim).permute(1, 2, 0, 3)
        rows = grouped.flatten(1, 2)  # [num_kv_heads, group * n, head_dim]
        products = torch.bmm(rows, key.permute(1, 2, 0)).view(num_kv_heads, -1, *bias.shape)
        scores = torch.add(bias, products, alpha=1 / sqrt(head_dim))
        weights = scores.softmax(dim=-1).view(num_kv_heads, -1, context)
        attended = torch.bmm(weights, value.transpose(0, 1)).view(grouped.shape)
        return attended.permute(2, 0, 1, 3).reshape(num_queries, num_heads, head_dim)

    def decodes(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        """Attend with each head's query among zeros, at its KV head's place in a token's row.

        A token's row holds all KV heads: so one product a sequence serves them all, and the keys
        need not be copied into another order. The products with zeros are wasted, but cost less
        than that copy.
        """
        num_seqs, num_heads, head_dim = query.shape
        num_kv_heads = key.shape[2]
        split = (num_seqs, num_kv_heads, num_heads // num_kv_heads, num_kv_heads, head_dim)
        own = torch.eye(num_kv_heads, dtype=query.dtype, device=query.device)[:, None, :, None]
        spread = (query.reshape(*split[:3], 1, head_dim) * own).view(num_seqs, num_heads, -1)
        scores = torch.baddbmm(
            bias[:, None], spread, key.flatten(2).transpose(1, 2), alpha=1 / sqrt(head_dim)
        )  # [num_seqs, num_heads, context]
        attended = torch.bmm(scores.softmax(dim=-1), value.flatten(2)).view(split)
        own_part = attended.diagonal(dim1=1, dim2=3)  # [num_seqs, group, head_dim, num_kv_heads]
        return own_part.permute(0, 3, 1, 2).reshape(num_seqs, num_heads, head_dim)


def fastest(dtype: torch.dtype, device: torch.device) -> DenseAttention:
    """Choose: Matmul for bf16 on a CPU, else SDPA."""
    return Matmul() if dtype == torch.bfloat16 and device.type == "cpu" else SDPA()
