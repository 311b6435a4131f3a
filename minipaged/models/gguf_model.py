"""What a GGUF file calls things -> what Hugging Face calls them: the configuration and the weights.

Contract: the result is an ordinary config.json, so `hf_config` checks both kinds of model alike.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Final

from minipaged.errors import ModelError
from minipaged.models.gguf import GGUFHeader
from minipaged.models.json_fields import JsonFields

_ARCHITECTURES: Final = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_DTYPES: Final = {0: "float32", 1: "float16"}  # packed kinds lose nothing that matters in bfloat16

_OUTSIDE: Final = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_INSIDE: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
ROPE_FACTORS = "rope_freqs.weight"


def weight_name(name: str) -> str | None:
    """Translate a tensor's name; None: it is no weight of ours.

    >>> weight_name("blk.3.attn_output.weight")
    'model.layers.3.self_attn.o_proj.weight'
    """
    stem, _, suffix = name.rpartition(".")
    if stem in _OUTSIDE:
        return f"{_OUTSIDE[stem]}.{suffix}"
    block, _, layer_and_part = stem.partition(".")
    layer, _, part = layer_and_part.partition(".")
    if block == "blk" and part in _INSIDE:
        return f"model.layers.{layer}.{_INSIDE[part]}.{suffix}"
    return None


def hf_config(header: GGUFHeader) -> dict[str, Any]:
    """Write the config.json that the metadata amounts to.

    Raises:
        ModelError: The architecture is not supported, or an entry is missing.
    """
    fields = JsonFields(header.metadata, str(header.path))
    family = fields.text("general.architecture")
    if family not in _ARCHITECTURES:
        names = ", ".join(_ARCHITECTURES)
        raise ModelError(f"{header.path}: architecture {family!r} is not supported ({names})")
    embedding = header.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelError(f"{header.path}: there is no tensor token_embd.weight")
    sizes = _sizes(fields, family)
    config = {
        "architectures": [_ARCHITECTURES[family]],
        "model_type": family,
        "vocab_size": embedding.shape[0],
        **sizes,
        "rms_norm_eps": fields.number(f"{family}.attention.layer_norm_rms_epsilon"),
        "rope_theta": fields.number(f"{family}.rope.freq_base", 10_000.0),
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "attention_bias": family == "llama" and "blk.0.attn_q.bias" in header.tensors,
        "bos_token_id": header.metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": _end_ids(header.metadata),
        "torch_dtype": _DTYPES.get(embedding.kind, "bfloat16"),
    }
    scaling = _rope_scaling(header, fields, family)
    return {**config, "rope_scaling": scaling} if scaling else config


def _sizes(fields: JsonFields, family: str) -> dict[str, int]:
    heads = fields.integer(f"{family}.attention.head_count")
    hidden = fields.integer(f"{family}.embedding_length")
    turned = fields.integer(f"{family}.rope.dimension_count", hidden // heads)
    return {
        "hidden_size": hidden,
        "intermediate_size": fields.integer(f"{family}.feed_forward_length"),
        "num_hidden_layers": fields.integer(f"{family}.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": fields.integer(f"{family}.attention.head_count_kv", heads),
        "head_dim": fields.integer(f"{family}.attention.key_length", turned),
        "max_position_embeddings": fields.integer(f"{family}.context_length"),
    }


def _end_ids(metadata: dict[str, Any]) -> list[Any]:
    keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    return list(dict.fromkeys(metadata[key] for key in keys if key in metadata))


def _rope_scaling(header: GGUFHeader, fields: JsonFields, family: str) -> dict[str, Any] | None:
    if ROPE_FACTORS in header.tensors:
        return _llama3_scaling(header, fields, family)
    prefix = f"{family}.rope.scaling"
    kind = fields.text(f"{prefix}.type", "none")
    if kind == "none":
        return None
    scaling = {"rope_type": kind, "factor": fields.number(f"{prefix}.factor")}
    original = fields.integer(f"{prefix}.original_context_length", None)
    return {**scaling, "original_max_position_embeddings": original} if original else scaling


def _llama3_scaling(header: GGUFHeader, fields: JsonFields, family: str) -> dict[str, Any]:
    """Find the scaling whose factors the file lists: GGUF keeps these and not the rule."""
    count = math.prod(header.tensors[ROPE_FACTORS].shape)
    if count > 1 << 12:
        raise ModelError(f"{header.path}: {ROPE_FACTORS} has {count} entries")
    listed = struct.unpack(f"<{count}f", header.read(ROPE_FACTORS, 4 * count))
    base = fields.number(f"{family}.rope.freq_base", 10_000.0)
    rule = {
        "rope_type": "llama3",
        "factor": max(listed),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    for pair, factor in enumerate(listed):
        turns = 8192 * base ** (-pair / count) / (2 * math.pi)  # within the original length
        share = min(max((turns - 1.0) / (4.0 - 1.0), 0.0), 1.0)  # of the unscaled frequency
        if not math.isclose(1 / factor, (1 - share) / max(listed) + share, rel_tol=1e-3):
            raise ModelError(f"{header.path}: {ROPE_FACTORS} is not the scaling of Llama 3")
    return rule


def interleaved_heads(header: GGUFHeader, name: str) -> int | None:
    """Give in how many heads a tensor's rows stand in llama.cpp's order; None: in ours.

    RoPE turns pairs of rows. Files of the llama family place a pair's rows side by side, Hugging
    Face places them half a head apart.
    """
    if header.metadata.get("general.architecture") != "llama":
        return None
    part = name.split(".")[2] if name.startswith("blk.") and name.count(".") == 3 else ""
    key = {"attn_q": "head_count", "attn_k": "head_count_kv"}.get(part)
    if key is None:
        return None
    fields = JsonFields(header.metadata, str(header.path))
    heads: int = fields.integer("llama.attention.head_count")
    return heads if part == "attn_q" else fields.integer(f"llama.attention.{key}", heads)
