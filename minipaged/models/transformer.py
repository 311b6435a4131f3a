"""One decoder-only transformer on a paged KV cache: Llama, Mistral, Qwen2 and Qwen3.

The families differ in their configuration alone (biases, norms on q and k, windows, RoPE scaling),
so they share this file. Tokens of all sequences lie one after another, [num_tokens, ...]; which
token belongs to which sequence, and where its context is, only the attention knows
(`minipaged.engine.attention`).

Weights have Hugging Face's names (`minipaged.models.parameters`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from minipaged.engine.attention import (
    AttentionBackend,
    AttentionMetadata,
    AttentionPlan,
    get_attention_backend,
)
from minipaged.errors import ModelError
from minipaged.models.config import ModelConfig
from minipaged.models.parameters import Parameters, joined
from minipaged.models.rope import RotaryEmbedding, rotate_

SLICE_TOKENS = 512  # tokens at once; the intermediate results of more leave a CPU's cache

Rotation = tuple[Tensor, Tensor]  # cos and sin for each token, see `minipaged.models.rope`


class Transformer:
    """The model: `load_weights` once, then `forward` and `compute_logits` each step."""

    def __init__(
        self,
        config: ModelConfig,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        attention: AttentionBackend | None = None,
    ) -> None:
        self.config = config
        self.dtype = dtype
        self.device = torch.device(device)
        self.attention = attention or get_attention_backend("auto", self.device)
        self.rope = RotaryEmbedding(config, self.device)
        self.layers: list[DecoderLayer] = []

    def load_weights(self, named_tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Take the weights, under Hugging Face's names, and put them into their fastest form.

        A tensor is converted as it arrives and dropped once its layer is built, so that beside the
        model there is never more than one layer in memory twice.

        Raises:
            ModelError: A weight is missing, unexpected, given twice or of another shape. Nothing is
            loaded.
        """
        config = self.config
        parameters = Parameters(config, named_tensors, self.dtype, self.device)
        self.embedding = parameters.take("model.embed_tokens.weight")
        self.lm_head = parameters.head(self.embedding, "lm_head")
        self.norm = RMSNorm(parameters.take("model.norm.weight"), config.rms_norm_eps)
        self.layers = [DecoderLayer(config, i, parameters) for i in range(config.num_layers)]

    @torch.inference_mode()
    def forward(
        self, input_ids: Tensor, positions: Tensor, kv_cache: Tensor, metadata: AttentionMetadata
    ) -> Tensor:
        """Run the new tokens of a step and write their keys and values into the cache.

        Args:
            input_ids: [num_tokens] int64.
            positions: [num_tokens] int64, each token's position in its own sequence.
            kv_cache: [num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim]; mutated.
            metadata: Which token belongs to which sequence, and which blocks hold its context.

        Returns:
            The last layer's hidden states, normed: [num_tokens, hidden_size].
        """
        if not self.layers:
            raise ModelError("the model has no weights yet: load_weights comes first")
        plans = {
            window: self.attention.plan(metadata, kv_cache, self.config.num_heads, window)
            for window in {layer.window for layer in self.layers}
        }
        rotations = list(zip(*map(slices, self.rope(positions, self.dtype)), strict=True))
        hidden = functional.embedding(input_ids, self.embedding)
        for layer, layer_cache in zip(self.layers, kv_cache, strict=True):
            layer(hidden, rotations, layer_cache, plans[layer.window])
        return self.norm(hidden)

    @torch.inference_mode()
    def compute_logits(self, hidden: Tensor) -> Tensor:
        """Score every token of the vocabulary: [n, hidden_size] -> fp32 [n, vocab_size]."""
        return self.lm_head(hidden).float()


class DecoderLayer:
    """Attention and MLP, each on a normed copy of the hidden states and added back to them."""

    def __init__(self, config: ModelConfig, index: int, parameters: Parameters) -> None:
        prefix, eps = f"model.layers.{index}", config.rms_norm_eps
        self.window = config.window(index)
        self.input_norm = RMSNorm(parameters.take(f"{prefix}.input_layernorm.weight"), eps)
        self.self_attn = SelfAttention(config, f"{prefix}.self_attn", parameters)
        self.mlp_norm = RMSNorm(parameters.take(f"{prefix}.post_attention_layernorm.weight"), eps)
        self.mlp = MLP(f"{prefix}.mlp", parameters)

    def __call__(
        self,
        hidden: Tensor,
        rotations: Sequence[Rotation],
        layer_cache: Tensor,
        attend: AttentionPlan,
    ) -> None:
        """Add this layer's part to `hidden` [num_tokens, hidden_size]; mutates the cache too.

        Only attention looks from token to token. What is before and after it is done in slices, to
        each of which belongs one of the `rotations`.
        """
        heads = [
            self.self_attn.project(self.input_norm(rows), rotation)
            for rows, rotation in zip(slices(hidden), rotations, strict=True)
        ]
        hidden += self.self_attn.attend(joined(heads), layer_cache, attend)
        for rows in slices(hidden):
            rows += self.mlp(self.mlp_norm(rows))


class SelfAttention:
    """Projections, rotation, and the attention over the paged cache between them."""

    def __init__(self, config: ModelConfig, prefix: str, parameters: Parameters) -> None:
        self.head_dim = config.head_dim
        self.splits = (config.num_heads, config.num_heads + config.num_kv_heads)
        self.qkv_proj = parameters.linear(*(f"{prefix}.{name}_proj" for name in "qkv"))
        self.o_proj = parameters.linear(f"{prefix}.o_proj")
        self.q_norm = self.k_norm = None
        if config.qk_norm:
            self.q_norm = RMSNorm(parameters.take(f"{prefix}.q_norm.weight"), config.rms_norm_eps)
            self.k_norm = RMSNorm(parameters.take(f"{prefix}.k_norm.weight"), config.rms_norm_eps)

    def project(self, hidden: Tensor, rotation: Rotation) -> Tensor:
        """Map normed [n, hidden_size] to queries, keys and values, [n, all heads, head_dim]."""
        heads = self.qkv_proj(hidden).view(len(hidden), -1, self.head_dim)
        if self.q_norm is not None and self.k_norm is not None:
            query, key, _ = heads.tensor_split(self.splits, dim=1)
            query.copy_(self.q_norm(query))
            key.copy_(self.k_norm(key))
        rotate_(heads[:, : self.splits[1]], *rotation)
        return heads

    def attend(self, heads: Tensor, layer_cache: Tensor, attend: AttentionPlan) -> Tensor:
        """Map what `project` gives to [num_tokens, hidden_size]; mutates `layer_cache`."""
        query, key, value = heads.tensor_split(self.splits, dim=1)
        return self.o_proj(attend(query, key, value, layer_cache).flatten(1))


class MLP:
    """SwiGLU: down(silu(gate(x)) * up(x)), gate and up in one layer."""

    def __init__(self, prefix: str, parameters: Parameters) -> None:
        self.gate_up_proj = parameters.linear(f"{prefix}.gate_proj", f"{prefix}.up_proj")
        self.down_proj = parameters.linear(f"{prefix}.down_proj")

    def __call__(self, hidden: Tensor) -> Tensor:
        """Map normed [num_tokens, hidden_size] to the same shape."""
        gate, up = self.gate_up_proj(hidden).chunk(2, dim=-1)
        return self.down_proj(functional.silu(gate, inplace=True).mul_(up))


class RMSNorm:
    """x / sqrt(mean(x ** 2) + eps) * weight, over the last dimension."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self.weight, self.eps = weight, eps

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise [..., size]."""
        return functional.rms_norm(x, self.weight.shape, self.weight, self.eps)


def slices(rows: Tensor) -> tuple[Tensor, ...]:
    """Cut [num_tokens, ...] into views of at most SLICE_TOKENS."""
    return torch.split(rows, SLICE_TOKENS)
