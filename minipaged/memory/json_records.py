"""Dataclasses from JSON that a stranger wrote: every field is there, known, and of its type.

A field is an int, a float, a str, a dataclass, or a tuple of any number of these. JSON has no
minus infinity: a float that is null is meant to be it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, TypeVar, get_args, get_type_hints

from minipaged.memory.events import short

LARGEST = 2**53  # what a browser can count

_Record = TypeVar("_Record")


def read_object(line: bytes) -> dict[str, Any]:
    """Read one line of strict JSON: UTF-8, no NaN, no half of a character, an object outside.

    Raises:
        ValueError: It is something else.
    """
    try:
        row = json.loads(line.decode(), parse_constant=_refuse_constant)
        json.dumps(row, ensure_ascii=False).encode()  # half a surrogate pair is no character
    except (ValueError, RecursionError) as e:
        raise ValueError(f"not JSON ({e!s:.100})") from None
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    return row


def read_record(kind: type[_Record], row: Any) -> _Record:
    """Build a dataclass from a JSON object that has its fields; those with a default may be left.

    Raises:
        ValueError: A field is missing, unknown, or of another type; the message names its place.
    """
    if not isinstance(row, dict):
        raise ValueError(f"must be an object, not {short(row)}")
    hints = _hints(kind)
    unknown = next((key for key in row if key not in hints), None)
    if unknown is not None:
        raise ValueError(f"there is no field {short(unknown)}")
    values = {name: at(name, partial(_read, hints[name]), value) for name, value in row.items()}
    try:
        return kind(**values)
    except TypeError:
        missing = [name for name in hints if name not in values]
        raise ValueError(f"{' or '.join(missing)} is missing") from None


def at(place: str, read: Callable[[Any], Any], value: Any) -> Any:
    """Give what `read` makes of a value; its ValueError is told with the place."""
    try:
        return read(value)
    except ValueError as e:
        raise ValueError(f"{place}: {e}") from None


def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _read(wanted: Any, value: Any) -> Any:
    if isinstance(wanted, type) and is_dataclass(wanted):
        return read_record(wanted, value)
    if wanted in _READERS:
        return _READERS[wanted](value)
    if not isinstance(value, list):
        raise ValueError(f"must be an array, not {short(value)}")
    item = get_args(wanted)[0]
    return tuple(at(f"[{i}]", partial(_read, item), each) for i, each in enumerate(value))


def _int(value: Any) -> int:
    if type(value) is not int or not -LARGEST < value < LARGEST:
        raise ValueError(f"must be an integer, not {short(value)}")
    return value


def _float(value: Any) -> float:
    if value is None:
        return -math.inf
    if type(value) not in (int, float) or not abs(value) < LARGEST:
        raise ValueError(f"must be a number or null, not {short(value)}")
    return float(value)


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a string, not {short(value)}")
    return value


_READERS: dict[Any, Callable[[Any], Any]] = {int: _int, float: _float, str: _str}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")
