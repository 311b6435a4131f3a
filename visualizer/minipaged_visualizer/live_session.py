"""A widget around a running engine: ask, step, run, pause, abort, and see memory follow.

    session = minipaged.notebook.live()     # a LiveSession around an LLM
    session                                 # shows it
    await session.run_async()               # runs until all is done, or somebody presses pause

The engine is handed in: this package knows none. Steps run on another thread, so that the notebook
hears its buttons meanwhile; a lock keeps each call to the engine alone. Kernels before ipykernel 7
hear nothing until a cell has ended: there, the button `run` takes the place of the last line.
"""

from __future__ import annotations

import asyncio
import html
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import ipywidgets as ipw

from minipaged.errors import MinipagedError
from minipaged.memory.trace import Trace
from minipaged_visualizer.live_fields import engine_fields, request_fields, row
from minipaged_visualizer.memory_player import MemoryPlayer
from minipaged_visualizer.own_keys import BOX, OwnKeys

_ABOUT = {
    "add request": "Queue the prompt (Enter in its field)",
    "step": "Run one step of the engine",
    "run": "Run until all is done",
    "pause": "Stop after the step under way",
    "abort": "End the youngest request that has not ended",
    "new engine": "Build an engine with these settings; what runs is given up",
}


class LiveEngine(Protocol):
    """What a session needs of an engine; an LLM has it."""

    trace: Trace | None

    def add_request(self, prompt: Any, params: Any) -> str:
        """Queue a request, and give its id."""
        ...

    def step(self) -> object:
        """Run one step."""
        ...

    def abort(self, request_id: str) -> object:
        """End a request."""
        ...

    def has_unfinished_requests(self) -> bool:
        """Whether a step has anything to do."""
        ...


class LiveSession(ipw.VBox):  # type: ignore[misc]  # ipywidgets has no types
    """Fields, buttons, and a player that follows.

    Args:
        make_engine: Builds an engine that keeps a trace, given what the engine's fields hold: see
            `ENGINE_FIELDS`.
        make_params: Builds sampling parameters, given `n` and `max_tokens`.
        settings: What stands in the engine's fields at first, e.g. num_blocks=64.

    Raises:
        ConfigError: A setting has no field, or the field can't hold it.
        MinipagedError: The first engine can't be built.
    """

    def __init__(
        self,
        make_engine: Callable[..., LiveEngine],
        make_params: Callable[..., Any],
        **settings: Any,
    ) -> None:
        self._make_engine, self._make_params = make_engine, make_params
        self._lock = threading.Lock()
        self._wants_pause = threading.Event()
        self._thread: threading.Thread | None = None
        self._player: MemoryPlayer | None = None
        self._parts: list[Any] = []  # all but the player
        self.requests: list[str] = []
        self.status = ""
        self.fields = engine_fields(settings)
        self.engine = self._build()
        super().__init__(_dom_classes=[BOX])
        self._request = request_fields()
        self._request["prompt"].on_msg(self._hear_enter)
        self._buttons = {name: self._button(name, act) for name, act in self._actions().items()}
        self._status = ipw.HTML()
        self._rows = [OwnKeys(), *self._make_rows()]
        fields = [*self._request.values(), *self.fields.values()]
        self._parts = [*self._rows, *self._buttons.values(), *fields, self._status]
        self._show()
        for name, field in self.fields.items():
            field.observe(lambda change, name=name: self._changed(name, change["new"]), "value")

    # --- what can be done -------------------------------------------------------------------------

    def restart(self) -> None:
        """Build a new engine with the settings in the fields; what ran is given up."""
        self.pause()
        with self._lock:
            self.engine = self._build()
            self.requests.clear()
        self._show()

    def add(self) -> None:
        """Queue the prompt."""
        prompt, n, max_tokens = (field.value for field in self._request.values())
        params = self._make_params(n=n, max_tokens=max_tokens)
        with self._lock:
            self.requests.append(self.engine.add_request(prompt, params))
        self._tell(f"request {self.requests[-1]} is added")

    def step(self) -> bool:
        """Run one step; tell whether there was anything to do."""
        with self._lock:
            has_work = self.engine.has_unfinished_requests()
            if has_work:
                self.engine.step()
        return has_work

    def run(self) -> None:
        """Run on a thread until all is done or somebody pauses; returns at once."""
        if self._thread is None or not self._thread.is_alive():
            self._start()
            self._thread = threading.Thread(target=self._run, name="live-session", daemon=True)
            self._thread.start()

    async def run_async(self) -> None:
        """Run until all is done or somebody pauses; the notebook hears its buttons meanwhile."""
        self._start()
        with self._telling_the_end():
            while not self._wants_pause.is_set() and await asyncio.to_thread(self.step):
                await asyncio.sleep(0)

    def pause(self) -> None:
        """Let what runs stop after the step under way."""
        self._wants_pause.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def abort(self) -> None:
        """Abort the youngest request that has not ended."""
        while self.requests:
            name = self.requests.pop()
            try:
                with self._lock:
                    self.engine.abort(name)
            except MinipagedError:
                continue  # it has ended
            self._tell(f"request {name} is aborted")
            return
        self._tell("nothing runs")

    def close(self) -> None:
        """Stop, and take the widget from the notebook."""
        self.pause()
        for widget in (self._player, *self._parts):
            if widget is not None:
                widget.close()
        super().close()

    # --- inside -----------------------------------------------------------------------------------

    def _build(self) -> LiveEngine:
        return self._make_engine(**{name: field.value for name, field in self.fields.items()})

    def _show(self) -> None:
        """Let a player follow the engine that is there now."""
        previous, self._player = self._player, MemoryPlayer(self.engine, at_end=True)
        self.children = [*self._rows, self._player]
        if previous is not None:
            previous.close()
        self._tell("ready")

    def _start(self) -> None:
        self._wants_pause.clear()
        self._tell("running")

    def _run(self) -> None:
        with self._telling_the_end():
            while not self._wants_pause.is_set() and self.step():
                pass

    @contextmanager
    def _telling_the_end(self) -> Iterator[None]:
        """Tell how a run ended; a bug is told, and raised all the same."""
        try:
            yield
        except MinipagedError as e:
            self._tell(str(e))
        except asyncio.CancelledError:  # the cell was interrupted
            self._tell("paused")
            raise
        except Exception as e:
            self._tell(f"stopped by {type(e).__name__}{f': {e}' if str(e) else ''}")
            raise
        else:
            self._tell("paused" if self._wants_pause.is_set() else "all requests are done")

    def _tell(self, text: str) -> None:
        self.status = text
        self._status.value = f'<span role="status">{html.escape(text)}</span>'

    def _changed(self, name: str, value: object) -> None:
        self._tell(f"{name} will be {value} in a new engine")

    def _hear_enter(self, _: Any, message: Any, __: Any) -> None:
        if isinstance(message, dict) and message.get("event") == "submit":
            self._try(self.add)

    def _actions(self) -> dict[str, Callable[[], object]]:
        return {
            "add request": self.add,
            "step": self.step,
            "run": self.run,
            "pause": self.pause,
            "abort": self.abort,
            "new engine": self.restart,
        }

    def _button(self, name: str, act: Callable[[], object]) -> Any:
        button = ipw.Button(description=name, tooltip=_ABOUT[name], layout={"width": "auto"})
        button.on_click(lambda _: self._try(act))
        return button

    def _try(self, act: Callable[[], object]) -> None:
        """Do what a button says; what goes wrong is one line beside it."""
        try:
            act()
        except MinipagedError as e:
            self._tell(str(e))

    def _make_rows(self) -> list[Any]:
        buttons = self._buttons
        running = [buttons[name] for name in ("step", "run", "pause", "abort")]
        return [
            row(*self._request.values(), buttons["add request"]),
            row(*running, self._status),
            row(*self.fields.values(), buttons["new engine"]),
        ]
