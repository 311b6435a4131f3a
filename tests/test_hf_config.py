"""config.json: read as transformers does where it is sound, refused with its place where not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from tiny_models import SIZES

from minipaged.errors import ModelError
from minipaged.models.config import ModelConfig
from minipaged.models.hf_config import parse_config, read_config
from minipaged.models.json_fields import JsonFields

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}


def write(folder: Path, values: dict[str, Any]) -> Path:
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def sizes(model_type: str = "llama", **changes: Any) -> dict[str, Any]:
    return {"model_type": model_type, **SIZES, **changes}


def parse(values: dict[str, Any]) -> ModelConfig:
    return parse_config(JsonFields(values, "config.json"))


@pytest.mark.parametrize("family", ["Llama", "Mistral", "Qwen2", "Qwen3"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": True, "rms_norm_eps": 1e-5, "eos_token_id": [1, 2, 5]},
        {"head_dim": 16, "num_key_value_heads": 1},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
        {"rope_parameters": {**LLAMA3, "rope_theta": 5e5}},
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}},
        {"rope_parameters": {**YARN, "rope_theta": 1e4, "truncate": False}},
        {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1},
        {"sliding_window": 8, "use_sliding_window": False},
        {"sliding_window": None},
        {"attention_bias": True, "mlp_bias": True},
        {"dtype": "bfloat16"},
    ],
    ids=lambda changes: "-".join(changes) or "plain",
)
def test_reads_as_transformers_does(tmp_path: Path, family: str, changes: dict[str, Any]) -> None:
    getattr(transformers, f"{family}Config")(**{**SIZES, **changes}).save_pretrained(tmp_path)
    ours = read_config(tmp_path)
    theirs = transformers.AutoConfig.from_pretrained(tmp_path)
    assert ours.architecture == theirs.model_type
    for name in ("vocab_size", "hidden_size", "intermediate_size", "rms_norm_eps"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.num_layers == theirs.num_hidden_layers
    assert ours.num_heads == theirs.num_attention_heads
    assert ours.num_kv_heads == theirs.num_key_value_heads
    assert ours.head_dim == getattr(theirs, "head_dim", 8)
    assert ours.tie_word_embeddings == theirs.tie_word_embeddings
    ends = theirs.eos_token_id
    assert ours.eos_token_ids == (tuple(ends) if isinstance(ends, list) else (ends,))
    assert ours.dtype == str(theirs.dtype or "float32").removeprefix("torch.")
    assert_same_rope(ours, theirs.rope_parameters)
    assert_same_windows(ours, theirs)


def assert_same_rope(ours: ModelConfig, theirs: dict[str, Any]) -> None:
    assert ours.rope_theta == theirs["rope_theta"]
    if theirs["rope_type"] == "default":
        assert ours.rope_scaling is None
        return
    assert ours.rope_scaling is not None
    assert ours.rope_scaling.kind == theirs["rope_type"]
    for name, value in theirs.items():
        if name not in ("rope_type", "rope_theta"):
            assert getattr(ours.rope_scaling, name) == value


def assert_same_windows(ours: ModelConfig, theirs: Any) -> None:
    types = getattr(theirs, "layer_types", None)
    for layer in range(theirs.num_hidden_layers):
        slides = types[layer] == "sliding_attention" if types else theirs.model_type == "mistral"
        assert ours.window(layer) == (theirs.sliding_window if slides else None)


@pytest.mark.parametrize("family", ["Llama", "Mistral", "Qwen2", "Qwen3"])
@pytest.mark.parametrize("biased", [True, False])
def test_biases_and_norms_are_those_of_the_weights(family: str, biased: bool) -> None:
    values = {**SIZES, "attention_bias": biased, "mlp_bias": biased}
    config = getattr(transformers, f"{family}Config")(**values)
    names = getattr(transformers, f"{family}ForCausalLM")(config).state_dict().keys()
    ours = parse({**config.to_dict(), **values})
    prefix = "model.layers.0"
    assert ours.attention_bias == (f"{prefix}.self_attn.q_proj.bias" in names)
    assert ours.attention_out_bias == (f"{prefix}.self_attn.o_proj.bias" in names)
    assert ours.mlp_bias == (f"{prefix}.mlp.up_proj.bias" in names)
    assert ours.qk_norm == (f"{prefix}.self_attn.q_norm.weight" in names)


@pytest.mark.parametrize("scaling", [LLAMA3, YARN, {"rope_type": "linear", "factor": 2.0}])
@pytest.mark.parametrize("key", ["rope_type", "type"])
def test_both_spellings_of_rope_mean_the_same(scaling: dict[str, Any], key: str) -> None:
    old_scaling = {
        key: scaling["rope_type"],
        **{k: v for k, v in scaling.items() if k != "rope_type"},
    }
    old = parse(sizes(rope_theta=5e5, rope_scaling=old_scaling))
    new = parse(sizes(rope_parameters={**scaling, "rope_theta": 5e5}))
    assert old == new
    assert old.rope_scaling is not None


def test_dynamic_rope_is_plain_up_to_the_original_length() -> None:
    scaling = {"type": "dynamic", "factor": 4.0, "original_max_position_embeddings": 32}
    config = parse(sizes(rope_scaling=scaling))
    assert (config.rope_scaling, config.max_position_embeddings) == (None, 32)
    assert "keys in the cache keep the old one" in config.position_note
    assert (
        parse(sizes(rope_scaling={"type": "dynamic", "factor": 4.0})).max_position_embeddings == 128
    )


def test_layer_types_say_which_layers_slide() -> None:
    layers = ["sliding_attention", "full_attention"]
    values = sizes("qwen2", use_sliding_window=True, sliding_window=8, layer_types=layers)
    assert parse(values).sliding_windows == (8, None)


def test_mistral_slides_unless_told_not_to() -> None:
    assert parse(sizes("mistral")).sliding_windows == (4096, 4096)
    assert parse(sizes("mistral", sliding_window=None)).sliding_windows == ()


def test_defaults_of_old_files() -> None:
    values = sizes()
    del values["num_key_value_heads"], values["eos_token_id"]
    config = parse(values)
    assert (config.num_kv_heads, config.head_dim, config.rope_theta) == (4, 8, 10_000.0)
    assert (config.tie_word_embeddings, config.eos_token_ids) == (False, ())
    assert parse(sizes("qwen3")).head_dim == 128


def test_generation_config_has_the_last_word_on_the_end(tmp_path: Path) -> None:
    write(tmp_path, sizes())
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 8]}')
    assert read_config(tmp_path).eos_token_ids == (7, 8)
    (tmp_path / "generation_config.json").write_text("{}")
    assert read_config(tmp_path).eos_token_ids == (1,)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": "end"}')
    with pytest.raises(ModelError, match=r"generation_config\.json: eos_token_id is 'end'"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    "values",
    [
        {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"},
        {"architectures": ["LlamaForSequenceClassification"], "model_type": "llama"},
        {"model_type": "mixtral"},
        {},
    ],
)
def test_other_architectures_are_refused_by_name(values: dict[str, Any]) -> None:
    named = values.get("architectures", [values.get("model_type")])[0]
    with pytest.raises(
        ModelError, match="supported: LlamaForCausalLM, MistralForCausalLM"
    ) as caught:
        parse({**SIZES, **values})
    assert str(named) in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("vocab_size", None, "vocab_size is missing"),
        ("vocab_size", 0, "vocab_size is 0, expected a whole number from 1"),
        ("hidden_size", "32", "hidden_size is '32'"),
        ("hidden_size", 33, "a multiple of num_attention_heads = 4"),
        ("hidden_size", 10**30, "hidden_size is 1000"),
        ("num_hidden_layers", 10**9, "from 1 to 1024"),
        ("num_hidden_layers", True, "num_hidden_layers is True"),
        ("num_attention_heads", 4.0, "num_attention_heads is 4.0"),
        ("num_key_value_heads", 3, "a divisor of num_attention_heads = 4"),
        ("num_key_value_heads", 8, "from 1 to 4"),
        ("head_dim", 7, "it must be even"),
        ("rms_norm_eps", -1, "rms_norm_eps is -1"),
        ("rms_norm_eps", float("nan"), "rms_norm_eps is nan"),
        ("rope_theta", 10**400, "rope_theta is 1000"),
        ("tie_word_embeddings", "yes", "expected true or false"),
        ("eos_token_id", [1, "x"], "a token id or a list of them"),
        ("eos_token_id", -1, "eos_token_id is -1"),
        ("hidden_act", "gelu", "hidden_act is 'gelu', expected silu"),
        ("quantization_config", {"bits": 4}, "quantization_config"),
        ("partial_rotary_factor", 0.5, "partial_rotary_factor is 0.5"),
        ("rope_scaling", {"rope_type": "longrope"}, "'longrope' is not supported"),
        ("rope_scaling", {"rope_type": "linear"}, "rope_scaling: factor is missing"),
        ("rope_scaling", {"rope_type": "linear", "factor": 0}, "rope_scaling: factor is 0"),
        ("rope_scaling", {**LLAMA3, "high_freq_factor": 1.0}, "more than low_freq_factor"),
        ("rope_scaling", {"full_attention": {"rope_type": "default"}}, "RoPE of their own"),
        ("rope_scaling", ["linear"], "expected an object"),
        ("architectures", "LlamaForCausalLM", "a list of strings"),
        ("torch_dtype", 16, "torch_dtype is 16"),
    ],
)
def test_wrong_values_are_refused_with_their_place(key: str, value: Any, complaint: str) -> None:
    with pytest.raises(ModelError, match=r"^config\.json") as caught:
        parse(sizes(**{key: value}))
    assert complaint in str(caught.value)
    assert len(str(caught.value)) < 250


def test_wrong_layer_types_are_refused() -> None:
    for types in (["sliding_attention"], ["x", "full_attention"], "sliding_attention"):
        with pytest.raises(ModelError, match="layer_types"):
            parse(sizes("qwen2", use_sliding_window=True, layer_types=types))


def test_nothing_but_errors_of_ours(tmp_path: Path) -> None:
    odd: list[Any] = [None, -1, 0, 2.5, "x", [], {}, True, 1e308, 10**30, [[]], {"a": {}}]
    known = [*sizes(), "head_dim", "rope_theta", "rope_scaling", "rope_parameters", "dtype"]
    for family in ("llama", "mistral", "qwen2", "qwen3"):
        for key in [*known, "sliding_window", "use_sliding_window", "layer_types"]:
            for value in odd:
                try:
                    parse({**sizes(family), key: value})
                except ModelError:
                    continue


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"a": ' * 100_000, b"9" * 5000],
)
def test_files_that_are_no_object_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ModelError, match=r"config\.json"):
        read_config(tmp_path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    text = json.dumps(sizes())
    for size in range(len(text)):
        (tmp_path / "config.json").write_text(text[:size])
        with pytest.raises(ModelError, match=r"config\.json: not valid JSON"):
            read_config(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json: can't be read: No such file"):
        read_config(tmp_path)
