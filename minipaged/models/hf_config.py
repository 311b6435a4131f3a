"""config.json of a Hugging Face model -> ModelConfig.

Contract: a value means what transformers means by it, defaults included; what the transformer can't
run is refused by name. Both spellings of RoPE are read: `rope_theta` beside `rope_scaling`, and the
`rope_parameters` of transformers 5.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal, cast

from minipaged.errors import ModelError
from minipaged.models.config import ModelConfig, RopeScaling
from minipaged.models.json_fields import REQUIRED, JsonFields, read_json

Architecture = Literal["llama", "mistral", "qwen2", "qwen3"]

ARCHITECTURES: Final[dict[str, Architecture]] = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
DTYPES = ("float32", "bfloat16", "float16")
_DYNAMIC_NOTE = "beyond it dynamic RoPE changes its base, and keys in the cache keep the old one"
_MAX_LAYERS = 1024
_MAX_WIDTH = 1 << 18
_MAX_VOCAB = 1 << 24
_MAX_POSITIONS = 1 << 28


def read_config(folder: Path) -> ModelConfig:
    """Read config.json, and the end-of-text ids of generation_config.json, which go first.

    Raises:
        ModelError: A file is missing or wrong, or asks for what the transformer can't do.
    """
    config = read_json(folder / "config.json")
    generation = folder / "generation_config.json"
    if generation.exists():
        ids = read_json(generation)
        if "eos_token_id" in ids:
            _token_ids(ids)
            ends = {"eos_token_id": ids.values["eos_token_id"]}
            config = JsonFields({**config.values, **ends}, config.where)
    return parse_config(config)


def parse_config(fields: JsonFields) -> ModelConfig:
    """Turn the fields of a config.json into a ModelConfig."""
    architecture = _architecture(fields)
    _refuse_variants(fields)
    hidden_size = fields.integer("hidden_size", high=_MAX_WIDTH)
    num_layers = fields.integer("num_hidden_layers", high=_MAX_LAYERS)
    num_heads = fields.integer("num_attention_heads", high=_MAX_WIDTH)
    rope_theta, rope_scaling, max_positions, position_note = _rope(fields)
    bias = fields.flag("attention_bias", False) and architecture in ("llama", "qwen3")
    return ModelConfig(
        architecture=architecture,
        vocab_size=fields.integer("vocab_size", high=_MAX_VOCAB),
        hidden_size=hidden_size,
        intermediate_size=fields.integer("intermediate_size", high=_MAX_WIDTH),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=_num_kv_heads(fields, architecture, num_heads),
        head_dim=_head_dim(fields, architecture, hidden_size, num_heads),
        max_position_embeddings=max_positions,
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
        rope_theta=rope_theta,
        rope_scaling=rope_scaling,
        tie_word_embeddings=fields.flag("tie_word_embeddings", False),
        eos_token_ids=_token_ids(fields),
        bos_token_id=fields.integer("bos_token_id", None, low=0, high=_MAX_VOCAB),
        attention_bias=bias or architecture == "qwen2",
        attention_out_bias=bias,
        mlp_bias=fields.flag("mlp_bias", False) and architecture == "llama",
        qk_norm=architecture == "qwen3",
        sliding_windows=_sliding_windows(fields, architecture, num_layers),
        dtype=_dtype(fields),
        position_note=position_note,
    )


def _architecture(fields: JsonFields) -> Architecture:
    supported = ", ".join(ARCHITECTURES)
    named = fields.strings("architectures", [])
    for name in named:
        if name not in ARCHITECTURES:
            raise ModelError(f"{fields.where}: {name!r} is not supported (supported: {supported})")
    model_type = fields.text("model_type", None)
    if model_type in ARCHITECTURES.values():
        return cast(Architecture, model_type)
    if model_type is None and named:
        return ARCHITECTURES[named[0]]
    raise ModelError(
        f"{fields.where}: model_type {model_type!r} is not supported (supported: {supported})"
    )


def _refuse_variants(fields: JsonFields) -> None:
    if fields.text("hidden_act", "silu") not in ("silu", "swish"):
        fields.refuse("hidden_act", "silu")
    if fields.number("partial_rotary_factor", 1.0) != 1.0:
        fields.refuse("partial_rotary_factor", "1")
    if "quantization_config" in fields:
        fields.refuse("quantization_config", "none: packed safetensors can't be read, GGUF can")


def _num_kv_heads(fields: JsonFields, architecture: Architecture, num_heads: int) -> int:
    default = num_heads if architecture == "llama" else REQUIRED
    num_kv_heads = cast(int, fields.integer("num_key_value_heads", default, high=num_heads))
    if num_heads % num_kv_heads:
        fields.refuse("num_key_value_heads", f"a divisor of num_attention_heads = {num_heads}")
    return num_kv_heads


def _head_dim(fields: JsonFields, architecture: Architecture, hidden: int, heads: int) -> int:
    default = 128 if architecture == "qwen3" else None
    head_dim = fields.integer("head_dim", default, high=_MAX_WIDTH)
    if head_dim is None:
        if hidden % heads:
            fields.refuse("hidden_size", f"a multiple of num_attention_heads = {heads}")
        head_dim = hidden // heads
    if head_dim % 2:
        raise ModelError(
            f"{fields.where}: head_dim is {head_dim}, RoPE turns pairs: it must be even"
        )
    return cast(int, head_dim)


def _rope(fields: JsonFields) -> tuple[float, RopeScaling | None, int, str]:
    """Give the base, the scaling, the number of positions that these allow, and why no more."""
    rope = fields.object("rope_scaling" if "rope_scaling" in fields else "rope_parameters")
    if any(isinstance(value, dict) for value in rope.values.values()):
        raise ModelError(f"{rope.where}: layers with RoPE of their own are not supported")
    base = rope.number("rope_theta", fields.number("rope_theta", 10_000.0))
    positions = fields.integer("max_position_embeddings", high=_MAX_POSITIONS)
    kind = rope.text("rope_type", rope.text("type", "default"))
    if rope.number("partial_rotary_factor", 1.0) != 1.0:
        rope.refuse("partial_rotary_factor", "1")
    if kind == "default":
        return base, None, positions, ""
    if kind == "dynamic":
        original = rope.integer("original_max_position_embeddings", positions, high=positions)
        return base, None, original, _DYNAMIC_NOTE
    if kind not in _SCALINGS:
        supported = ", ".join(["default", "dynamic", *_SCALINGS])
        raise ModelError(f"{rope.where}: rope_type {kind!r} is not supported ({supported})")
    if base == 1:
        raise ModelError(f"{rope.where}: with a rope_theta of 1 all pairs turn alike: no {kind}")
    return base, _SCALINGS[kind](rope, positions), positions, ""


def _linear(rope: JsonFields, positions: int) -> RopeScaling:
    return RopeScaling("linear", rope.number("factor"))


def _llama3(rope: JsonFields, positions: int) -> RopeScaling:
    low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
    if high <= low:
        rope.refuse("high_freq_factor", f"more than low_freq_factor = {low}")
    original = rope.integer("original_max_position_embeddings", positions, high=_MAX_POSITIONS)
    return RopeScaling("llama3", rope.number("factor"), original, low, high)


def _yarn(rope: JsonFields, positions: int) -> RopeScaling:
    original = rope.integer("original_max_position_embeddings", positions, high=_MAX_POSITIONS)
    return RopeScaling(
        "yarn",
        rope.number("factor", positions / original),
        original,
        beta_fast=rope.number("beta_fast", 32.0),
        beta_slow=rope.number("beta_slow", 1.0),
        attention_factor=rope.number("attention_factor", None),
        mscale=rope.number("mscale", None, low=-1.0),
        mscale_all_dim=rope.number("mscale_all_dim", None, low=-1.0),
        truncate=rope.flag("truncate", True),
    )


_SCALINGS: Final = {"linear": _linear, "llama3": _llama3, "yarn": _yarn}


def _sliding_windows(
    fields: JsonFields, architecture: Architecture, num_layers: int
) -> tuple[int | None, ...]:
    if architecture == "llama":
        return ()
    if architecture == "mistral":  # null switches it off, leaving it out does not
        default = None if "sliding_window" in fields.values else 4096
        window = fields.integer("sliding_window", default, high=_MAX_POSITIONS)
        return (window,) * num_layers if window else ()
    if not fields.flag("use_sliding_window", False):
        return ()
    window = fields.integer("sliding_window", None, high=_MAX_POSITIONS)
    slides = _sliding_layers(fields, num_layers)
    return tuple(window if slide else None for slide in slides) if window and any(slides) else ()


def _sliding_layers(fields: JsonFields, num_layers: int) -> list[bool]:
    first = fields.integer("max_window_layers", 28, low=0)
    types = fields.strings("layer_types", None)
    if types is None:
        return [layer >= first for layer in range(num_layers)]
    if len(types) != num_layers or set(types) - {"sliding_attention", "full_attention"}:
        fields.refuse("layer_types", f"{num_layers} of sliding_attention or full_attention")
    return [kind == "sliding_attention" for kind in types]


def _token_ids(fields: JsonFields) -> tuple[int, ...]:
    value: Any = fields.values.get("eos_token_id")
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(entry) is int and 0 <= entry < _MAX_VOCAB for entry in ids):
        fields.refuse("eos_token_id", "a token id or a list of them")
    return tuple(ids)


def _dtype(fields: JsonFields) -> str:
    name = cast(str, fields.text("dtype", fields.text("torch_dtype", "float32")))
    name = name.removeprefix("torch.")
    return name if name in DTYPES else "float32"
