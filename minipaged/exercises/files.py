"""The files of the exercises: starters, solutions and hints, and loading what a student wrote.

They lie in the folder `tutorials/` of the repository, and in the package where that is installed.
"""

from __future__ import annotations

import json
import linecache
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from minipaged.errors import ConfigError
from minipaged.exercises.attempt import TooSlowError, time_limit, told
from minipaged.exercises.exercise import Exercise

_PACKAGE = Path(__file__).parents[1]
NUM_HINTS = 3
LOAD_SECONDS = 60.0  # time enough to import torch on a slow disk
_MODULE = "an_attempt"
_NOTHING = object()


def tutorials() -> Path:
    """Give the folder with the notebooks and the exercises."""
    packaged = _PACKAGE / "tutorials"
    return packaged if packaged.is_dir() else _PACKAGE.parent / "tutorials"


def starter(exercise: Exercise) -> Path:
    """Give the file that a student begins with."""
    return tutorials() / "exercises" / exercise.file


def solution(exercise: Exercise) -> Path:
    """Give the file that solves it, of the same name."""
    return tutorials() / "exercises" / "solutions" / exercise.file


def hint(exercise: Exercise, number: int = 1) -> str:
    """Give one of three hints; each tells more than the one before.

    Raises:
        ConfigError: There are only three.
    """
    if number not in range(1, NUM_HINTS + 1):
        raise ConfigError(f"hints are 1, 2 and 3, not {number}")
    hints = json.loads((tutorials() / "exercises" / "hints.json").read_text(encoding="utf-8"))
    return str(hints[exercise.number][number - 1])


def load_attempt(exercise: Exercise, path: Path) -> Any:
    """Run a student's file and give the function or class that the exercise asks for.

    Raises:
        ConfigError: There is no such file, it can't be run, or it lacks that name.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file{' but a folder' * path.is_dir()}")
    if path.suffix != ".py":
        raise ConfigError(f"{path}: an attempt is a .py file")
    linecache.checkcache(str(path))
    try:
        with time_limit(LOAD_SECONDS):
            found = getattr(_run(path), exercise.name, _NOTHING)
    except KeyboardInterrupt:
        raise
    except TooSlowError:
        raise ConfigError(f"{path}: did not end within {LOAD_SECONDS:.0f} seconds") from None
    except BaseException as e:  # it may raise GeneratorExit, or what it likes
        raise ConfigError(f"{path}{_line(e, path)}: {type(e).__name__}: {told(e)}") from e
    if found is _NOTHING:
        raise ConfigError(f"{path}: {exercise.name} is not defined there")
    return found


def _run(path: Path) -> ModuleType:
    """Run a file as it is now: bytecode that Python keeps might be that of another attempt."""
    module = ModuleType(_MODULE)
    module.__file__ = str(path)
    sys.modules[_MODULE] = module  # where dataclasses look for the names in annotations
    exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), module.__dict__)
    return module


def _line(error: BaseException, path: Path) -> str:
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f", line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return f", line {lines[-1]}" if lines else ""
