"""The notebook widget: a trace to walk through, or a run that is watched while it goes on.

    player = MemoryPlayer("run.jsonl")      # a file, a Trace, or an LLM with trace=True
    player.to_html("run.html")              # the same as a page that opens anywhere

A thread looks at a live trace 20 times a second and sends the steps that came since. So the engine
knows nothing of its watcher, and a cell that runs for minutes is seen from its first step. A run
faster than a browser can draw floods nobody: what is too much for one message follows later. A
run that rests may go on, and is looked at 4 times a second; a trace that is closed needs no thread.
"""

from __future__ import annotations

import threading
import uuid
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from minipaged_visualizer.browser_module import style, widget_module
from minipaged_visualizer.given_trace import trace_of
from minipaged_visualizer.html_page import to_html, write_page
from minipaged_visualizer.payload import step_payload, trace_payload

UPDATES_A_SECOND = 20
LOOKS_A_SECOND_AT_REST = 4
MOST_EVENTS_A_MESSAGE = 2000
MOST_STEPS_A_MESSAGE = 2000
_AT_REST_AFTER = 2 * UPDATES_A_SECOND  # idle looks; then the whole trace is kept for a reload


class MemoryPlayer(anywidget.AnyWidget):
    """Plays a trace in a notebook.

    Args:
        source: A path, a Trace, or what has one in its attribute `trace`, as an LLM does.
        at_end: Open at the last step, not at the first.

    Raises:
        TraceError: The file is no trace or is malformed, or the LLM keeps no trace.
    """

    _esm = widget_module()
    _css = style()
    _key = traitlets.Unicode().tag(sync=True)
    _payload = traitlets.Dict().tag(sync=True)
    _at_end = traitlets.Bool().tag(sync=True)

    def __init__(self, source: object, *, at_end: bool = False) -> None:
        self._is_closed = threading.Event()  # first: a widget that fails is closed, too
        self._thread: threading.Thread | None = None
        self._trace = trace_of(source)
        steps = list(self._trace.steps)
        self._num_sent = self._num_kept = len(steps)
        super().__init__(
            _key=uuid.uuid4().hex[:12],
            _payload=trace_payload(self._trace.header, steps),
            _at_end=at_end,
        )
        self._lock = threading.Lock()
        self.on_msg(self._answer)
        if not self._trace.is_closed:
            self._thread = threading.Thread(target=self._follow, name="memory-player", daemon=True)
            self._thread.start()

    def push(self) -> int:
        """Send steps that came since the last time, and tell how many; safe from any thread."""
        with self._lock:
            first = self._num_sent
            self._num_sent += self._send_steps(first)
        return self._num_sent - first

    def to_html(self, path: str | Path | None = None) -> str:
        """Give the trace so far as a page that stands alone; with a path, write it there, too.

        Raises:
            TraceError: It can't be written.
        """
        text = to_html(self._trace)
        if path is not None:
            write_page(path, text)
        return text

    def close(self) -> None:
        """Stop watching, and take the widget from the notebook."""
        self._is_closed.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        super().close()

    def _follow(self) -> None:
        idle, looks_a_second = 0, UPDATES_A_SECOND
        while not self._is_closed.wait(1 / looks_a_second):
            is_over = self._trace.is_closed  # before we look: nothing comes after that
            idle = 0 if self.push() else idle + 1
            is_at_rest = idle >= _AT_REST_AFTER or (is_over and idle > 0)
            looks_a_second = LOOKS_A_SECOND_AT_REST if is_at_rest else UPDATES_A_SECOND
            if is_at_rest and self._num_kept != self._num_sent:
                self._keep()
            if is_at_rest and is_over:
                return

    def _keep(self) -> None:
        """Put all steps into the trait that a reloaded notebook starts from."""
        with self._lock:
            steps = self._trace.steps[: self._num_sent]
            self._payload = trace_payload(self._trace.header, steps)
            self._num_kept = len(steps)

    def _send_steps(self, first: int) -> int:
        """Send the steps from `first` on, as many as one message may hold, and tell how many."""
        rows: list[dict[str, Any]] = []
        num_events = 0
        for step in self._trace.steps[first : first + MOST_STEPS_A_MESSAGE]:
            if rows and num_events + len(step.events) > MOST_EVENTS_A_MESSAGE:
                break
            rows.append(step_payload(step))
            num_events += len(step.events)
        if rows:
            self.send({"type": "steps", "first": first, "steps": rows})
        return len(rows)

    def _answer(self, _: Any, message: Any, __: Any) -> None:
        """Go back to what a view has missed; others ignore what they have."""
        if isinstance(message, dict) and message.get("type") == "resend":
            first = message.get("first")
            with self._lock:
                if isinstance(first, int) and 0 <= first < self._num_sent:
                    self._num_sent = first
            if self._thread is None or not self._thread.is_alive():
                self.push()
