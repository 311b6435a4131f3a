"""A model's weights: which there must be, and handing them out to the layers that they belong to.

Names are Hugging Face's. A layer is built only from weights that have arrived and been checked, so
that nothing in a model is ever uninitialised.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from minipaged.errors import ModelError
from minipaged.models.config import ModelConfig
from minipaged.models.linear import Linear, choose_linear

Shape = tuple[int, ...]


class Parameters:
    """All weights of a model by name; each is given away once, and then belongs to its layer alone.

    Raises:
        ModelError: A weight is missing, unexpected, given twice or of another shape.
    """

    def __init__(
        self,
        config: ModelConfig,
        named_tensors: Iterable[tuple[str, Tensor]],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._tensors: dict[str, Tensor] = {}
        self._linear_type = choose_linear(dtype, device)
        expected = weight_shapes(config)
        for name, tensor in named_tensors:
            if not _is_leftover(name, config):
                self._check(name, tensor, expected)
                self._tensors[name] = tensor.detach().to(device, dtype)
        if missing := sorted(expected.keys() - self._tensors.keys()):
            raise ModelError(
                f"{len(missing)} of {len(expected)} weights are missing, {missing[0]} among them"
            )

    def take(self, name: str) -> Tensor:
        """Give a weight away."""
        return self._tensors.pop(name)

    def linear(self, *names: str) -> Linear:
        """Build one linear layer of several, whose outputs then lie one after another."""
        weights = [self.take(f"{name}.weight") for name in names]
        biases = [self.take(f"{name}.bias") for name in names if f"{name}.bias" in self._tensors]
        return self._linear_type(joined(weights), joined(biases) if biases else None)

    def head(self, embedding: Tensor, name: str) -> Linear:
        """Build the layer that scores tokens; a tied one shares the embedding's weight."""
        tied = f"{name}.weight" not in self._tensors
        return self._linear_type(embedding) if tied else self.linear(name)

    def _check(self, name: str, tensor: Tensor, expected: dict[str, Shape]) -> None:
        if name not in expected:
            raise ModelError(f"unexpected weight {name!r}: the configuration asks for none")
        if name in self._tensors:
            raise ModelError(f"weight {name} is given twice")
        if tensor.shape != expected[name]:
            shape, wanted = list(tensor.shape), list(expected[name])
            raise ModelError(
                f"weight {name} has shape {shape}, the configuration asks for {wanted}"
            )


def joined(tensors: list[Tensor]) -> Tensor:
    """Stack by rows; one alone is not copied."""
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)


def weight_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Give the name and shape of every weight that a model of this configuration has.

    >>> config = ModelConfig("llama", 7, 4, 8, 1, 2, 1, 2, 64, 1e-6, 1e4, tie_word_embeddings=True)
    >>> list(weight_shapes(config).items())[:3]  # doctest: +NORMALIZE_WHITESPACE
    [('model.embed_tokens.weight', (7, 4)), ('model.norm.weight', (4,)),
     ('model.layers.0.input_layernorm.weight', (4,))]
    """
    hidden, vocab = config.hidden_size, config.vocab_size
    shapes: dict[str, Shape] = {"model.embed_tokens.weight": (vocab, hidden)}
    shapes["model.norm.weight"] = (hidden,)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (vocab, hidden)
    for index in range(config.num_layers):
        shapes |= {f"model.layers.{index}.{k}": v for k, v in layer_shapes(config).items()}
    return shapes


def layer_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Give the same for one layer, by the names' ends."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.num_heads * config.head_dim
    keys = config.num_kv_heads * config.head_dim
    linears = {  # output size, input size, bias
        "self_attn.q_proj": (queries, hidden, config.attention_bias),
        "self_attn.k_proj": (keys, hidden, config.attention_bias),
        "self_attn.v_proj": (keys, hidden, config.attention_bias),
        "self_attn.o_proj": (hidden, queries, config.attention_out_bias),
        "mlp.gate_proj": (inner, hidden, config.mlp_bias),
        "mlp.up_proj": (inner, hidden, config.mlp_bias),
        "mlp.down_proj": (hidden, inner, config.mlp_bias),
    }
    norms = {"input_layernorm": hidden, "post_attention_layernorm": hidden}
    if config.qk_norm:
        norms |= {"self_attn.q_norm": config.head_dim, "self_attn.k_norm": config.head_dim}
    shapes: dict[str, Shape] = {f"{name}.weight": (size,) for name, size in norms.items()}
    shapes |= {f"{name}.weight": (out, size) for name, (out, size, _) in linears.items()}
    return shapes | {f"{name}.bias": (out,) for name, (out, _, bias) in linears.items() if bias}


def _is_leftover(name: str, config: ModelConfig) -> bool:
    """Tell what some checkpoints store needlessly: a tied head, RoPE's frequencies."""
    tied_head = config.tie_word_embeddings and name == "lm_head.weight"
    return tied_head or name.endswith("rotary_emb.inv_freq")
