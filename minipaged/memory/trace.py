"""A run as a file: JSON Lines, one header and then one line a step. Version 1.

    {"format": "minipaged-trace", "version": 1, "block_size": 4, "num_blocks": 64, ...}
    {"step": 0, "prefill_tokens": 5, "decode_tokens": 0, "note": "", "events": [["alloc", ...]]}

Traces from other people are untrusted: everything is checked, and an error names the line. Events
whose name begins with `x-` are skipped. Files may be gzipped.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, cast

from minipaged.errors import TraceError
from minipaged.memory.events import Event, from_json, to_json

FORMAT, VERSION = "minipaged-trace", 1
MAX_BLOCKS, MAX_BLOCK_SIZE, MAX_LINE_BYTES = 2**22, 2**16, 2**26


@dataclass(frozen=True)
class TraceHeader:
    """What a reader must know before the first step. `model` names a model, never a path."""

    block_size: int
    num_blocks: int
    num_swap_blocks: int = 0
    bytes_per_block: int = 0
    allocator: str = "paged"
    model: dict[str, Any] = field(default_factory=dict)
    scheduler: dict[str, Any] = field(default_factory=dict)
    title: str = ""


@dataclass(frozen=True)
class TraceStep:
    """One step of the engine and everything that happened since the step before.

    `us` is the step's duration in microseconds, if somebody asked for it; equality ignores it.
    """

    step: int
    prefill_tokens: int
    decode_tokens: int
    note: str
    events: tuple[Event, ...]
    us: int | None = field(default=None, compare=False)


class Trace:
    """Collects the events of a run; `observe` is the observer to hand to the manager.

    With a path, each step is also written to it at once, so that another process can follow.
    """

    def __init__(self, header: TraceHeader, path: str | Path | None = None) -> None:
        self.header = header
        self.steps: list[TraceStep] = []
        self._pending: list[Event] = []
        self._sink = _open_to_write(path) if path is not None else None
        if self._sink:
            self._sink.write(_header_line(header))
            self._sink.flush()

    def observe(self, event: Event) -> None:
        """Take one event; it belongs to the step that ends next."""
        self._pending.append(event)

    def pending(self) -> tuple[Event, ...]:
        """Give the events since the last step ended."""
        return tuple(self._pending)

    def end_step(
        self, prefill_tokens: int, decode_tokens: int, note: str = "", us: int | None = None
    ) -> TraceStep:
        """Close a step with the events observed since the last one."""
        events, self._pending = tuple(self._pending), []
        step = TraceStep(len(self.steps), prefill_tokens, decode_tokens, note, events, us)
        self.steps.append(step)
        if self._sink:
            self._sink.write(_step_line(step))
            self._sink.flush()
        return step

    def save(self, path: str | Path) -> None:
        """Write the whole trace; a name that ends in .gz is compressed."""
        self._end_pending()
        with _open_to_write(path) as file:
            file.write(_header_line(self.header))
            for step in self.steps:
                file.write(_step_line(step))

    def close(self) -> None:
        """Write what is left and close the file, if there is one."""
        if self._sink:
            self._end_pending()
            self._sink.close()
            self._sink = None

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read a whole trace.

        Raises:
            TraceError: The file is no trace, of another version, malformed or cut off.
        """
        with TraceReader(path) as reader:
            trace = cls(reader.header)
            trace.steps.extend(reader)
        return trace

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trace):
            return NotImplemented
        return (self.header, self.steps, self._pending) == (
            other.header,
            other.steps,
            other._pending,
        )

    __hash__ = None  # type: ignore[assignment]

    def _end_pending(self) -> None:
        if self._pending:
            self.end_step(0, 0, "after the last step")


class TraceReader:
    """Reads a trace step by step, in bounded memory.

    Iterating gives every step and treats a last line that is cut off as an error. `poll` gives the
    steps that are complete so far and waits for the rest: the way to follow a file that still
    grows.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._line_number = 0
        self._last_step = -1
        self._rest = b""
        self._file = _open_to_read(self.path)
        try:
            line = self._next_line()
            if line is None:
                raise TraceError(f"{self.path}: not a trace: it has no complete first line")
            self.header = self._parse_header(line)
        except BaseException:
            self._file.close()
            raise

    @property
    def line_number(self) -> int:
        """The line that was read last, from 1."""
        return self._line_number

    def poll(self) -> list[TraceStep]:
        """Give the steps that were completed since the last call; a half line is kept for later."""
        steps = []
        while (line := self._next_line()) is not None:
            steps.append(self._parse_step(line))
        return steps

    def __iter__(self) -> Iterator[TraceStep]:
        while (line := self._next_line()) is not None:
            yield self._parse_step(line)
        if self._rest:
            raise TraceError(
                f"{self.path}: line {self._line_number + 1} is cut off; "
                f"the {self._line_number} lines before it are complete"
            )

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> TraceReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def _next_line(self) -> bytes | None:
        """Give the next complete line; keep an incomplete one in `_rest`."""
        try:
            self._rest += self._file.readline(MAX_LINE_BYTES)
        except (OSError, EOFError, zlib.error) as e:
            raise TraceError(
                f"{self.path}: can't be read after line {self._line_number}: {e}"
            ) from e
        if not self._rest.endswith(b"\n"):
            if len(self._rest) >= MAX_LINE_BYTES:
                raise self._error(f"longer than {MAX_LINE_BYTES} bytes", ahead=1)
            return None
        line, self._rest = self._rest, b""
        self._line_number += 1
        return line

    def _parse_header(self, line: bytes) -> TraceHeader:
        row = self._parse_object(line)
        if row.get("format") != FORMAT:
            raise TraceError(
                f"{self.path}: not a trace: the first line must have format {FORMAT!r}"
            )
        if row.get("version") != VERSION:
            raise TraceError(
                f"{self.path}: trace version {row.get('version')!r:.20}, only {VERSION} can be read"
            )
        return TraceHeader(
            block_size=self._int(row, "block_size", 1, MAX_BLOCK_SIZE),
            num_blocks=self._int(row, "num_blocks", 1, MAX_BLOCKS),
            num_swap_blocks=self._int(row, "num_swap_blocks", 0, MAX_BLOCKS, default=0),
            bytes_per_block=self._int(row, "bytes_per_block", 0, 2**62, default=0),
            allocator=self._typed(row, "allocator", str, "paged"),
            model=self._typed(row, "model", dict, {}),
            scheduler=self._typed(row, "scheduler", dict, {}),
            title=self._typed(row, "title", str, ""),
        )

    def _parse_step(self, line: bytes) -> TraceStep:
        row = self._parse_object(line)
        step = self._int(row, "step", self._last_step + 1, 2**62)
        self._last_step = step
        return TraceStep(
            step=step,
            prefill_tokens=self._int(row, "prefill_tokens", 0, 2**62, default=0),
            decode_tokens=self._int(row, "decode_tokens", 0, 2**62, default=0),
            note=self._typed(row, "note", str, ""),
            events=tuple(self._parse_events(self._typed(row, "events", list, []))),
            us=self._int(row, "us", 0, 2**62) if "us" in row else None,
        )

    def _parse_events(self, rows: list[Any]) -> Iterator[Event]:
        for index, row in enumerate(rows):
            try:
                event = from_json(row)
            except ValueError as e:
                raise self._error(f"event {index}: {e}") from e
            if event is not None:
                yield event

    def _parse_object(self, line: bytes) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as e:
            raise self._error(f"not JSON ({e!s:.80})") from e
        if not isinstance(row, dict):
            raise self._error("not a JSON object")
        return row

    def _int(
        self, row: dict[str, Any], key: str, least: int, most: int, default: int | None = None
    ) -> int:
        value = row.get(key, default)
        if type(value) is not int or not least <= value <= most:
            found = "is missing" if value is None else f"is {value!r:.40}"
            raise self._error(f"{key!r} {found}; it must be an integer from {least} to {most}")
        return value

    def _typed(self, row: dict[str, Any], key: str, wanted: type, default: Any) -> Any:
        value = row.get(key, default)
        if not isinstance(value, wanted):
            raise self._error(f"{key!r} must be a {wanted.__name__}, not {value!r:.40}")
        return value

    def _error(self, what: str, ahead: int = 0) -> TraceError:
        return TraceError(f"{self.path}: line {self._line_number + ahead}: {what}")


def _header_line(header: TraceHeader) -> bytes:
    return _line({"format": FORMAT, "version": VERSION, **asdict(header)})


def _step_line(step: TraceStep) -> bytes:
    row: dict[str, Any] = {
        "step": step.step,
        "prefill_tokens": step.prefill_tokens,
        "decode_tokens": step.decode_tokens,
        "note": step.note,
        "events": [to_json(event) for event in step.events],
    }
    if step.us is not None:
        row["us"] = step.us
    return _line(row)


def _line(row: dict[str, Any]) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def _open_to_write(path: str | Path) -> BinaryIO:
    try:
        if str(path).endswith(".gz"):
            return cast(BinaryIO, gzip.GzipFile(path, "wb", mtime=0))
        return open(path, "wb")
    except OSError as e:
        raise TraceError(f"{path}: can't be written: {e.strerror or e}") from e


def _open_to_read(path: Path) -> BinaryIO:
    """Open a plain or gzipped file; its first two bytes tell which."""
    try:
        file = open(path, "rb")  # noqa: SIM115 (the reader closes it)
    except OSError as e:
        raise TraceError(f"{path}: can't be read: {e.strerror or e}") from e
    with contextlib.suppress(OSError):
        if file.peek(2)[:2] == b"\x1f\x8b":
            return cast(BinaryIO, io.BufferedReader(gzip.GzipFile(fileobj=file)))
    return file
