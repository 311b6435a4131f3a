"""Safetensors, single and sharded: what is saved comes back, and nothing odd is opened."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tiny_models import save_model

from minipaged.errors import ModelError
from minipaged.models.catalog import resolve
from minipaged.models.model_files import INDEX, PICKLE_SUFFIXES, open_folder
from minipaged.models.weights import load_weights

torch.set_num_threads(1)


def read(folder: Path) -> dict[str, torch.Tensor]:
    return dict(load_weights(open_folder(folder, "m").weight_files))


def assert_equal(weights: dict[str, torch.Tensor], model: Any) -> None:
    expected = model.state_dict()
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in weights)


@pytest.mark.parametrize("family", ["Llama", "Mistral", "Qwen2", "Qwen3"])
def test_one_file(tmp_path: Path, family: str) -> None:
    model = save_model(tmp_path, family)
    assert_equal(read(tmp_path), model)


def test_shards(tmp_path: Path) -> None:
    model = save_model(tmp_path, max_shard_size="60KB")
    files = open_folder(tmp_path, "m")
    assert len(files.weight_files) > 2
    assert (tmp_path / INDEX).is_file()
    assert_equal(read(tmp_path), model)


def test_dtype_is_the_files_own(tmp_path: Path) -> None:
    save_model(tmp_path)
    save_file({"a": torch.ones(2, dtype=torch.bfloat16)}, tmp_path / "model.safetensors")
    assert read(tmp_path)["a"].dtype == torch.bfloat16


def test_what_rope_works_out_is_left_out(tmp_path: Path) -> None:
    save_model(tmp_path)
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    save_file({"a": torch.ones(2), name: torch.ones(2)}, tmp_path / "model.safetensors")
    assert read(tmp_path).keys() == {"a"}


def test_packed_integers_are_refused(tmp_path: Path) -> None:
    save_model(tmp_path)
    save_file({"qweight": torch.ones(2, dtype=torch.int32)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"model\.safetensors: 'qweight' is torch\.int32"):
        read(tmp_path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    save_model(tmp_path)
    path = tmp_path / "model.safetensors"
    sound = path.read_bytes()
    header = 8 + int.from_bytes(sound[:8], "little")
    for size in [*range(24), *range(24, header + 64, 61), *range(header, len(sound), 4999)]:
        path.write_bytes(sound[:size])
        with pytest.raises(ModelError, match=r"model\.safetensors: damaged or not safetensors"):
            read(tmp_path)


@pytest.mark.parametrize("content", [b"not a tensor", bytes(100), b"\xff" * 64, b"PK\x03\x04" * 9])
def test_other_content_is_refused(tmp_path: Path, content: bytes) -> None:
    save_model(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        read(tmp_path)


class TestIndex:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "model"
        folder.mkdir()
        save_model(folder, max_shard_size="60KB")
        return folder

    @staticmethod
    def rewrite(folder: Path, weight_map: object) -> None:
        (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))

    @pytest.mark.parametrize(
        "name",
        ["../secret.safetensors", "/etc/secret.safetensors", "a\\b.safetensors", "..", 7, ""],
    )
    def test_entries_stay_in_the_folder(self, folder: Path, name: object) -> None:
        save_file({"a": torch.ones(1)}, folder.parent / "secret.safetensors")
        self.rewrite(folder, {"a": name})
        with pytest.raises(ModelError, match=r"no (file of this folder|safetensors file)"):
            read(folder)

    def test_a_missing_shard_is_named(self, folder: Path) -> None:
        shard = sorted(folder.glob("model-*.safetensors"))[1]
        shard.unlink()
        with pytest.raises(ModelError, match=f"{shard.name}: the index asks for this file"):
            read(folder)

    def test_a_pickle_in_the_index_is_refused(self, folder: Path) -> None:
        self.rewrite(folder, {"a": "pytorch_model.bin"})
        with pytest.raises(ModelError, match="pickle files can run code"):
            read(folder)

    @pytest.mark.parametrize("weight_map", [{}, [], "x", None, {"a": "weights.txt"}])
    def test_nonsense_is_refused(self, folder: Path, weight_map: object) -> None:
        self.rewrite(folder, weight_map)
        with pytest.raises(ModelError, match=r"index\.json"):
            read(folder)


class Planted:
    """Unpickling it makes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("suffix", PICKLE_SUFFIXES)
def test_pickle_files_are_never_loaded(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    save_model(folder)
    (folder / "model.safetensors").unlink()
    weights = folder / f"pytorch_model{suffix}"
    weights.write_bytes(pickle.dumps(Planted(tmp_path / "marker")))
    for name in (folder, weights):
        with pytest.raises(ModelError, match=r"never loaded; convert it: .*safetensors"):
            resolve(str(name), pytest.fail)
    assert not (tmp_path / "marker").exists()


def test_safetensors_beside_a_pickle_are_used(tmp_path: Path) -> None:
    model = save_model(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"not looked at")
    assert_equal(read(tmp_path), model)


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    save_model(tmp_path)
    (tmp_path / missing).unlink()
    expected = "no weights" if missing.endswith("safetensors") else missing
    with pytest.raises(ModelError, match=expected):
        resolve(str(tmp_path), pytest.fail)
