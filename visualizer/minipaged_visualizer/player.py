"""Plays a source in the terminal: shows each step for a while, and obeys the keys.

While it plays, the next step is computed during the time in which this one is shown. Pausing or
going back asks for no more steps, so a live engine stands still; what was computed can be walked
through at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from rich.console import Console
from rich.live import Live

from minipaged.errors import MinipagedError
from minipaged_visualizer.ahead import Ahead
from minipaged_visualizer.keys import Keyboard, NoKeyboard, open_keyboard, suspend
from minipaged_visualizer.options import Options
from minipaged_visualizer.plain import play_plain
from minipaged_visualizer.sources import Source
from minipaged_visualizer.terminal import Screen
from minipaged_visualizer.timeline import Timeline
from minipaged_visualizer.token_rate import TokenRate

SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_LEAST_SECONDS, _TICK_SECONDS = 0.01, 0.05
_IDLE_SECONDS = 0.1


def watch(
    source: Source,
    console: Console | None = None,
    *,
    steps_per_second: float = 4.0,
    exit_when_done: bool = False,
    is_projected: bool = False,
) -> None:
    """Show a source until it is quit: with keys on a terminal, else as one plain line a step.

    Raises:
        MinipagedError: What the source raised, after the terminal was restored.
        KeyboardInterrupt: Ctrl-C, after the terminal was restored.
    """
    console = console or Console()
    if not can_draw(console):
        play_plain(source, console)
        return
    player = Player(
        source, console, steps_per_second=steps_per_second, exit_when_done=exit_when_done
    )
    player.options = replace(player.options, is_projected=is_projected)
    player.run()


def can_draw(console: Console) -> bool:
    """Tell whether the console is a terminal that can place text and knows these characters."""
    return (
        console.is_terminal
        and not console.is_dumb_terminal
        and not console.legacy_windows
        and console.encoding.lower().startswith("utf")
    )


class Player:
    """The loop: take what was computed, move on when it is time, draw, obey a key.

    A fake `keyboard` and `clock` make it deterministic. After `run`, `ahead.is_busy` tells whether
    a call of `advance` is still under way on its daemon thread.
    """

    def __init__(
        self,
        source: Source,
        console: Console,
        *,
        steps_per_second: float = 4.0,
        exit_when_done: bool = False,
        keyboard: Keyboard | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.source = source
        self.timeline = Timeline(source.header)
        self.options = Options(steps_per_second=steps_per_second)
        self.ahead = Ahead(source)
        self._console = console
        self._keyboard = keyboard or open_keyboard()
        self._exit_when_done = exit_when_done or isinstance(self._keyboard, NoKeyboard)
        self._clock = clock
        self._next_move = self._next_ask = clock()
        self._wanted: Callable[[], bool] | None = None
        self._error: Exception | None = None
        self._is_quit = self._is_suspended = False
        self._rate = TokenRate()
        self._drawn: object = None

    def run(self) -> None:
        """Play until it is quit, or until the end if nobody could quit it.

        Raises:
            Exception: What `advance` raised, once the terminal is restored.
        """
        self.timeline.preview(self.source.preview())
        self.timeline.last()
        try:
            while not self._is_over():
                with (
                    self._keyboard,
                    Live(console=self._console, screen=True, auto_refresh=False) as live,
                ):
                    self._loop(live)
                if self._is_suspended:
                    suspend()
        finally:
            self.ahead.close()
        if self._error is not None:
            raise self._error

    def _loop(self, live: Live) -> None:
        self._is_suspended, self._drawn = False, None
        while not self._is_over() and not self._is_suspended:
            self._draw(live)
            self.press(self._keyboard.read(self._patience()))
            self._take()
            self._move()
            self._ask()

    def press(self, key: str | None) -> None:
        """Obey one key; unknown ones do nothing."""
        action = _ACTIONS.get(key or "")
        if action is not None:
            action(self)

    # --- steps come in ----------------------------------------------------------------------------

    def _ask(self) -> None:
        """Compute ahead, one step at most, and only while somebody wants to see it."""
        wants = self._wanted is not None or not self.options.is_paused
        could = self.timeline.is_at_end and not self._has_ended()
        if wants and could and self._clock() >= self._next_ask:
            self.ahead.ask()

    def _take(self) -> None:
        result = self.ahead.take()
        if result is None:
            return
        error = result.error
        if result.step is not None:
            try:
                self.timeline.append(result.step)
            except MinipagedError as e:
                error = e
            else:
                self._rate.add(result, self.source.is_live)
        elif error is None:
            self._next_ask = self._clock() + _IDLE_SECONDS
        self._error = error

    def _has_ended(self) -> bool:
        return self.source.ended or self._error is not None

    def _is_over(self) -> bool:
        """Whether to leave: quit, failed before the first step, or played to the end by itself."""
        if self._is_quit or (self._error is not None and not self.timeline.steps):
            return True
        at_end = self._has_ended() and not self.ahead.is_busy and self.timeline.is_at_end
        return self._exit_when_done and at_end

    # --- moving -----------------------------------------------------------------------------------

    def _move(self) -> None:
        """Do what a key asked for as soon as its step is there, or play on when it is time."""
        if self._wanted is not None and not self.timeline.is_at_end:
            self._wanted()
            self._wanted = None
            return
        is_time = not self.options.is_paused and self._clock() >= self._next_move
        if is_time and self.timeline.forward_step():
            self._next_move = self._clock() + 1 / self.options.steps_per_second

    def _walk(self, move: Callable[[], bool], by_event: bool) -> None:
        """Pause and go somewhere; wait for the next step if it is not there yet."""
        self._set(is_paused=True, by_event=by_event)
        self._wanted = None
        forward = move in (self.timeline.forward_step, self.timeline.forward_event)
        if not move() and forward and not self._has_ended():
            self._wanted = move

    def _toggle_pause(self) -> None:
        self._set(is_paused=not self.options.is_paused, by_event=False)

    def _change_speed(self, by: int) -> None:
        now = self.options.steps_per_second
        faster = [speed for speed in SPEEDS if speed > now]
        slower = [speed for speed in SPEEDS if speed < now]
        speeds = faster[:1] if by > 0 else slower[-1:]
        self._set(steps_per_second=(speeds or [now])[0])
        self._next_move = min(self._next_move, self._clock() + 1 / self.options.steps_per_second)

    def _change_focus(self, by: int) -> None:
        """Focus the next sequence that has blocks; after the last one, none."""
        state = self.timeline.state
        choices = [None, *sorted(state.tables.keys() | state.swap_tables.keys())]
        focus = self.options.focus
        index = choices.index(focus) if focus in choices else 0
        self._set(focus=choices[(index + by) % len(choices)])

    def _toggle_help(self) -> None:
        self._set(show_help=not self.options.show_help)

    def _toggle_projector(self) -> None:
        self._set(is_projected=not self.options.is_projected)

    def _close_help(self) -> None:
        self._set(show_help=False)

    def _suspend(self) -> None:
        self._is_suspended = True

    def _quit(self) -> None:
        self._is_quit = True

    # --- drawing ----------------------------------------------------------------------------------

    def _set(self, **changes: object) -> None:
        self.options = replace(self.options, **changes)  # type: ignore[arg-type]

    def _draw(self, live: Live) -> None:
        """Draw a frame if it differs from the last one."""
        failed = str(self._error) if self._error is not None else ""
        self._set(
            status=failed or self.source.status,
            is_error=bool(failed),
            has_ended=self._has_ended() and self.timeline.is_at_end,
            tokens_per_second=self._rate.tokens_per_second,
        )
        timeline = self.timeline
        shown = (timeline.position, len(timeline.steps), self.options, self._console.size)
        if shown != self._drawn:
            live.update(Screen(timeline, self.options), refresh=True)
            self._drawn = shown

    def _patience(self) -> float:
        """Give how long to wait for a key before looking at everything else again."""
        if self.options.is_paused and self._wanted is None:
            return _TICK_SECONDS
        return min(max(self._next_move - self._clock(), _LEAST_SECONDS), _TICK_SECONDS)


_ACTIONS: dict[str, Callable[[Player], None]] = {
    "space": Player._toggle_pause,
    ".": lambda p: p._walk(p.timeline.forward_step, by_event=False),
    "right": lambda p: p._walk(p.timeline.forward_step, by_event=False),
    ",": lambda p: p._walk(p.timeline.back_step, by_event=False),
    "left": lambda p: p._walk(p.timeline.back_step, by_event=False),
    "n": lambda p: p._walk(p.timeline.forward_event, by_event=True),
    "shift-right": lambda p: p._walk(p.timeline.forward_event, by_event=True),
    "p": lambda p: p._walk(p.timeline.back_event, by_event=True),
    "shift-left": lambda p: p._walk(p.timeline.back_event, by_event=True),
    "home": lambda p: p._walk(p.timeline.first, by_event=False),
    "end": lambda p: p._walk(p.timeline.last, by_event=False),
    "+": lambda p: p._change_speed(+1),
    "=": lambda p: p._change_speed(+1),
    "-": lambda p: p._change_speed(-1),
    "tab": lambda p: p._change_focus(+1),
    "backtab": lambda p: p._change_focus(-1),
    "b": Player._toggle_projector,
    "?": Player._toggle_help,
    "escape": Player._close_help,
    "ctrl-z": Player._suspend,
    "q": Player._quit,
}
