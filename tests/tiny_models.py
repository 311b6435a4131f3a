"""Small tokenizers, random models and GGUF files for the tests of reading models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import tokenizers
import torch
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [
    "The moon is far away, and the sea is near. It's 1234 o'clock!",
    "Once upon a time there was a naïve café owner who couldn't count to 17.",
    "def main():\n\treturn {'a': [1, 2, 3]}  # 🌊🌙 ähnlich, 日本語",
] * 3
BOS, EOS = "<s>", "</s>"

TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] | trim }}"
    "{{ eos_token }}\n{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)

SIZES: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
    "bos_token_id": 0,
    "eos_token_id": 1,
}


def byte_level_tokenizer(adds_bos: bool = False, pre: Any = None) -> tokenizers.Tokenizer:
    """BPE over bytes, as Llama 3, Qwen and SmolLM have it."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre or pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{BOS} $A", special_tokens=[(BOS, 0)]
        )
    return tokenizer


def sentencepiece_tokenizer() -> tokenizers.Tokenizer:
    """BPE over characters with byte fallback, as Llama 2 and Mistral have it."""
    model: Any = models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1),
        ]
    )
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<unk>", BOS, EOS, *byte_tokens],
        limit_alphabet=60,
        show_progress=False,
    )
    tokenizer.train_from_iterator([text.replace(" ", "▁") for text in CORPUS], trainer)
    return _without_added_bytes(tokenizer)


def _without_added_bytes(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Byte tokens are part of the vocabulary, not special: text that spells one is not one."""
    import json

    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [t for t in state["added_tokens"] if not t["content"].startswith("<0x")]
    return tokenizers.Tokenizer.from_str(json.dumps(state))


def tiny_model(family: str, **changes: Any) -> Any:
    """A random model of transformers: "Llama", "Mistral", "Qwen2" or "Qwen3"."""
    torch.manual_seed(0)
    sizes = {**SIZES, **({"head_dim": 8} if family == "Qwen3" else {}), **changes}
    config = getattr(transformers, f"{family}Config")(**sizes)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    return model


def save_model(folder: Path, family: str = "Llama", **changes: Any) -> Any:
    """Save a random model and a tokenizer in Hugging Face's layout."""
    shard_size = changes.pop("max_shard_size", "1GB")
    model = tiny_model(family, **changes)
    model.save_pretrained(folder, max_shard_size=shard_size)
    byte_level_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return model


_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(
    path: Path,
    family: str = "llama",
    tokenizer: tokenizers.Tokenizer | None = None,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    pre: str = "gpt-2",
    extra: dict[str, np.ndarray] | None = None,
    **changes: Any,
) -> Any:
    """Write a random model as llama.cpp's converter does, and give transformers' model."""
    names = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}
    model = tiny_model(names[family], **changes)
    config = model.config
    writer = gguf.GGUFWriter(path, family)
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    head_dim = getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)
    if family == "llama":
        writer.add_rope_dimension_count(head_dim)
    else:
        writer.add_key_length(head_dim)
    _write_tokenizer(writer, tokenizer or byte_level_tokenizer(), pre)
    for name, tensor in _llama_cpp_tensors(model, family):
        packable = tensor.ndim == 2
        packed = gguf.quantize(tensor, kind) if packable else tensor
        writer.add_tensor(name, packed, raw_dtype=kind if packable else None)
    for name, array in (extra or {}).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def _llama_cpp_tensors(model: Any, family: str) -> list[tuple[str, np.ndarray]]:
    config, tensors = model.config, []
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if family == "llama" and ".q_proj." in name:
            tensor = _interleave(tensor, config.num_attention_heads)
        if family == "llama" and ".k_proj." in name:
            tensor = _interleave(tensor, config.num_key_value_heads)
        tensors.append((_gguf_name(name), tensor.numpy()))
    return tensors


def _gguf_name(name: str) -> str:
    stem, _, suffix = name.rpartition(".")
    if stem.startswith("model.layers."):
        _, _, layer, part = stem.split(".", 3)
        return f"blk.{layer}.{_GGUF_NAMES[part]}.{suffix}"
    return f"{_GGUF_NAMES[stem]}.{suffix}"


def _interleave(tensor: torch.Tensor, heads: int) -> torch.Tensor:
    """Place a RoPE pair's rows side by side: row r of a head's first half, then r of the second."""
    rows = tensor.shape[0] // heads
    order = [
        h * rows + r + half
        for h in range(heads)
        for r in range(rows // 2)
        for half in (0, rows // 2)
    ]
    return tensor[order]


def _write_tokenizer(writer: Any, tokenizer: tokenizers.Tokenizer, pre: str) -> None:
    import json

    state = json.loads(tokenizer.to_str())
    vocab = sorted(state["model"]["vocab"].items(), key=lambda item: item[1])
    tokens = [token for token, _ in vocab]
    merges = [m if isinstance(m, str) else " ".join(m) for m in state["model"]["merges"]]
    sentencepiece = state["model"]["byte_fallback"]
    writer.add_tokenizer_model("llama" if sentencepiece else "gpt2")
    writer.add_token_list(tokens)
    specials = {token["content"] for token in state["added_tokens"]}
    kinds = [_token_kind(token, specials) for token in tokens]
    writer.add_token_types(kinds)
    if sentencepiece:
        scores = {left_right.replace(" ", ""): -float(r) for r, left_right in enumerate(merges)}
        writer.add_token_scores([scores.get(token, -1e6 - i) for i, token in enumerate(tokens)])
        writer.add_unk_token_id(0)
    else:
        writer.add_tokenizer_pre(pre)
        writer.add_token_merges(merges)
    writer.add_bos_token_id(tokens.index(BOS))
    writer.add_eos_token_id(tokens.index(EOS))
    writer.add_chat_template(TEMPLATE)


def _token_kind(token: str, specials: set[str]) -> int:
    if token == "<unk>":
        return 2
    if token in specials:
        return 3
    return 6 if token.startswith("<0x") and token.endswith(">") else 1
