"""Workloads from files: lengths of your own, and two public trace formats. One line at a time.

A file is CSV with a header, or JSON Lines; the names in its first line tell what it holds:

    lengths                   prompt_tokens, new_tokens and, if there are times, arrival (seconds)
    Azure LLM inference trace TIMESTAMP, ContextTokens, GeneratedTokens
    Mooncake trace            timestamp (ms), input_length, output_length, hash_ids

Other columns and keys are left alone. An Azure trace has dates: its first request arrives at 0. In
a Mooncake trace a hash id stands for 512 tokens and everything before them: equal ids become equal
tokens, which the prefix cache finds. A million lines take no more memory than ten.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from minipaged.errors import ConfigError, WorkloadError
from minipaged.lab.workloads import MAX_TEXT, LabRequest
from minipaged.memory.events import short
from minipaged.models.reason import reason

MAX_LINE = 2**20  # bytes
MOONCAKE_BLOCK = 512  # tokens that a hash id stands for

_NAMES = frozenset(
    (
        *("prompt_tokens", "new_tokens", "arrival"),
        *("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
        *("timestamp", "input_length", "output_length", "hash_ids"),
    )
)
_MAX_HASH_ID = 2**50
_MAX_SECONDS = 1e10
_NUMBER = re.compile(r"[0-9+\-.eE\s]+")  # float takes 1_000 and the digits of any script, too
_DATE = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(\.\d{1,9})?(?:\+00:?00|Z)?")


def read_workload(path: str | Path) -> Iterator[LabRequest]:
    """Yield the requests of a file, whichever of the formats it has.

    Raises:
        WorkloadError: On the way: the file, or a line of it, is wrong. One line says which.
    """
    reader = _Reader(Path(path))
    last = -1.0
    try:
        for request in reader.requests():
            if request.arrival < last:
                reader.fail(f"arrives at {request.arrival:g} s, the one before it at {last:g} s")
            last = request.arrival
            yield request
    except OSError as e:
        raise WorkloadError(f"{path}: can't be read: {reason(e)}") from None
    if last < 0:
        reader.fail("the file ends without a request")


class _Reader:
    """A file, the line that was read last, and how a row of it becomes a request."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._line = 0
        self._epoch: float | None = None

    def fail(self, problem: str) -> NoReturn:
        """Raise the error that names the place."""
        raise WorkloadError(f"{self._path}: line {max(self._line, 1)}: {problem}")

    def requests(self) -> Iterator[LabRequest]:
        """Yield a request for each row."""
        lines = self._lines()
        first = next((line for line in lines if not line.isspace()), None)
        if first is None:
            self.fail("the file ends without a request" if self._line else "the file is empty")
        read = self._json_rows if first.lstrip().startswith(("{", "[")) else self._csv_rows
        convert = None
        for row in read(chain([first], lines)):
            convert = convert or self._format(row)
            try:
                yield convert(row)
            except ConfigError as e:
                self.fail(str(e))

    # --- lines and rows -----------------------------------------------------------------------

    def _open(self) -> BinaryIO:
        try:
            return self._path.open("rb")
        except ValueError as e:  # a NUL in the path
            raise WorkloadError(f"{self._path}: can't be read: {reason(e)}") from None

    def _lines(self) -> Iterator[str]:
        with self._open() as file:
            while line := file.readline(MAX_LINE + 1):
                self._line += 1
                if len(line) > MAX_LINE:
                    self.fail(f"longer than {MAX_LINE} bytes")
                try:
                    yield line.decode("utf-8-sig" if self._line == 1 else "utf-8")
                except UnicodeDecodeError:
                    self.fail("not text: bad UTF-8")

    def _csv_rows(self, lines: Iterator[str]) -> Iterator[Mapping[str, Any]]:
        rows = csv.reader(lines, strict=True)
        header: list[str] = []
        try:
            for row in rows:
                if not row:
                    continue
                if not header:
                    header = [name.strip() for name in row]
                    self._format(self._once((name, None) for name in header))
                    continue
                if len(row) != len(header):
                    self.fail(f"{_count(row, 'column')}, the header has {len(header)}")
                yield dict(zip(header, row, strict=True))
        except csv.Error as e:
            self.fail(f"no CSV: {reason(e)}")

    def _json_rows(self, lines: Iterator[str]) -> Iterator[Mapping[str, Any]]:
        for line in lines:
            if line.isspace():
                continue
            try:
                row = json.loads(line, object_pairs_hook=self._once)
            except (ValueError, RecursionError) as e:
                self.fail(f"no JSON: {getattr(e, 'msg', None) or reason(e)}")
            if not isinstance(row, dict):
                self.fail(f"must be an object, is {short(row)}")
            yield row

    def _once(self, pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        """Give the values by their names; one that means something may stand there once."""
        row: dict[str, Any] = {}
        for name, value in pairs:
            if name in row and name in _NAMES:
                self.fail(f"{short(name)} is named twice")
            row[name] = value
        return row

    # --- what a row means ---------------------------------------------------------------------

    def _format(self, row: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], LabRequest]:
        """Find the format whose names a row has."""
        formats = {
            ("prompt_tokens", "new_tokens"): self._lengths,
            ("TIMESTAMP", "ContextTokens", "GeneratedTokens"): self._azure,
            ("timestamp", "input_length", "output_length"): self._mooncake,
        }
        nearest = max(formats, key=lambda names: len(set(names) & set(row)) / len(names))
        missing = [name for name in nearest if name not in row]
        if missing:
            there = short(", ".join(map(str, row)))
            self.fail(f"{', '.join(missing)} missing, there is {there}")
        return formats[nearest]

    def _lengths(self, row: Mapping[str, Any]) -> LabRequest:
        prompt, new = self._tokens(row, "prompt_tokens"), self._tokens(row, "new_tokens", 0)
        arrival = self._seconds(row, "arrival") if "arrival" in row else 0.0
        return LabRequest(arrival, prompt, max(new, 1))

    def _azure(self, row: Mapping[str, Any]) -> LabRequest:
        prompt = self._tokens(row, "ContextTokens")
        new = self._tokens(row, "GeneratedTokens", 0)
        time = self._date(row, "TIMESTAMP")
        if self._epoch is None:
            self._epoch = time
        arrival = time - self._epoch
        if arrival < 0:
            self.fail(f"TIMESTAMP is {short(row['TIMESTAMP'])}, before the first one")
        if arrival > _MAX_SECONDS:
            self.fail(
                f"TIMESTAMP is {arrival:g} s behind the first one, more than {_MAX_SECONDS:g}"
            )
        return LabRequest(arrival, prompt, max(new, 1))

    def _mooncake(self, row: Mapping[str, Any]) -> LabRequest:
        prompt = self._tokens(row, "input_length")
        new = self._tokens(row, "output_length", 0)
        arrival = self._seconds(row, "timestamp") / 1000
        return LabRequest(arrival, prompt, max(new, 1), token_ids=self._named(row, prompt))

    # --- values -------------------------------------------------------------------------------

    def _tokens(self, row: Mapping[str, Any], name: str, least: int = 1) -> int:
        """Give a number of tokens. A model always draws one, so 0 new ones are read as 1."""
        value = self._value(row, name)
        if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,18}\s*", value):
            value = int(value)
        if type(value) is not int or not least <= value <= MAX_TEXT:
            self.fail(
                f"{name} is {short(value)}, expected a whole number from {least} to {MAX_TEXT}"
            )
        return value

    def _seconds(self, row: Mapping[str, Any], name: str) -> float:
        value = self._value(row, name)
        is_plain = _NUMBER.fullmatch(value) if isinstance(value, str) else type(value) is not bool
        try:
            number = float(value) if is_plain else -1.0
        except (TypeError, ValueError, OverflowError):
            number = -1.0
        if not 0 <= number <= _MAX_SECONDS:
            self.fail(f"{name} is {short(value)}, expected a number from 0 to {_MAX_SECONDS:g}")
        return number

    def _date(self, row: Mapping[str, Any], name: str) -> float:
        value = self._value(row, name)
        match = _DATE.fullmatch(value.strip()) if isinstance(value, str) else None
        try:
            day = datetime.fromisoformat(f"{match[1]}T{match[2]}+00:00") if match else None
        except ValueError:  # 30 February
            day = None
        if match is None or day is None:
            self.fail(f"{name} is {short(value)}, expected a time like 2023-11-16 18:17:03.97996")
        return day.timestamp() + float(match[3] or 0)

    def _named(self, row: Mapping[str, Any], num_tokens: int) -> tuple[int, ...] | None:
        """Give the tokens that hash ids stand for; the rest of the prompt is nobody else's."""
        ids = row.get("hash_ids")
        ids = [] if ids is None else ids
        if not isinstance(ids, list) or not all(
            type(one) is int and 0 <= one < _MAX_HASH_ID for one in ids
        ):
            self.fail(f"hash_ids is {short(ids)}, expected a list of whole numbers from 0")
        blocks = (range(one * MOONCAKE_BLOCK, (one + 1) * MOONCAKE_BLOCK) for one in ids)
        return tuple(islice(chain.from_iterable(blocks), num_tokens)) or None

    def _value(self, row: Mapping[str, Any], name: str) -> Any:
        if name not in row:
            self.fail(f"{name} is missing")
        return row[name]


def _count(things: list[str], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"
