"""A run as a file: recorded step by step, saved, loaded, or followed while it grows.

`trace_format` tells what a line holds; here are the files, plain or gzipped (a gzipped one can't be
followed). Whatever is wrong with one is a TraceError of one line that names the place.
"""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, cast

from minipaged.errors import TraceError
from minipaged.memory.events import Event, short
from minipaged.memory.trace_format import (
    FORMAT,
    TraceHeader,
    TraceStep,
    header_line,
    parse_header,
    parse_step,
    step_line,
)

__all__ = ["Trace", "TraceHeader", "TraceReader", "TraceStep", "is_trace"]

MAX_LINE_BYTES = 2**26


class Trace:
    """Collects the events of a run; `observe` is the observer to hand to the manager.

    With a path, each step is also written to it at once, so that another process can follow.

    Attributes:
        is_closed: Whether it was closed, or loaded from a file: whoever follows waits for no more.
    """

    def __init__(self, header: TraceHeader, path: str | Path | None = None) -> None:
        self.header = header
        self.steps: list[TraceStep] = []
        self.is_closed = False
        self._pending: list[Event] = []
        self._sink = None if path is None else _Sink(path)
        self._stream(header_line(header))

    def observe(self, event: Event) -> None:
        """Take one event; it belongs to the step that ends next."""
        self._pending.append(event)

    def pending(self) -> tuple[Event, ...]:
        """Give the events since the last step ended."""
        return tuple(self._pending)

    def end_step(
        self, prefill_tokens: int, decode_tokens: int, note: str = "", us: int | None = None
    ) -> TraceStep:
        """Close a step with the events observed since the last one.

        Raises:
            TraceError: The file can't be written any more. The step is kept in memory.
        """
        number, events = self._next_number(), self.pending()
        step = TraceStep(number, prefill_tokens, decode_tokens, note, events, us)
        self._pending.clear()  # first: who looks now, on another thread, sees no event twice
        self.steps.append(step)
        self._stream(step_line(step))
        return step

    def save(self, path: str | Path) -> None:
        """Write the whole trace; a name that ends in .gz is compressed.

        It takes the place of an older trace, but of no other file.

        Raises:
            TraceError: The file can't be written, or is no trace.
        """
        with _writing(path):
            _refuse_to_overwrite(Path(path))
        with _writing(path), _open_to_write(path) as file:
            file.write(header_line(self.header))
            for step in self.all_steps():
                file.write(step_line(step))

    def close(self) -> None:
        """End it: write what is left and close the file, if there is one."""
        self.is_closed = True
        if self._sink:
            for step in self.all_steps()[len(self.steps) :]:
                self._stream(step_line(step))
            sink, self._sink = self._sink, None
            sink.close()

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read a whole trace.

        Raises:
            TraceError: The file is no trace, of another version, malformed or cut off.
        """
        with TraceReader(path) as reader:
            trace = cls(reader.header)
            trace.steps.extend(reader)
        trace.is_closed = True
        return trace

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trace):
            return NotImplemented
        return (self.header, self.all_steps()) == (other.header, other.all_steps())

    __hash__ = None  # type: ignore[assignment]

    def all_steps(self) -> list[TraceStep]:
        """Give the steps, and one more for events after the last: a file holds events in steps.

        While another thread ends a step, its events may be missing, but none before them.
        """
        steps, rest = self.steps.copy(), self.pending()
        while len(self.steps) != len(steps):  # `rest` may be of a step that is not in `steps`
            steps, rest = self.steps.copy(), self.pending()
        if not rest:
            return steps
        number = steps[-1].step + 1 if steps else 0
        return [*steps, TraceStep(number, 0, 0, "after the last step", rest)]

    def _next_number(self) -> int:
        return self.steps[-1].step + 1 if self.steps else 0

    def _stream(self, line: bytes) -> None:
        """Write a line to the file that grows, if there is one; give it up if that fails."""
        if self._sink:
            try:
                self._sink.write(line)
            except TraceError:
                self._sink = None
                raise


class TraceReader:
    """Reads a trace step by step, in bounded memory.

    Iterating gives every step and treats a last line that is cut off as an error. `poll` gives the
    steps that are complete so far and waits for the rest: the way to follow a file that still
    grows.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._line_number = 0
        self._next_step = 0
        self._rest = b""
        self._failure: TraceError | None = None
        self._file = _open_to_read(self.path)
        try:
            line = self._next_line()
            if line is None:
                raise TraceError(f"{self.path}: not a trace: it has no complete first line")
            with self._placed():
                self.header = parse_header(line)
        except BaseException:
            self._file.close()
            raise

    @property
    def line_number(self) -> int:
        """The line that was read last, from 1."""
        return self._line_number

    def poll(self) -> list[TraceStep]:
        """Give the steps that were completed since the last call; a half line is kept for later.

        Raises:
            TraceError: The next line is wrong; the call before gave the steps up to it.
        """
        steps: list[TraceStep] = []
        while self._failure is None:
            try:
                step = self._read_step()
            except TraceError as e:
                self._failure = e
                break
            if step is None:
                return steps
            steps.append(step)
        if not steps:
            raise self._failure
        return steps

    def __iter__(self) -> Iterator[TraceStep]:
        while (step := self._read_step()) is not None:
            yield step
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

    def _read_step(self) -> TraceStep | None:
        line = self._next_line()
        if line is None:
            return None
        with self._placed():
            step = parse_step(line, first=self._next_step)
        self._next_step = step.step + 1
        return step

    def _next_line(self) -> bytes | None:
        """Give the next complete line; keep an incomplete one in `_rest`."""
        try:
            self._rest += self._file.readline(MAX_LINE_BYTES)
        except (OSError, EOFError, zlib.error) as e:
            place = f"{self.path}: can't be read after line {self._line_number}"
            raise TraceError(f"{place}: {e}") from e
        if not self._rest.endswith(b"\n"):
            if len(self._rest) >= MAX_LINE_BYTES:
                place = f"{self.path}: line {self._line_number + 1}"
                raise TraceError(f"{place} is longer than {MAX_LINE_BYTES} bytes")
            return None
        line, self._rest = self._rest, b""
        self._line_number += 1
        return line

    @contextlib.contextmanager
    def _placed(self) -> Iterator[None]:
        """Add the file and the line to what is wrong with a line."""
        try:
            yield
        except ValueError as e:
            raise TraceError(f"{self.path}: line {self._line_number}: {e}") from e


class _Sink:
    """A file that grows line by line, each at once on its way to whoever follows.

    It takes the place of an older trace, but of nothing else.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = path
        with _writing(path):
            _make_room(path)
            self._file = _open_to_write(path)

    def write(self, line: bytes) -> None:
        """Write one line; the file is closed if that fails."""
        try:
            with _writing(self._path):
                self._file.write(line)
                self._file.flush()
        except TraceError:
            with contextlib.suppress(OSError):
                self._file.close()
            raise

    def close(self) -> None:
        with _writing(self._path):
            self._file.close()


@contextlib.contextmanager
def _writing(path: str | Path) -> Iterator[None]:
    """Turn whatever goes wrong with a file into one line."""
    if not isinstance(path, str | Path):
        raise TraceError(f"a trace's path is a string or a Path, not {short(path)}")
    try:
        yield
    except (OSError, ValueError) as e:
        raise TraceError(f"{path}: can't be written: {getattr(e, 'strerror', None) or e}") from e


def _make_room(path: str | Path) -> None:
    """Take an older trace out of the way; what is no trace is not overwritten.

    Whoever still writes that trace writes on in a file without a name, and does not spoil the new.
    """
    old = Path(path)
    _refuse_to_overwrite(old)
    if old.is_file() and not old.is_symlink():  # which may be the system's /dev/stdout
        with contextlib.suppress(OSError):
            old.unlink()


def is_trace(path: str | Path) -> bool:
    """Tell whether there is a file that begins as a trace does."""
    try:
        return Path(path).is_file() and FORMAT.encode() in _start(Path(path))
    except (OSError, TraceError):
        return False


def _refuse_to_overwrite(path: Path) -> None:
    if path.is_file() and FORMAT.encode() not in (_start(path) or FORMAT.encode()):
        raise TraceError(f"{path}: there is such a file, and no trace: it is not overwritten")


def _start(path: Path) -> bytes:
    try:
        with _open_to_read(path) as file:
            return file.read(64)
    except (EOFError, zlib.error):
        return b"damaged"


def _open_to_write(path: str | Path) -> BinaryIO:
    if str(path).endswith(".gz"):
        return cast(BinaryIO, gzip.GzipFile(path, "wb", mtime=0))
    return open(path, "wb")


def _open_to_read(path: Path) -> BinaryIO:
    """Open a plain or gzipped file; its first two bytes tell which."""
    try:
        file = open(path, "rb")  # noqa: SIM115 (the reader closes it)
        if file.peek(2)[:2] != b"\x1f\x8b":
            return file
        unzipped = gzip.GzipFile(fileobj=file, mode="rb")  # a pipe can't be opened a second time
        unzipped.myfileobj = cast(Any, file)  # which is closed with it
        return cast(BinaryIO, unzipped)
    except (OSError, ValueError) as e:
        raise TraceError(f"{path}: can't be read: {getattr(e, 'strerror', None) or e}") from e
