"""A student's copy of the tutorials, in which nothing of theirs is ever overwritten.

A small file remembers what was copied, by its hash, and which exercises are solved. A file that is
still as it was copied may be replaced by a newer one; any other belongs to the student. Each file
is written beside its place and moved there: half of one would later be taken for the student's.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minipaged_visualizer.whole_file import replace_whole

from minipaged.errors import ConfigError
from minipaged.exercises.files import tutorials

USUAL = "minipaged-tutorials"
MARKER = ".minipaged.json"
BACKUPS = "backup"
_COPIED = ("*.md", "*.ipynb", "exercises/*.py", "teaching/*.md")


@dataclass
class Copied:
    """What became of each file; paths are relative to the folder.

    Attributes:
        fresh: Copied for the first time, or anew where it was missing.
        updated: Replaced by a newer one, as nobody had changed it.
        kept: Changed by the student, and left alone.
        saved: Where what the student had was moved by a reset.
    """

    fresh: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    saved: list[str] = field(default_factory=list)


class StudentFolder:
    """The folder and its memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._source = tutorials()

    @classmethod
    def around(cls, start: Path | None = None) -> StudentFolder | None:
        """Give the folder that `start` lies in, or the one of the usual name right below it.

        `start` is the current folder unless told.

        Raises:
            ConfigError: The current folder is gone.
        """
        try:
            here = Path.cwd() if start is None else start.absolute()
        except OSError as e:
            raise ConfigError(f"the current folder can't be read: {e.strerror}") from e
        for path in (start or here, *Path(os.path.realpath(here)).parents, here / USUAL):
            if os.path.isfile(path / MARKER):  # False, too, where one may not look
                return cls(path)
        return None

    def update(self) -> Copied:
        """Copy what is missing, renew what is untouched, keep all else.

        Raises:
            ConfigError: The folder can't be written, or is where the originals are, or its memory
                can't be read.
        """
        self._refuse_the_originals()
        memory, copied = self._recall(), Copied()
        with _writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            for name in self._names():
                self._bring(name, memory["files"], copied)
            self._remember(memory)
        return copied

    def reset(self, chapter: int) -> Copied:
        """Bring a chapter back as it was; what the student had is moved to a backup, not lost.

        Raises:
            ConfigError: There is no such chapter, or the folder can't be written, or is where the
                originals are.
        """
        self._refuse_the_originals()
        names = [name for name in self._names() if _chapter(name) == chapter]
        if not names:
            there = sorted({c for c in map(_chapter, self._names()) if c is not None})
            raise ConfigError(
                f"there is no chapter {chapter}; there are {', '.join(map(str, there))}"
            )
        memory, copied = self._recall(), Copied()
        with _writing(self.path):
            for name in names:
                self._set_aside(name, copied)
                self._bring(name, memory["files"], copied)
            solved = memory["solved"]
            memory["solved"] = [n for n in solved if n.partition(".")[0] != str(chapter)]
            self._remember(memory)
        return copied

    @property
    def solved(self) -> list[str]:
        """The numbers of the exercises that passed here."""
        return list(self._recall()["solved"])

    def note_solved(self, number: str) -> None:
        """Remember that an exercise passed."""
        memory = self._recall()
        if number not in memory["solved"]:
            memory["solved"].append(number)
            with _writing(self.path):
                self._remember(memory)

    # --- inside -----------------------------------------------------------------------------------

    def _refuse_the_originals(self) -> None:
        """Refuse the package's own folder: what one writes there would be everybody's."""
        if Path(os.path.realpath(self.path)).is_relative_to(os.path.realpath(self._source)):
            raise ConfigError(f"{self.path}: here are the originals; name a folder of your own")

    def _names(self) -> list[str]:
        found = (path for pattern in _COPIED for path in sorted(self._source.glob(pattern)))
        return [path.relative_to(self._source).as_posix() for path in found]

    def _bring(self, name: str, known: dict[str, str], copied: Copied) -> None:
        source, target = self._source / name, self.path / name
        newest = _hash(source)
        if _is_copy_of(source, target):
            known[name] = newest
            return
        if not os.path.lexists(target):
            copied.fresh.append(name)
        elif target.is_file() and not target.is_symlink() and _hash(target) == known.get(name):
            copied.updated.append(name)
        else:
            copied.kept.append(name)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_whole(target, source.read_bytes())
        known[name] = newest

    def _set_aside(self, name: str, copied: Copied) -> None:
        """Move what the student has there to a place that is free."""
        target = self.path / name
        if not os.path.lexists(target) or _is_copy_of(self._source / name, target):
            return
        for place in _free_places(self.path / BACKUPS / name):
            place.parent.mkdir(parents=True, exist_ok=True)
            target.rename(place)
            copied.saved.append(place.relative_to(self.path).as_posix())
            return

    def _recall(self) -> dict[str, Any]:
        marker = self.path / MARKER
        if not os.path.lexists(marker):
            return {"files": {}, "solved": []}
        if not os.path.isfile(marker):
            raise ConfigError(f"{marker}: is no file; remove it to start over")
        try:
            memory = json.loads(marker.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as e:
            raise ConfigError(f"{marker}: can't be read ({e}); remove it to start over") from e
        if not _is_memory(memory):
            raise ConfigError(f"{marker}: is not as it was written; remove it to start over")
        return dict(memory)

    def _remember(self, memory: dict[str, Any]) -> None:
        replace_whole(self.path / MARKER, f"{json.dumps(memory, indent=1)}\n".encode())


class _writing:  # noqa: N801 (used as a function)
    """Tell what goes wrong with files in one line."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, OSError):
            place = error.filename or self._folder
            raise ConfigError(f"{place}: can't be written: {error.strerror or error}") from error


def _is_memory(memory: Any) -> bool:
    return (
        isinstance(memory, dict)
        and isinstance(memory.get("files"), dict)
        and isinstance(memory.get("solved"), list)
        and all(isinstance(number, str) for number in memory["solved"])
    )


def _chapter(name: str) -> int | None:
    """Give the chapter of a file: `3_block_tables.ipynb`, `exercises/ex_3_1.py`, `teaching/3.md`.

    >>> _chapter("3_block_tables.ipynb"), _chapter("exercises/ex_3_1.py"), _chapter("README.md")
    (3, 3, None)
    """
    stem = Path(name).stem.removeprefix("ex_")
    number = stem.partition("_")[0]
    return int(number) if number.isdigit() else None


def _free_places(path: Path) -> Iterator[Path]:
    number = 1
    while True:
        place = path.with_name(f"{path.stem}.{number}{path.suffix}")
        if not os.path.lexists(place):
            yield place
        number += 1


def _is_copy_of(source: Path, target: Path) -> bool:
    return target.is_file() and not target.is_symlink() and _hash(target) == _hash(source)


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
