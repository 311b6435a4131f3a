"""The shape of a model: everything that the transformer has to know before it sees a weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class RopeScaling:
    """How rotary frequencies are stretched for long texts.

    `kind` decides which of the other fields count: linear uses `factor`; llama3 uses `factor`,
    `low_freq_factor`, `high_freq_factor` and `original_max_position_embeddings`; yarn uses
    `factor`, the betas, `original_max_position_embeddings`, `attention_factor` and the mscales.
    """

    kind: Literal["linear", "llama3", "yarn"]
    factor: float
    original_max_position_embeddings: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True


@dataclass(frozen=True)
class ModelConfig:
    """One decoder-only transformer of the Llama kind (Llama, Mistral, Qwen2, Qwen3)."""

    architecture: Literal["llama", "mistral", "qwen2", "qwen3"]
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    tie_word_embeddings: bool
    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None
    attention_bias: bool = False  # bias on q, k and v
    attention_out_bias: bool = False  # bias on o
    mlp_bias: bool = False
    qk_norm: bool = False
    rope_scaling: RopeScaling | None = None
    sliding_windows: tuple[int | None, ...] = ()  # one entry a layer; empty: none has a window
    dtype: str = "float32"  # the checkpoint's own
    position_note: str = ""  # why texts end at max_position_embeddings, if that needs saying

    def window(self, layer: int) -> int | None:
        """Give how many of the latest tokens a query of this layer sees; None: all of them."""
        return self.sliding_windows[layer] if self.sliding_windows else None

    @property
    def kv_elements_per_token(self) -> int:
        """Give the number of K and V elements that one token keeps, over all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim
