"""The transformer gives transformers' logits, whatever the blocks, chunks and batches.

Models are small and random, with a spread that makes attention sharp (std 0.2, norms far from 1),
in fp32. Unused slots hold large numbers, blocks are scrambled.

Bugs that were planted, and found by a test here: RoPE that turns the other way; llama3's blend by
wavelength and not by turns; YaRN's magnitude left out; q_norm after RoPE; a window on every layer
where only some have one; k and v swapped in the fused projection; gate and up swapped; an MLP slice
that is left out; a bias forgotten.
"""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import minipaged.models.parameters as parameters_module
import minipaged.models.transformer as transformer_module
from minipaged.engine import kv_cache
from minipaged.engine.attention import build_metadata, get_attention_backend
from minipaged.errors import ModelError
from minipaged.models.config import ModelConfig, RopeScaling
from minipaged.models.linear import PackedLinear, PlainLinear, choose_linear
from minipaged.models.parameters import weight_shapes
from minipaged.models.rope import RotaryEmbedding, rotate_
from minipaged.models.transformer import Transformer

transformers = pytest.importorskip("transformers")

VOCAB, HIDDEN, LAYERS, BLOCK = 101, 48, 3, 4
NUM_BLOCKS = 64
POISON = 1e4
CPU = torch.device("cpu")

LLAMA3 = RopeScaling("llama3", 8.0, 32, low_freq_factor=1.0, high_freq_factor=4.0)
YARN = RopeScaling("yarn", 4.0, 64)
ROPES: dict[str, RopeScaling] = {
    "linear": RopeScaling("linear", 2.5),
    "llama3": LLAMA3,
    "llama3 narrow": replace(LLAMA3, factor=3.0, low_freq_factor=2.0, high_freq_factor=3.0),
    "yarn": YARN,
    "yarn betas": replace(YARN, beta_fast=20.0, beta_slow=2.0, truncate=False),
    "yarn factor": replace(YARN, attention_factor=1.3),
    "yarn mscale": replace(YARN, mscale=0.7, mscale_all_dim=1.4),
    "yarn one step": replace(YARN, original_max_position_embeddings=7, beta_fast=1, beta_slow=1),
}


def make_config(architecture: Any = "llama", **changes: Any) -> ModelConfig:
    config = ModelConfig(
        architecture=architecture,
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=80,
        num_layers=LAYERS,
        num_heads=6,
        num_kv_heads=2,
        head_dim=16,  # not hidden_size / num_heads
        max_position_embeddings=512,
        rms_norm_eps=1e-5,
        rope_theta=5000.0,
        tie_word_embeddings=False,
        attention_bias=architecture == "qwen2",
        qk_norm=architecture == "qwen3",
    )
    return replace(config, **changes)


def rope_parameters(config: ModelConfig) -> dict[str, Any]:
    scaling = config.rope_scaling
    if scaling is None:
        return {"rope_type": "default", "rope_theta": config.rope_theta}
    fields = {"linear": ["factor"]}.get(scaling.kind) or [
        name
        for name in vars(scaling)
        if name != "kind" and (scaling.kind == "llama3") == (name.endswith("freq_factor"))
    ]
    fields = [*fields, "factor", "original_max_position_embeddings"]
    given = {name: getattr(scaling, name) for name in fields if getattr(scaling, name)}
    if scaling.kind == "yarn":
        given["truncate"] = scaling.truncate
    return {"rope_type": scaling.kind, "rope_theta": config.rope_theta, **given}


def make_twin(config: ModelConfig) -> Any:
    """Build transformers' model of the same configuration."""
    name = config.architecture.capitalize()
    options: dict[str, Any] = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_position_embeddings,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_parameters": rope_parameters(config),
        "tie_word_embeddings": config.tie_word_embeddings,
        "initializer_range": 0.2,
        "attention_bias": config.attention_bias,
        "mlp_bias": config.mlp_bias,
    }
    if config.sliding_windows:
        options |= {
            "sliding_window": max(window or 0 for window in config.sliding_windows),
            "use_sliding_window": True,
            "layer_types": [
                "sliding_attention" if window else "full_attention"
                for window in config.sliding_windows
            ],
        }
    torch.manual_seed(0)
    twin = getattr(transformers, f"{name}ForCausalLM")(
        getattr(transformers, f"{name}Config")(**options)
    ).eval()
    with torch.no_grad():
        for name, parameter in twin.named_parameters():
            if "norm" in name or name.endswith("bias"):
                parameter += torch.randn_like(parameter) * 0.3
    return twin


def make_pair(config: ModelConfig, backend: str = "auto") -> tuple[Transformer, Any]:
    twin = make_twin(config)
    model = Transformer(config, attention=get_attention_backend(backend, "cpu"))
    model.load_weights((name, tensor.clone()) for name, tensor in twin.state_dict().items())
    return model, twin


def make_ids(length: int) -> Tensor:
    generator = torch.Generator().manual_seed(length)
    return torch.randint(0, VOCAB, (length,), generator=generator)


def run_paged(
    model: Transformer, prompts: Sequence[Tensor], chunks: Sequence[Sequence[int]] | None = None
) -> list[Tensor]:
    """Give the logits at every position; step s computes `chunks[s][i]` tokens of prompt i."""
    config = model.config
    cache = kv_cache.allocate(config, NUM_BLOCKS, BLOCK, model.dtype)
    cache += POISON
    free = random.Random(0).sample(range(NUM_BLOCKS), NUM_BLOCKS)
    tables = [[free.pop() for _ in range(-(-len(prompt) // BLOCK))] for prompt in prompts]
    done = [0] * len(prompts)
    logits: list[list[Tensor]] = [[] for _ in prompts]
    for counts in chunks or [[len(prompt) for prompt in prompts]]:
        active = [i for i, count in enumerate(counts) if count]
        spans = [range(done[i], done[i] + counts[i]) for i in active]
        metadata = build_metadata(
            [len(span) for span in spans],
            [span.stop for span in spans],
            [tables[i][: -(-span.stop // BLOCK)] for i, span in zip(active, spans, strict=True)],
            [
                tables[i][p // BLOCK] * BLOCK + p % BLOCK
                for i, span in zip(active, spans, strict=True)
                for p in span
            ],
        )
        ids = torch.cat([prompts[i][list(s)] for i, s in zip(active, spans, strict=True)])
        positions = torch.tensor([p for span in spans for p in span])
        step = model.compute_logits(model.forward(ids, positions, cache, metadata))
        assert step.dtype == torch.float32
        for i, rows in zip(active, step.split([len(span) for span in spans]), strict=True):
            logits[i].append(rows)
            done[i] += len(rows)
    return [torch.cat(rows) for rows in logits]


def assert_equal_logits(
    model: Transformer, twin: Any, prompts: Sequence[Tensor], **how: Any
) -> None:
    for prompt, logits in zip(prompts, run_paged(model, prompts, **how), strict=True):
        with torch.no_grad():
            expected = twin(prompt[None]).logits[0]
        assert float(expected.std()) > 0.5, "the twin says nothing"
        assert float((logits - expected).abs().max()) < 2e-4


FAMILIES: dict[str, ModelConfig] = {
    "llama": make_config(),
    "llama mha tied": make_config(num_kv_heads=6, tie_word_embeddings=True),
    "llama mqa": make_config(num_kv_heads=1, head_dim=8),
    "llama biases": make_config(attention_bias=True, attention_out_bias=True, mlp_bias=True),
    "mistral": make_config("mistral", head_dim=20),
    "mistral window": make_config("mistral", sliding_windows=(6,) * LAYERS),
    "qwen2": make_config("qwen2", head_dim=8, tie_word_embeddings=True),
    "qwen2 windows": make_config("qwen2", head_dim=8, sliding_windows=(None, 9, 9)),
    "qwen3": make_config("qwen3", num_kv_heads=3),
    "qwen3 biases": make_config("qwen3", attention_bias=True, attention_out_bias=True),
    "qwen3 windows": make_config("qwen3", sliding_windows=(5, None, 5), tie_word_embeddings=True),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_equal_transformers(name: str) -> None:
    model, twin = make_pair(FAMILIES[name])
    lengths = [1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 47]
    assert_equal_logits(model, twin, [make_ids(length) for length in lengths])


@pytest.mark.parametrize("backend", ["sdpa", "matmul", "reference"])
@pytest.mark.parametrize("name", ["llama", "qwen3 windows"])
def test_chunks_and_mixed_batches_change_nothing(name: str, backend: str) -> None:
    model, twin = make_pair(FAMILIES[name], backend)
    prompts = [make_ids(length) for length in (23, 9, 6)]
    chunks = [[7, 0, 1], [1, 9, 2], [8, 0, 1], [1, 0, 1], [6, 0, 1]]
    assert_equal_logits(model, twin, prompts, chunks=chunks)


@pytest.mark.parametrize("rope", ROPES)
def test_rope_scalings_equal_transformers(rope: str) -> None:
    model, twin = make_pair(make_config(rope_scaling=ROPES[rope]))
    assert_equal_logits(model, twin, [make_ids(90)], chunks=[[60], [29], [1]])


def test_rope_turns_pairs_and_keeps_their_length() -> None:
    config = make_config(head_dim=4, rope_theta=100.0)
    heads = torch.tensor([[[1.0, 0.0, 0.0, 2.0]]])
    rotate_(heads, *RotaryEmbedding(config, CPU)(torch.tensor([3]), torch.float32))
    angles = torch.tensor([3.0, 0.3])
    expected = torch.stack([angles.cos(), angles.sin()]) * torch.tensor([1.0, 0.0])
    expected += torch.stack([-angles.sin(), angles.cos()]) * torch.tensor([0.0, 2.0])
    torch.testing.assert_close(heads.flatten(), expected.flatten())


def test_long_batches_go_slice_by_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    model, twin = make_pair(FAMILIES["llama"])
    monkeypatch.setattr(transformer_module, "SLICE_TOKENS", 5)
    assert_equal_logits(model, twin, [make_ids(12), make_ids(11)])


def test_bf16_stays_near_fp32() -> None:
    config = replace(FAMILIES["llama"], head_dim=64)
    twin = make_twin(config)
    model = Transformer(config, torch.bfloat16)
    model.load_weights(twin.state_dict().items())
    prompts = [make_ids(33), make_ids(8)]
    for prompt, logits in zip(prompts, run_paged(model, prompts, [[30, 8], [3, 0]]), strict=True):
        with torch.no_grad():
            expected = twin(prompt[None]).logits[0]
        assert functional.cosine_similarity(logits, expected).min() > 0.99


def named_weights(config: ModelConfig) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = weight_shapes(config).items()
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes}


def load(config: ModelConfig, weights: dict[str, Tensor]) -> None:
    Transformer(config).load_weights(weights.items())


def test_a_missing_weight_is_named() -> None:
    config = make_config()
    weights = named_weights(config)
    del weights["model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(ModelError, match=r"1 of 30 .*missing.*model.layers.1.mlp.up_proj.weight"):
        load(config, weights)


def test_an_unexpected_weight_is_named() -> None:
    config = make_config()
    weights = named_weights(config) | {"model.layers.3.mlp.up_proj.weight": torch.zeros(80, 48)}
    with pytest.raises(ModelError, match=r"unexpected.*model.layers.3.mlp.up_proj.weight"):
        load(config, weights)


def test_a_wrong_shape_is_named_with_both_shapes() -> None:
    config = make_config()
    weights = named_weights(config) | {"model.norm.weight": torch.zeros(47)}
    with pytest.raises(ModelError, match=r"model.norm.weight has shape \[47\].*\[48\]"):
        load(config, weights)


def test_a_weight_given_twice_is_named() -> None:
    weights = list(named_weights(make_config()).items())
    with pytest.raises(ModelError, match=r"model.embed_tokens.weight is given twice"):
        Transformer(make_config()).load_weights([*weights, weights[0]])


def test_nothing_runs_before_the_weights_are_there() -> None:
    with pytest.raises(ModelError, match="no weights"):
        run_paged(Transformer(make_config()), [make_ids(3)])


def test_a_failed_load_leaves_the_model_as_it_was() -> None:
    model, twin = make_pair(make_config())
    with pytest.raises(ModelError, match="missing"):
        model.load_weights(list(twin.state_dict().items())[:5])
    assert_equal_logits(model, twin, [make_ids(5)])


def test_leftovers_of_other_programs_are_ignored() -> None:
    config = make_config(tie_word_embeddings=True)
    twin = make_twin(config)
    weights = dict(twin.state_dict()) | {
        "lm_head.weight": twin.lm_head.weight.detach(),
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(8),
    }
    model = Transformer(config)
    model.load_weights(weights.items())
    assert_equal_logits(model, twin, [make_ids(5)])


def test_weights_do_not_stay_in_memory_beside_their_packed_form() -> None:
    config = make_config()
    if choose_linear(torch.bfloat16, CPU) is not PackedLinear:
        pytest.skip("no packed layers on this machine")
    alive: list[weakref.ref[Tensor]] = []

    def stream() -> Iterator[tuple[str, Tensor]]:
        for name, tensor in named_weights(config).items():
            tensor = tensor.bfloat16()
            if name.endswith("proj.weight"):
                alive.append(weakref.ref(tensor))
            yield name, tensor

    model = Transformer(config, torch.bfloat16)
    model.load_weights(stream())
    gc.collect()
    assert len(alive) == 7 * LAYERS
    assert not [ref for ref in alive if ref() is not None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("rows", "inner", "outer"), [(1, 48, 80), (5, 7, 33), (130, 64, 16)])
def test_packed_linear_equals_f_linear(
    rows: int, inner: int, outer: int, bias: bool, dtype: torch.dtype
) -> None:
    if choose_linear(dtype, CPU) is not PackedLinear:
        pytest.skip("no packed layers on this machine")
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, inner, generator=generator).to(dtype)
    weight = torch.randn(outer, inner, generator=generator).to(dtype)
    offset = torch.randn(outer, generator=generator).to(dtype) if bias else None
    wide = [None if tensor is None else tensor.double() for tensor in (weight, offset)]
    actual = PackedLinear(weight, offset)(x)
    assert actual.dtype == dtype
    accuracy = 1e-5 if dtype == torch.float32 else 0.1
    expected = functional.linear(x.double(), *wide)
    torch.testing.assert_close(actual.double(), expected, atol=accuracy, rtol=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_linear_falls_back_where_packing_is_missing_or_wrong(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose_linear(dtype, torch.device("meta")) is PlainLinear
    monkeypatch.setattr(PackedLinear, "__call__", lambda self, x: torch.zeros(5, 48, dtype=dtype))
    assert choose_linear(dtype, CPU) is PlainLinear

    def missing(self: PackedLinear, weight: Tensor, bias: Tensor | None = None) -> None:
        raise AttributeError("no such operator")

    monkeypatch.setattr(PackedLinear, "__init__", missing)
    assert choose_linear(dtype, CPU) is PlainLinear


def test_other_dtypes_and_devices_are_not_packed() -> None:
    assert choose_linear(torch.float16, CPU) is PlainLinear
    assert choose_linear(torch.float64, CPU) is PlainLinear


def test_a_model_on_plain_layers_gives_the_same_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameters_module, "choose_linear", lambda dtype, device: PlainLinear)
    model, twin = make_pair(FAMILIES["llama biases"])
    assert isinstance(model.lm_head, PlainLinear)
    assert_equal_logits(model, twin, [make_ids(7), make_ids(30)])
