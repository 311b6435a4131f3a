"""GGUF files: sizes, weights and tokenizer as transformers reads them, and no lie believed."""

from __future__ import annotations

import contextlib
import random
import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from tiny_models import (
    CORPUS,
    SIZES,
    byte_level_tokenizer,
    sentencepiece_tokenizer,
    tiny_model,
    write_gguf,
)
from tokenizers import Regex, pre_tokenizers

from minipaged.errors import ModelError
from minipaged.models.catalog import resolve
from minipaged.models.gguf import read_header
from minipaged.models.gguf_model import weight_name
from minipaged.models.gguf_tokenizer import _SPLITS
from minipaged.models.model_files import ModelFiles, open_gguf
from minipaged.models.tokenizer import load_tokenizer
from minipaged.models.weights import load_weights

torch.set_num_threads(1)
TEXTS = [*CORPUS, "", " ", "  two  spaces ", "\n\n\t", "<s>not special?</s>", "€ é 🌊", "12345 67"]


def read_all(path: Path) -> tuple[ModelFiles, dict[str, torch.Tensor]]:
    files = open_gguf(path, path.stem)
    load_tokenizer(files).encode("The moon")
    return files, dict(load_weights(files.weight_files))


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_weights_come_back_under_hugging_face_names(
    tmp_path: Path, family: str, tied: bool
) -> None:
    model = write_gguf(tmp_path / "m.gguf", family, tie_word_embeddings=tied)
    _, weights = read_all(tmp_path / "m.gguf")
    expected = model.state_dict()
    if tied:
        del expected["lm_head.weight"]
    assert weights.keys() == expected.keys()
    for name, weight in weights.items():
        assert torch.equal(weight, expected[name]), name


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_transformers_reads_the_same_model_from_the_file(tmp_path: Path, family: str) -> None:
    default = {"head_dim": 128} if family == "qwen3" else {}  # theirs does not read the entry
    write_gguf(tmp_path / "m.gguf", family, tie_word_embeddings=False, **default)
    files, weights = read_all(tmp_path / "m.gguf")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="m.gguf")
    state = theirs.state_dict()
    assert weights.keys() == state.keys()
    assert all(torch.equal(weights[name], state[name].float()) for name in weights)
    assert files.config.num_kv_heads == theirs.config.num_key_value_heads
    assert files.config.rope_theta == theirs.config.rope_parameters["rope_theta"]
    assert files.config.rms_norm_eps == pytest.approx(theirs.config.rms_norm_eps)


def test_config_from_metadata(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", "qwen3", tie_word_embeddings=True)
    config = open_gguf(tmp_path / "m.gguf", "m").config
    assert (config.architecture, config.qk_norm) == ("qwen3", True)
    assert (config.head_dim, config.num_heads, config.num_kv_heads) == (8, 4, 2)
    assert config.tie_word_embeddings
    assert config.vocab_size == SIZES["vocab_size"]
    assert (config.bos_token_id, config.eos_token_ids) == (0, (1,))


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_1"])
def test_packed_weights_are_near_the_originals(tmp_path: Path, kind: str) -> None:
    packing = gguf.GGMLQuantizationType[kind]
    model = write_gguf(tmp_path / "m.gguf", kind=packing, tie_word_embeddings=True)
    _, weights = read_all(tmp_path / "m.gguf")
    for name, weight in weights.items():
        assert weight.dtype == torch.float32
        assert (weight - model.state_dict()[name]).abs().max() < 0.2, name


def test_rows_of_q_and_k_are_put_back_in_order(tmp_path: Path) -> None:
    """Fails if the rows of a pair stay side by side, which RoPE would turn wrongly."""
    model = write_gguf(tmp_path / "m.gguf", "llama")
    stored = gguf.GGUFReader(tmp_path / "m.gguf")
    raw = next(t.data for t in stored.tensors if t.name == "blk.0.attn_q.weight")
    name = "model.layers.0.self_attn.q_proj.weight"
    assert not np.array_equal(raw, model.state_dict()[name].numpy())
    assert torch.equal(dict(load_weights([tmp_path / "m.gguf"]))[name], model.state_dict()[name])


def test_llama3_scaling_is_recognized_by_its_factors(tmp_path: Path) -> None:
    rope = {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    changes: dict[str, Any] = {"rope_parameters": rope, "max_position_embeddings": 131_072}
    model = tiny_model("Llama", **changes)
    plain = tiny_model("Llama", rope_parameters={"rope_type": "default", "rope_theta": 500_000.0})
    factors = (plain.model.rotary_emb.inv_freq / model.model.rotary_emb.inv_freq).numpy()
    write_gguf(tmp_path / "m.gguf", extra={"rope_freqs.weight": factors}, **changes)
    files, weights = read_all(tmp_path / "m.gguf")
    scaling = files.config.rope_scaling
    assert scaling is not None
    assert (scaling.kind, scaling.factor) == ("llama3", pytest.approx(32.0))
    assert "rope_freqs.weight" not in weights
    other = np.linspace(1, 7, len(factors), dtype=np.float32)
    write_gguf(tmp_path / "o.gguf", extra={"rope_freqs.weight": other}, **changes)
    with pytest.raises(ModelError, match="not the scaling of Llama 3"):
        open_gguf(tmp_path / "o.gguf", "o")


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "qwen2"])
def test_byte_level_tokenizer_equals_the_original(tmp_path: Path, pre: str) -> None:
    cuts: dict[str, Any] = {
        "gpt-2": pre_tokenizers.ByteLevel(add_prefix_space=False),
        "smollm": pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        ),
    }
    for name in ("llama-bpe", "qwen2"):
        split = pre_tokenizers.Split(Regex(_SPLITS[name]), behavior="isolated")
        spell = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        cuts[name] = pre_tokenizers.Sequence([split, spell])
    adds_bos = pre == "llama-bpe"  # its converter leaves the flag out
    original = byte_level_tokenizer(adds_bos, cuts[pre])
    write_gguf(tmp_path / "m.gguf", tokenizer=original, pre=pre)
    rebuilt = load_tokenizer(open_gguf(tmp_path / "m.gguf", "m"))
    for text in TEXTS:
        assert rebuilt.encode(text) == original.encode(text).ids, text
        assert rebuilt.decode(rebuilt.encode(text)) == original.decode(original.encode(text).ids)


def test_sentencepiece_tokenizer_equals_the_original(tmp_path: Path) -> None:
    original = sentencepiece_tokenizer()
    write_gguf(tmp_path / "m.gguf", tokenizer=original)
    rebuilt = load_tokenizer(open_gguf(tmp_path / "m.gguf", "m"))
    bos = rebuilt.token_id("<s>")
    for text in TEXTS:
        ids = rebuilt.encode(text)
        assert ids == [bos, *original.encode(text, add_special_tokens=False).ids], text
        assert rebuilt.decode(ids) == original.decode(original.encode(text).ids), text


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_transformers_rebuilds_the_same_tokenizer(tmp_path: Path, family: str) -> None:
    pre = {"llama": "llama-bpe", "qwen2": "qwen2"}[family]
    write_gguf(tmp_path / "m.gguf", family, pre=pre)
    ours = load_tokenizer(open_gguf(tmp_path / "m.gguf", "m"))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file="m.gguf")
    for text in ["The moon is far away", "It's  1 o'clock\n\n", "naïve café"]:
        ids = theirs(text, add_special_tokens=False).input_ids
        assert ours.encode(text, add_special_tokens=False) == ids, text


def test_chat_template_comes_from_the_metadata(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf")
    tokenizer = load_tokenizer(open_gguf(tmp_path / "m.gguf", "m"))
    chat = tokenizer.render_chat([{"role": "user", "content": " Hi "}])
    assert chat == "<|user|>\nHi</s>\n<|assistant|>\n"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("sound") / "m.gguf"
    write_gguf(path, tie_word_embeddings=True)
    read_all(path)
    return path.read_bytes()


def test_every_truncation_is_refused(tmp_path: Path, sound: bytes) -> None:
    header_size = min(t.offset for t in _tensors(tmp_path, sound))
    end = max(t.offset + 4 * int(np.prod(t.shape)) for t in _tensors(tmp_path, sound))
    cuts = {*range(64), *range(64, header_size, 97), *range(header_size, end, 2999), end - 1}
    path = tmp_path / "cut.gguf"
    for size in sorted(cuts):
        path.write_bytes(sound[:size])
        with pytest.raises(ModelError, match=r"cut\.gguf"):
            read_all(path)


def _tensors(folder: Path, content: bytes) -> list[Any]:
    (folder / "whole.gguf").write_bytes(content)
    return list(read_header(folder / "whole.gguf").tensors.values())


def test_damaged_bytes_end_in_an_error_of_ours_or_in_a_model(tmp_path: Path, sound: bytes) -> None:
    rng = random.Random(0)
    path = tmp_path / "odd.gguf"
    header_size = min(t.offset for t in _tensors(tmp_path, sound))
    for _ in range(150):
        content = bytearray(sound)
        for _ in range(rng.choice([1, 3])):
            content[rng.randrange(min(header_size, 1500))] = rng.randrange(256)
        path.write_bytes(bytes(content))
        with contextlib.suppress(ModelError):
            read_all(path)


@pytest.mark.parametrize(
    ("at", "value", "what"),
    [
        (0, b"GGML", "does not begin"),
        (4, struct.pack("<I", 1), "version 1"),
        (4, struct.pack(">I", 3), "version"),
        (4, struct.pack("<I", 99), "version 99"),
        (8, struct.pack("<Q", 1 << 60), "tensors"),
        (16, struct.pack("<Q", 1 << 60), "metadata entries"),
        (16, struct.pack("<Q", 60_000), "do not fit"),
        (24, struct.pack("<Q", 1 << 62), "do not fit"),
    ],
)
def test_lies_are_found_at_once_and_cost_no_memory(
    tmp_path: Path, sound: bytes, at: int, value: bytes, what: str
) -> None:
    path = tmp_path / "lie.gguf"
    path.write_bytes(sound[:at] + value + sound[at + len(value) :])
    tracemalloc.start()
    start = time.process_time()
    with pytest.raises(ModelError, match=what):
        open_gguf(path, "lie")
    seconds = time.process_time() - start
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 1
    assert peak < 4 << 20


@pytest.mark.parametrize("kind", [4, 8, 9])
def test_a_huge_list_is_not_reserved(tmp_path: Path, kind: int) -> None:
    entry = struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", 9, kind, 1 << 61)
    path = tmp_path / "list.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + entry + bytes(4096))
    with pytest.raises(ModelError, match="list"):
        read_header(path)


def test_an_offset_behind_the_end_is_refused(tmp_path: Path) -> None:
    name = b"token_embd.weight"
    tensor = struct.pack("<Q", len(name)) + name + struct.pack("<IQQIQ", 2, 32, 4, 0, 1 << 40)
    path = tmp_path / "offset.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + tensor + bytes(64))
    with pytest.raises(ModelError, match="starts at byte"):
        read_header(path)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"PK\x03\x04" + bytes(50)])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"x\.gguf"):
        open_gguf(path, "x")


def test_unsupported_kinds_are_named(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "mamba")
    writer.add_tensor("token_embd.weight", np.zeros((4, 4), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelError, match=r"'mamba' is not supported \(llama, qwen2, qwen3\)"):
        open_gguf(tmp_path / "m.gguf", "m")
    write_gguf(tmp_path / "p.gguf", pre="tekken")
    with pytest.raises(ModelError, match=r"tokenizer\.ggml\.pre is 'tekken', expected one of"):
        load_tokenizer(open_gguf(tmp_path / "p.gguf", "p"))
    write_gguf(tmp_path / "e.gguf", extra={"blk.0.ffn_gate_exps.weight": np.zeros((2, 2), "f4")})
    with pytest.raises(ModelError, match="ffn_gate_exps"):
        read_all(tmp_path / "e.gguf")


def test_names() -> None:
    assert weight_name("output.weight") == "lm_head.weight"
    assert weight_name("blk.12.attn_k_norm.weight") == "model.layers.12.self_attn.k_norm.weight"
    assert weight_name("blk.0.ffn_up_exps.weight") is None
    assert weight_name("weight") is None


def test_the_path_names_the_model_and_is_not_its_name(tmp_path: Path) -> None:
    write_gguf(tmp_path / "little-llama.gguf")
    files = resolve(str(tmp_path / "little-llama.gguf"), pytest.fail)
    assert files.name == "little-llama"
    assert files.tokenizer_file == tmp_path / "little-llama.gguf"
