"""Well-known models, as far as memory and time depend on them; others by their config.json.

The numbers are those of each model's config.json on the Hugging Face hub; for OPT-175B, which has
none, those of the OPT paper (Zhang et al., 2022), table 1. Parameters follow from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os.path import isdir, isfile
from pathlib import Path

from minipaged.errors import ConfigError
from minipaged.lab.hardware import normal, suggestion
from minipaged.models.config import ModelConfig
from minipaged.models.hf_config import parse_config
from minipaged.models.json_fields import read_json


@dataclass(frozen=True)
class ModelShape:
    """One decoder-only transformer. `max_len` is its longest text, prompt included (tokens)."""

    name: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_len: int
    num_parameters: int
    source: str

    def kv_bytes_per_token(self, bytes_per_element: int = 2) -> int:
        """Give the bytes that one token's keys and values take, in all layers.

        >>> MODELS["opt-13b"].kv_bytes_per_token()  # 2 x 40 layers x 5120 x 2 bytes: 800 KiB
        819200
        """
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * bytes_per_element

    def weight_bytes(self, bytes_per_element: int = 2) -> int:
        """Give the bytes of all parameters."""
        return self.num_parameters * bytes_per_element


def from_config(name: str, config: ModelConfig, source: str) -> ModelShape:
    """Give the shape of a model that the engine itself could run."""
    return ModelShape(
        name=name,
        num_layers=config.num_layers,
        hidden_size=config.hidden_size,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        vocab_size=config.vocab_size,
        max_len=config.max_position_embeddings,
        num_parameters=count_parameters(config),
        source=source,
    )


def count_parameters(config: ModelConfig) -> int:
    """Count the weights of a transformer of the Llama kind: matrices, norms and biases."""
    hidden, inner = config.hidden_size, config.intermediate_size
    query, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    layer = 2 * hidden * query + 2 * hidden * kv + 3 * hidden * inner + 2 * hidden
    layer += config.attention_bias * (query + 2 * kv) + config.attention_out_bias * hidden
    layer += config.mlp_bias * (2 * inner + hidden) + config.qk_norm * 2 * config.head_dim
    embeddings = config.vocab_size * hidden * (1 if config.tie_word_embeddings else 2)
    return embeddings + config.num_layers * layer + hidden


def _llama(
    name: str,
    sizes: tuple[int, int, int, int, int],
    vocab_size: int,
    max_len: int,
    source: str,
    *,
    head_dim: int | None = None,
    tied: bool = False,
    bias: bool = False,
    qk_norm: bool = False,
) -> ModelShape:
    """Sizes: layers, hidden, heads, KV heads, inner."""
    num_layers, hidden, num_heads, num_kv_heads, inner = sizes
    config = ModelConfig(
        architecture="llama",
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=inner,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim or hidden // num_heads,
        max_position_embeddings=max_len,
        rms_norm_eps=1e-6,
        rope_theta=1e4,
        tie_word_embeddings=tied,
        attention_bias=bias,
        qk_norm=qk_norm,
    )
    return from_config(name, config, f"{source} config.json")


def _opt(name: str, num_layers: int, hidden: int, num_heads: int, source: str) -> ModelShape:
    """An OPT model: 2,050 learned positions, an inner size of 4 x hidden, biases, tied output."""
    layer = 12 * hidden**2 + 13 * hidden  # 4 h x h, two of h x 4h; 9 h of biases, 4 h of norms
    parameters = (50272 + 2050) * hidden + num_layers * layer + 2 * hidden
    head_dim = hidden // num_heads
    return ModelShape(
        *(name, num_layers, hidden, num_heads, num_heads, head_dim, 50272, 2048),
        num_parameters=parameters,
        source=source,
    )


MODELS: Mapping[str, ModelShape] = {
    model.name: model
    for model in (
        _opt("opt-6.7b", 32, 4096, 32, "facebook/opt-6.7b config.json"),
        _opt("opt-13b", 40, 5120, 40, "facebook/opt-13b config.json"),
        _opt("opt-30b", 48, 7168, 56, "facebook/opt-30b config.json"),
        _opt("opt-66b", 64, 9216, 72, "facebook/opt-66b config.json"),
        _opt("opt-175b", 96, 12288, 96, "OPT paper, table 1"),
        _llama("llama-7b", (32, 4096, 32, 32, 11008), 32000, 2048, "huggyllama/llama-7b"),
        _llama("llama-13b", (40, 5120, 40, 40, 13824), 32000, 2048, "huggyllama/llama-13b"),
        _llama("llama-2-7b", (32, 4096, 32, 32, 11008), 32000, 4096, "meta-llama/Llama-2-7b-hf"),
        _llama("llama-2-13b", (40, 5120, 40, 40, 13824), 32000, 4096, "meta-llama/Llama-2-13b-hf"),
        _llama("llama-2-70b", (80, 8192, 64, 8, 28672), 32000, 4096, "meta-llama/Llama-2-70b-hf"),
        _llama("llama-3-8b", (32, 4096, 32, 8, 14336), 128256, 8192, "meta-llama/Meta-Llama-3-8B"),
        _llama(
            "llama-3-70b", (80, 8192, 64, 8, 28672), 128256, 8192, "meta-llama/Meta-Llama-3-70B"
        ),
        _llama("mistral-7b", (32, 4096, 32, 8, 14336), 32768, 32768, "mistralai/Mistral-7B-v0.3"),
        _llama(
            "qwen2.5-7b",
            (28, 3584, 28, 4, 18944),
            152064,
            32768,
            "Qwen/Qwen2.5-7B-Instruct",
            bias=True,
        ),
        _llama("qwen3-8b", (36, 4096, 32, 8, 12288), 151936, 40960, "Qwen/Qwen3-8B", qk_norm=True),
        _llama(
            "qwen3-0.6b",
            (28, 1024, 16, 8, 3072),
            151936,
            40960,
            "Qwen/Qwen3-0.6B",
            head_dim=128,
            tied=True,
            qk_norm=True,
        ),
        _llama("tinyllama-1.1b", (22, 2048, 32, 4, 5632), 32000, 2048, "TinyLlama/TinyLlama_v1.1"),
        _llama(
            "smollm2-135m",
            (30, 576, 9, 3, 1536),
            49152,
            8192,
            "HuggingFaceTB/SmolLM2-135M",
            tied=True,
        ),
    )
}


def find_model(name: str) -> ModelShape:
    """Give a model by a folder or a config.json, by its name, or by its id on the hub.

    What lies on the disk goes first, whatever it is called.

    Raises:
        ConfigError: There is none of that name; the message names similar ones, or all.
        ModelError: The config.json can't be read.

    >>> find_model("meta-llama/Llama-2-13b-hf").name
    'llama-2-13b'
    """
    plain = normal(name.rpartition("/")[2]).removeprefix("meta-").removesuffix("-hf")
    file = Path(name, "config.json") if isdir(name) else Path(name)
    if file.suffix == ".json" and (isfile(file) or plain not in MODELS):
        return from_config(file.resolve().parent.name, parse_config(read_json(file)), str(file))
    if plain in MODELS:
        return MODELS[plain]
    raise ConfigError(
        f"no model {name!r:.80} is known: {suggestion(plain, MODELS)} (or give a folder with a "
        "config.json)"
    )
