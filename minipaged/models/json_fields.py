"""Checked access to a JSON file that a stranger wrote: each value has the right type and size."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from minipaged.errors import ModelError
from minipaged.models.reason import reason

REQUIRED: Final = object()
MAX_BYTES = 256 << 20
_MAX_NUMBER = 1e12
_MAX_SHOWN = 60


def read_json(path: Path) -> JsonFields:
    """Read a JSON file that must hold one object.

    Raises:
        ModelError: The file is missing, huge, not JSON, or holds something else.
    """
    try:
        with path.open("rb") as file:  # a device has no size, and no end
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ModelError(f"{path}: larger than {MAX_BYTES} bytes")
        values = json.loads(content.decode("utf-8"))
    except OSError as error:
        raise ModelError(f"{path}: can't be read: {reason(error)}") from None
    except (ValueError, RecursionError) as error:  # bad UTF-8 is a ValueError too
        raise ModelError(f"{path}: not valid JSON: {reason(error)}") from None
    if not isinstance(values, dict):
        raise ModelError(f"{path}: must hold one JSON object, holds a {type(values).__name__}")
    return JsonFields(values, str(path))


class JsonFields:
    """One JSON object and where it stands. A value of null counts as not given."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values = values
        self.where = where

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def integer(self, key: str, default: Any = REQUIRED, low: int = 1, high: int = 1 << 31) -> Any:
        """Give a whole number in `[low, high]`, or `default` where there is none."""
        value = self._get(key, default)
        if value is default:
            return default
        if type(value) is not int or not low <= value <= high:
            self.refuse(key, f"a whole number from {low} to {high}")
        return value

    def number(self, key: str, default: Any = REQUIRED, low: float = 0.0) -> Any:
        """Give a number above `low` and below a trillion, or `default` where there is none."""
        value = self._get(key, default)
        if value is default:
            return default
        if type(value) not in (int, float) or not low < value < _MAX_NUMBER:
            self.refuse(key, f"a number above {low:g}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """Give true or false."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            self.refuse(key, "true or false")
        return value

    def text(self, key: str, default: Any = REQUIRED) -> Any:
        """Give a string, or `default` where there is none."""
        value = self._get(key, default)
        if value is not default and not isinstance(value, str):
            self.refuse(key, "a string")
        return value

    def strings(self, key: str, default: Any = REQUIRED) -> Any:
        """Give a list of strings, or `default` where there is none."""
        value = self._get(key, default)
        if value is default:
            return default
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            self.refuse(key, "a list of strings")
        return value

    def object(self, key: str) -> JsonFields:
        """Give the object below `key`; an empty one where there is none."""
        value = self._get(key, {})
        if not isinstance(value, dict):
            self.refuse(key, "an object")
        return JsonFields(value, f"{self.where}: {key}")

    def refuse(self, key: str, expected: str) -> NoReturn:
        """Raise the error that names the place, the key, its value and what it should be."""
        shown = repr(self.values.get(key))
        shown = shown if len(shown) <= _MAX_SHOWN else shown[:_MAX_SHOWN] + "..."
        raise ModelError(f"{self.where}: {key} is {shown}, expected {expected}")

    def _get(self, key: str, default: Any) -> Any:
        value = self.values.get(key)
        if value is not None:
            return value
        if default is REQUIRED:
            raise ModelError(f"{self.where}: {key} is missing")
        return default
