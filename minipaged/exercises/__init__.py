"""Exercises that grade themselves: a failed check shows the smallest case that goes wrong.

    from minipaged.exercises import check, ex_3_1, hint, reveal

    check(ex_3_1, slot_mapping)     # in the notebook; `minipaged exercise 3.1` in the terminal
    hint(ex_3_1, 1)

The judges are in `chapter_2.py`, ... ; what a student gets, and the solutions, are in `tutorials/`.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from minipaged.errors import ConfigError

if find_spec("hypothesis") is None:
    raise ConfigError("exercises need hypothesis: pip install 'minipaged[notebook]'")

_HOMES = {
    "EXERCISES": "catalog",
    "check": "checking",
    "find_exercise": "catalog",
    "hint": "files",
    "reveal": "questions",
}
__all__ = ["EXERCISES", "check", "find_exercise", "hint", "reveal"]


def __getattr__(name: str) -> Any:
    """Give what was asked for; `ex_3_1` is an exercise of chapter 3."""
    if name.startswith("ex_") and name[3:4].isdigit():
        home = f"chapter_{name.split('_')[1]}"
    elif name in _HOMES:
        home = _HOMES[name]
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{home}"), name)
    except ModuleNotFoundError as e:
        raise AttributeError(f"there is no exercise {name}") from e
