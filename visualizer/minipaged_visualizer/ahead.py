"""Runs `advance` of a source on one thread of its own, one step at a time.

So keys work while a step takes seconds, and a player that pauses simply asks for no more.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import NamedTuple

from minipaged.memory.trace import TraceStep
from minipaged_visualizer.sources import Source


class Advanced(NamedTuple):
    """What one `advance` gave, and how many seconds it took."""

    step: TraceStep | None
    seconds: float
    error: Exception | None = None


class Ahead:
    """At most one step is under way. The thread is a daemon: nobody waits for it at the end."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._wishes: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[Advanced] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.is_busy = False

    def ask(self) -> None:
        """Ask for one more step, unless one is under way."""
        if self.is_busy:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="advance", daemon=True)
            self._thread.start()
        self.is_busy = True
        self._wishes.put(True)

    @property
    def is_ready(self) -> bool:
        """Whether `take` would give a result now."""
        return not self._results.empty()

    def take(self) -> Advanced | None:
        """Give the step that was asked for, or None if it is not there yet."""
        try:
            result = self._results.get_nowait()
        except queue.Empty:
            return None
        self.is_busy = False
        return result

    def close(self) -> None:
        """Let the thread end after the step under way."""
        self._wishes.put(False)

    def _work(self) -> None:
        while self._wishes.get():
            start = time.perf_counter()
            step, error = None, None
            try:
                step = self._source.advance()
            except Exception as e:
                error = e
            self._results.put(Advanced(step, time.perf_counter() - start, error))
