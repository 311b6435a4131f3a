"""Where steps come from: a trace file, a trace file that still grows, or a running engine."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Protocol, TypeVar

from minipaged.memory.events import Event
from minipaged.memory.trace import TraceHeader, TraceReader, TraceStep


class Source(Protocol):
    """What a player plays. `advance` may take long: it is called on a thread of its own."""

    @property
    def header(self) -> TraceHeader:
        """What must be known before the first step."""
        ...

    @property
    def ended(self) -> bool:
        """Whether no step will ever come again."""
        ...

    @property
    def status(self) -> str:
        """One line for people, e.g. that a model is being loaded; may be empty."""
        ...

    @property
    def is_live(self) -> bool:
        """Whether `advance` runs a model, so that its duration tells tokens per second."""
        ...

    def preview(self) -> tuple[Event, ...]:
        """Give the events of a step that is scheduled, but has not run."""
        ...

    def advance(self) -> TraceStep | None:
        """Give the next step; None if there is none, now or ever (see `ended`)."""
        ...


_Source = TypeVar("_Source", bound="_FileSource")


class _FileSource:
    """What a file's steps have in common; use it in a `with` statement, which closes the file.

    Raises:
        TraceError: The file is no trace. A wrong line further on is reported by `advance`, after
            the steps before it.
    """

    is_live = False

    def __init__(self, path: str | Path) -> None:
        self._reader = TraceReader(path)
        self.header = self._reader.header
        self.ended = False
        self.status = ""

    def __enter__(self: _Source) -> _Source:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._reader.close()

    def preview(self) -> tuple[Event, ...]:
        """Give nothing: every step of a file is complete."""
        return ()


class ReplaySource(_FileSource):
    """The steps of a trace file, to its end. A last line that is cut off is an error."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self._steps = iter(self._reader)

    def advance(self) -> TraceStep | None:
        """Read the next step."""
        step = next(self._steps, None)
        if step is None:
            self.ended = True
        return step


class FollowSource(_FileSource):
    """The steps of a trace file that another process still writes. It never ends."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self._steps: deque[TraceStep] = deque()
        self.status = f"following {Path(path).name}"

    def advance(self) -> TraceStep | None:
        """Give the next step that is complete; None until there is one."""
        if not self._steps:
            self._steps.extend(self._reader.poll())
        return self._steps.popleft() if self._steps else None
