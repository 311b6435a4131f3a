"""The model to train: a Llama with grouped-query attention, whole contexts at a time, no KV cache.

Contract: parameters have the names and shapes that transformers' LlamaForCausalLM gives them, so a
state dict is a checkpoint. Embedding and output layer share one matrix. Written for training alone;
minipaged and transformers run what comes out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (its usual name)


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a model, named as in a config.json."""

    vocab_size: int = 1024
    hidden_size: int = 128
    intermediate_size: int = 320
    num_hidden_layers: int = 6
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 32
    max_position_embeddings: int = 1024
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-5


class Attention(nn.Module):
    """Causal self-attention; each key and value head serves a group of query heads."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.heads = shape.num_attention_heads
        self.kv_heads = shape.num_key_value_heads
        self.head_dim = shape.head_dim
        hidden, queries = shape.hidden_size, self.heads * self.head_dim
        self.q_proj = nn.Linear(hidden, queries, bias=False)
        self.k_proj = nn.Linear(hidden, self.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(hidden, self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(queries, hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Attend. x: [rows, length, hidden]; cos, sin: [length, head_dim]."""
        rows, length, _ = x.shape
        q = self._split(self.q_proj(x), self.heads)
        k = self._split(self.k_proj(x), self.kv_heads)
        v = self._split(self.v_proj(x), self.kv_heads)
        groups = self.heads // self.kv_heads
        k = rotate(k, cos, sin).repeat_interleave(groups, dim=1)
        v = v.repeat_interleave(groups, dim=1)
        y = attend(rotate(q, cos, sin), k, v)
        y = y.transpose(1, 2).reshape(rows, length, -1)
        return self.o_proj(y)  # type: ignore[no-any-return]

    def _split(self, x: Tensor, heads: int) -> Tensor:  # -> [rows, heads, length, head_dim]
        return x.view(*x.shape[:2], heads, self.head_dim).transpose(1, 2)


class MLP(nn.Module):
    """The gated feed-forward layer."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Work on each position by itself. x: [rows, length, hidden]."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))  # type: ignore[no-any-return]


class Layer(nn.Module):
    """Attention and MLP, each behind a norm and added to the stream."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.mlp = MLP(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Give the stream after this layer. x: [rows, length, hidden]."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))  # type: ignore[no-any-return]


class Body(nn.Module):
    """Everything between token ids and the last norm."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_hidden_layers))
        self.norm = nn.RMSNorm(shape.hidden_size, shape.rms_norm_eps)


class StoryModel(nn.Module):
    """Token ids [rows, length] -> logits [rows, length, vocab_size]."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Body(shape)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=_spread(name, shape))

    def forward(self, ids: Tensor) -> Tensor:
        """Give the logits of the token after each position."""
        cos, sin = rope(ids.shape[1], self.shape)
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)


def _spread(name: str, shape: ModelShape) -> float:
    """Give a matrix's standard deviation at the start; what layers add to the stream is small.

    Embeddings are far apart. From a spread of 0.02 all words of one class (colors, helpers) grow
    into nearly the same vector before the model can tell which of them it has read.
    """
    if name.endswith("embed_tokens.weight"):
        return 0.2
    adds = name.endswith(("o_proj.weight", "down_proj.weight"))
    return 0.02 / math.sqrt(2 * shape.num_hidden_layers) if adds else 0.02


def attend(q: Tensor, k: Tensor, v: Tensor, block: int = 128) -> Tensor:
    """Attend causally, a block of queries at a time to the keys up to its end.

    The same as torch's fused attention, whose backward pass on a CPU takes twice as long in bf16.
    All are [rows, heads, length, head_dim].
    """
    q = q / math.sqrt(q.shape[-1])
    blocks = []
    for start in range(0, q.shape[2], block):
        stop = min(start + block, q.shape[2])
        scores = q[:, :, start:stop] @ k[:, :, :stop].transpose(-1, -2)
        later = torch.full(scores.shape[-2:], -torch.inf, dtype=scores.dtype).triu(start + 1)
        blocks.append((scores + later).softmax(dim=-1) @ v[:, :, :stop])
    return torch.cat(blocks, dim=2)


def rope(length: int, shape: ModelShape) -> tuple[Tensor, Tensor]:
    """Give cosine and sine of the angle at each position. Both [length, head_dim]."""
    pairs = torch.arange(0, shape.head_dim, 2, dtype=torch.float32)
    angles = torch.outer(torch.arange(length), shape.rope_theta ** (-pairs / shape.head_dim))
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (i, i + head_dim / 2) by its angle. x: [rows, heads, length, head_dim]."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
