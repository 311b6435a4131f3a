"""A widget around a running engine: ask, step, run, pause, abort, and see memory follow.

    session = LiveSession(lambda **sizes: LLM("storyteller", trace=True, **sizes), SamplingParams)
    session                        # shows it
    await session.run_async()      # runs until all is done, or somebody presses pause

The engine is handed in: this package knows none. Steps run on another thread, so that the notebook
hears its buttons meanwhile; a lock keeps each call to the engine alone.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Protocol

import ipywidgets as ipw

from minipaged.errors import MinipagedError
from minipaged.memory.trace import Trace
from minipaged_visualizer.memory_player import MemoryPlayer


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
    """Buttons, and a player that follows.

    Args:
        make_engine: Builds an engine, given `num_blocks` and `block_size`, that keeps a trace.
        make_params: Builds sampling parameters, given `n` and `max_tokens`.
        num_blocks: Blocks in the first engine's pool.
        block_size: Tokens a block in the first engine.
    """

    def __init__(
        self,
        make_engine: Callable[..., LiveEngine],
        make_params: Callable[..., Any],
        *,
        num_blocks: int = 32,
        block_size: int = 4,
    ) -> None:
        super().__init__()
        self._make_engine, self._make_params = make_engine, make_params
        self._lock = threading.RLock()
        self._wants_pause = threading.Event()
        self._thread: threading.Thread | None = None
        self._player: MemoryPlayer | None = None
        self.requests: list[str] = []
        self._prompt = ipw.Text("Once upon a time", description="prompt")
        self._n = ipw.BoundedIntText(2, min=1, max=16, description="n")
        self._max_tokens = ipw.BoundedIntText(16, min=1, max=4096, description="max_tokens")
        self._num_blocks = ipw.BoundedIntText(
            num_blocks, min=1, max=2**22, description="num_blocks"
        )
        self._block_size = ipw.BoundedIntText(
            block_size, min=1, max=2**16, description="block_size"
        )
        self._status = ipw.Label()
        self._buttons = {name: self._button(name, act) for name, act in self._actions().items()}
        self.restart()

    # --- what can be done -------------------------------------------------------------------------

    def restart(self) -> None:
        """Build a new engine with the sizes that are set; what ran is given up."""
        self.pause()
        sizes = {"num_blocks": self._num_blocks.value, "block_size": self._block_size.value}
        with self._lock:
            self.engine = self._make_engine(**sizes)
            self.requests.clear()
        if self._player is not None:
            self._player.close()
        self._player = MemoryPlayer(self.engine)
        self.children = [*self._rows(), self._player]
        self._tell("ready")

    def add(self) -> None:
        """Queue the prompt."""
        params = self._make_params(n=self._n.value, max_tokens=self._max_tokens.value)
        with self._lock:
            self.requests.append(self.engine.add_request(self._prompt.value, params))
        self._tell(f"request {self.requests[-1]} waits")

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
            self._wants_pause.clear()
            self._thread = threading.Thread(target=self._run, name="live-session", daemon=True)
            self._thread.start()

    async def run_async(self) -> None:
        """Run until all is done or somebody pauses; the notebook hears its buttons meanwhile."""
        self._wants_pause.clear()
        while not self._wants_pause.is_set() and await asyncio.to_thread(self.step):
            await asyncio.sleep(0)
        self._tell_how_it_ended()

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
        if self._player is not None:
            self._player.close()
        super().close()

    @property
    def status(self) -> str:
        """What the last action came to, in one line."""
        return str(self._status.value)

    # --- inside -----------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._wants_pause.is_set() and self.step():
                pass
        except MinipagedError as e:
            self._tell(str(e))
        else:
            self._tell_how_it_ended()

    def _tell_how_it_ended(self) -> None:
        self._tell("paused" if self._wants_pause.is_set() else "all requests are done")

    def _tell(self, text: str) -> None:
        self._status.value = text

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
        button = ipw.Button(description=name)
        button.on_click(lambda _: self._try(act))
        return button

    def _try(self, act: Callable[[], object]) -> None:
        """Do what a button says; what goes wrong is one line beside it."""
        try:
            act()
        except MinipagedError as e:
            self._tell(str(e))

    def _rows(self) -> list[Any]:
        buttons = self._buttons
        return [
            ipw.HBox([self._prompt, self._n, self._max_tokens, buttons["add request"]]),
            ipw.HBox([buttons[name] for name in ("step", "run", "pause", "abort")]),
            ipw.HBox([self._num_blocks, self._block_size, buttons["new engine"], self._status]),
        ]
