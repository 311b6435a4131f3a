"""The files of one model in a folder: which there are, and what the configuration says.

Contract: nothing is loaded here but small JSON files, so a model is known, and every file that a
start needs is known to exist, before torch is imported.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from minipaged.errors import ModelError
from minipaged.models.config import ModelConfig
from minipaged.models.gguf import read_header
from minipaged.models.gguf_model import hf_config
from minipaged.models.hf_config import parse_config, read_config
from minipaged.models.json_fields import JsonFields, read_json
from minipaged.models.reason import reason

PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class ModelFiles:
    """A model that lies on this machine.

    `name` is for people and traces and never a path. `weight_files` go to `load_weights`.
    `tokenizer_file` is a tokenizer.json, or the GGUF file that describes the tokenizer.
    """

    name: str
    folder: Path
    config: ModelConfig
    weight_files: tuple[Path, ...]
    tokenizer_file: Path


def open_folder(folder: Path, name: str) -> ModelFiles:
    """Give the files of a model in Hugging Face's layout, or of a folder with one GGUF file in it.

    Raises:
        ModelError: A file is missing or wrong, or the weights are pickle files.
    """
    with reading(folder):
        return _open_folder(folder, name)


def _open_folder(folder: Path, name: str) -> ModelFiles:
    weight_files = find_weights(folder)
    tokenizer_file = folder / "tokenizer.json"
    if weight_files[0].suffix == ".gguf" and not (folder / "config.json").is_file():
        return open_gguf(weight_files[0], name)
    if not tokenizer_file.is_file():
        raise ModelError(
            f"{folder}: there is no tokenizer.json (save_pretrained of transformers writes it)"
        )
    return ModelFiles(name, folder, read_config(folder), weight_files, tokenizer_file)


def open_gguf(path: Path, name: str) -> ModelFiles:
    """Give the files of a model that is one GGUF file: its configuration and tokenizer are inside.

    Raises:
        ModelError: The file is missing, damaged, or of a kind that is not supported.
    """
    if not path.is_file():
        raise ModelError(f"{path}: there is no such file")
    config = parse_config(JsonFields(hf_config(read_header(path)), str(path)))
    return ModelFiles(name, path.parent, config, (path,), path)


def find_weights(folder: Path) -> tuple[Path, ...]:
    """Give the weight files of a folder; every one of them exists.

    Raises:
        ModelError: There are none, a shard is missing, or there are pickle files alone.
    """
    index, single = folder / INDEX, folder / "model.safetensors"
    if index.is_file():
        return _shards(index)
    if single.is_file():
        return (single,)
    for suffix in (".safetensors", ".gguf"):
        found = sorted(folder.glob(f"*{suffix}"))
        if len(found) > 1:
            raise ModelError(
                f"{folder}: which of {found[0].name}, {found[1].name}, ...? Name a file"
            )
        if found:
            return (found[0],)
    for path in sorted(folder.iterdir()):
        refuse_pickle(path)
    raise ModelError(f"{folder}: there are no weights (*.safetensors or *.gguf)")


def is_complete(folder: Path) -> bool:
    """Tell if everything that a start needs is in a folder."""
    try:
        parts = [(folder / name).is_file() for name in ("config.json", "tokenizer.json")]
        return all(parts) and bool(find_weights(folder))
    except (OSError, ModelError):
        return False


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what the system refuses (a closed folder, a name too long) into a ModelError."""
    try:
        yield
    except OSError as error:
        raise ModelError(f"{path}: can't be read: {reason(error)}") from None


def refuse_pickle(path: Path) -> None:
    """Raise if the name is that of a pickle file. The file is not opened."""
    if path.suffix.lower() in PICKLE_SUFFIXES:
        raise ModelError(
            f"{path}: pickle files can run code when opened, so they are never loaded; convert it: "
            "AutoModelForCausalLM.from_pretrained(...).save_pretrained(...) writes safetensors"
        )


def _shards(index: Path) -> tuple[Path, ...]:
    names = read_json(index).object("weight_map").values
    for name in names.values():
        if not isinstance(name, str) or Path(name).name != name or "\\" in name:
            raise ModelError(f"{index}: {name!r} is no file of this folder")
        refuse_pickle(Path(name))
        if not name.endswith(".safetensors"):
            raise ModelError(f"{index}: {name!r} is no safetensors file")
    if not names:
        raise ModelError(f"{index}: weight_map lists no file")
    paths = tuple(index.parent / name for name in sorted(set(names.values())))
    for path in paths:
        if not path.is_file():
            raise ModelError(f"{path}: the index asks for this file, it is missing")
    return paths
