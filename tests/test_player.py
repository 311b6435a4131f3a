from __future__ import annotations

import gzip
import importlib.util
import io
import os
import sys
import threading
import time
import types
from itertools import pairwise
from pathlib import Path

import pytest
from minipaged_visualizer import keys
from minipaged_visualizer import player as player_module
from minipaged_visualizer.ahead import Advanced, Ahead
from minipaged_visualizer.keys import NoKeyboard, open_keyboard, split_keys
from minipaged_visualizer.player import Player, can_draw, watch
from minipaged_visualizer.sources import FollowSource, ReplaySource
from minipaged_visualizer.timeline import START, Position
from minipaged_visualizer.token_rate import TokenRate
from rich.console import Console
from scenes import everything

from minipaged.errors import ModelError, TraceError
from minipaged.memory.events import BlockAllocated, Event, Sampled
from minipaged.memory.trace import TraceHeader, TraceStep

LEAVE_SCREEN, SHOW_CURSOR = "\x1b[?1049l", "\x1b[?25h"


class FakeSource:
    """The scripted scene, one step a call; counts the calls, and can be told to fail or to wait."""

    is_live = True

    def __init__(self, num_steps: int = 99, previewed: int = 0) -> None:
        trace = everything()
        self.header: TraceHeader = trace.header
        self.steps = trace.steps[:num_steps]
        self.status = "loading"
        self.num_calls = self.num_done = 0
        self.fails_at: dict[int, Exception] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.previewed = previewed

    @property
    def ended(self) -> bool:
        return self.num_done >= len(self.steps) + 1

    def preview(self) -> tuple[Event, ...]:
        return self.steps[0].events[: self.previewed]

    def advance(self) -> TraceStep | None:
        number = self.num_calls
        self.num_calls += 1
        self.gate.wait()
        self.status = ""
        try:
            if number in self.fails_at:
                raise self.fails_at[number]
            return self.steps[number] if number < len(self.steps) else None
        finally:
            self.num_done += 1


class FakeKeyboard:
    """Presses keys at given times of its own clock, and notes what was on the screen before.

    Time passes only here, and not before the step that was asked for has come in, so that nothing
    depends on how fast the machine is.
    """

    def __init__(self, presses: list[tuple[float, str | None]]) -> None:
        self.presses = sorted(presses, key=lambda press: press[0])
        self.now = 0.0
        self.seen: list[tuple[float, Position]] = []
        self.player: Player | None = None
        self.is_open = False

    def clock(self) -> float:
        return self.now

    def __enter__(self) -> FakeKeyboard:
        self.is_open = True
        return self

    def __exit__(self, *exception: object) -> None:
        self.is_open = False

    def read(self, timeout: float) -> str | None:
        player = self.player
        assert player is not None
        assert self.now < 60, "nobody quits"
        if not self.seen or self.seen[-1][1] != player.timeline.position:
            self.seen.append((round(self.now, 3), player.timeline.position))
        wait_until(lambda: player.ahead.is_ready or not player.ahead.is_busy)
        if self.presses and self.presses[0][0] <= self.now:
            key = self.presses.pop(0)[1]
            if key == "ctrl-c":
                raise KeyboardInterrupt
            return key
        self.now += min(timeout, self.presses[0][0] - self.now) if self.presses else timeout
        return None


def wait_until(holds) -> None:
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


def terminal(**options: object) -> Console:
    environ = {"TERM": "xterm-256color", **options.pop("environ", {})}  # type: ignore[dict-item]
    return Console(
        file=io.StringIO(),
        force_terminal=True,
        legacy_windows=False,
        width=80,
        height=24,
        _environ=environ,
        **options,  # type: ignore[arg-type]
    )


def play(source: FakeSource, *presses: tuple[float, str], **options) -> tuple[Player, FakeKeyboard]:
    keyboard = FakeKeyboard([*presses])
    console = options.pop("console", None) or terminal()
    player = Player(source, console, keyboard=keyboard, clock=keyboard.clock, **options)
    keyboard.player = player
    player.run()
    assert not keyboard.is_open
    return player, keyboard


def numbers(keyboard: FakeKeyboard) -> list[int]:
    return [position.number for _, position in keyboard.seen]


# --- playing --------------------------------------------------------------------------------------


def test_it_shows_four_steps_a_second():
    _, keyboard = play(FakeSource(), (2.0, "q"))
    times = [now for now, position in keyboard.seen if position.number >= 0]
    assert numbers(keyboard)[:5] == [-1, 0, 1, 2, 3]
    gaps = [round(after - before, 2) for before, after in pairwise(times)]
    assert all(0.25 <= gap <= 0.28 for gap in gaps)


def test_speed_keys():
    _, keyboard = play(FakeSource(), (0.0, "+"), (0.0, "+"), (0.5, "q"))
    assert keyboard.seen[-1][1].number >= 6
    _, keyboard = play(FakeSource(), (0.0, "-"), (0.0, "-"), (2.5, "q"))
    assert keyboard.seen[-1][1].number == 2
    player, _ = play(FakeSource(), *[(0.0, "+")] * 20, (0.0, "q"))
    assert player.options.steps_per_second == 64
    player, _ = play(FakeSource(), *[(0.0, "-")] * 20, (0.0, "q"))
    assert player.options.steps_per_second == 0.25


def test_an_odd_speed_is_kept_until_a_key_changes_it():
    player, _ = play(FakeSource(), (0.5, "q"), steps_per_second=3)
    assert player.options.steps_per_second == 3
    player, _ = play(FakeSource(), (0.0, "+"), (0.5, "q"), steps_per_second=500)
    assert player.options.steps_per_second == 500


def test_pausing_pauses_the_engine_with_one_step_ahead_at_most():
    source = FakeSource()
    player, _ = play(source, (1.1, "space"), (9.0, "q"))
    shown = player.timeline.position.number
    assert shown == 4
    assert source.num_calls <= shown + 2
    assert player.options.is_paused


def test_paused_before_the_first_step_the_engine_does_nothing():
    source = FakeSource(previewed=5)
    play(source, (0.0, "space"), (2.0, "n"), (3.0, "home"), (4.0, "q"))
    assert source.num_calls <= 1
    source = FakeSource(previewed=5)
    play(source, (0.0, "space"), (2.0, "p"), (3.0, "n"), (4.0, "q"))
    assert source.num_calls == 0


def test_space_runs_again_from_where_it_stands():
    _, keyboard = play(FakeSource(), (0.6, "space"), (2.0, "space"), (3.0, "q"))
    assert numbers(keyboard) == list(range(-1, numbers(keyboard)[-1] + 1))
    assert numbers(keyboard)[-1] >= 5


def test_going_back_pauses_and_forward_shows_the_same_steps_without_the_engine():
    source = FakeSource()
    presses = [(1.1, "left"), (1.2, ","), (1.3, "."), (1.4, "right")]
    _, keyboard = play(source, *presses, (5.0, "q"))
    assert numbers(keyboard)[-5:] == [4, 3, 2, 3, 4]
    assert source.num_calls <= 6


def test_a_single_step_at_the_end_asks_for_one_more():
    source = FakeSource()
    player, _ = play(source, (0.0, "space"), (1.0, "."), (2.0, "."), (3.0, "."), (4.0, "q"))
    assert player.timeline.position.number == 2
    assert source.num_calls <= 4


def test_event_by_event():
    player, keyboard = play(
        FakeSource(), (0.0, "space"), (0.5, "n"), (1.0, "n"), (1.5, "n"), (2.0, "p"), (3.0, "q")
    )
    assert [position for _, position in keyboard.seen] == [
        START,
        Position(0, 1),
        Position(0, 2),
        Position(0, 3),
        Position(0, 2),
    ]
    assert player.options.by_event


def test_a_wish_is_forgotten_when_another_key_comes():
    source = FakeSource()
    source.gate.clear()

    class Hasty(FakeKeyboard):
        def read(self, timeout: float) -> str | None:
            if self.presses:
                return self.presses.pop(0)[1]
            source.gate.set()
            wait_until(lambda: player.ahead.is_ready or not player.ahead.is_busy)
            self.now += 1
            return "q" if self.now > 5 else None

    keyboard = Hasty([(0, "space"), (1, "."), (2, "left")])
    player = Player(source, terminal(), keyboard=keyboard, clock=keyboard.clock)
    player.run()
    assert source.num_calls == 1
    assert player.timeline.position == START


def test_home_and_end():
    _, keyboard = play(FakeSource(), (1.1, "home"), (1.5, "end"), (2.0, "q"))
    assert numbers(keyboard)[-2] == -1
    assert numbers(keyboard)[-1] >= 4


def test_tab_walks_through_the_sequences_with_blocks_and_back_to_none():
    focused = []

    class Noting(FakeKeyboard):
        def read(self, timeout: float) -> str | None:
            focused.append(self.player.options.focus)  # type: ignore[union-attr]
            return super().read(timeout)

    keyboard = Noting([(0.6, "space"), *[(1.0 + n / 10, "tab") for n in range(6)], (2.0, "q")])
    player = Player(FakeSource(), terminal(), keyboard=keyboard, clock=keyboard.clock)
    keyboard.player = player
    player.run()
    changes = [f for f, before in zip(focused[1:], focused, strict=False) if f != before]
    assert changes == [0, 1, 2, 3, None, 0]


def test_help_opens_and_closes():
    console = terminal()
    player, _ = play(FakeSource(), (0.1, "?"), (0.5, "?"), (0.8, "q"), console=console)
    assert not player.options.show_help
    assert "copy-on-write" in console.file.getvalue()
    player, _ = play(FakeSource(), (0.1, "?"), (0.5, "escape"), (0.8, "q"))
    assert not player.options.show_help


def test_unknown_keys_do_nothing():
    player, _ = play(FakeSource(), (0.1, "x"), (0.2, "enter"), (0.3, "up"), (1.0, "q"))
    assert not player.options.is_paused


# --- the first frame, the last frame, and every way out -------------------------------------------


def test_the_first_frame_shows_the_preview_while_the_engine_still_loads():
    source = FakeSource(previewed=5)
    source.gate.clear()
    console = terminal()

    class Impatient(FakeKeyboard):
        def read(self, timeout: float) -> str | None:
            assert source.num_done == 0
            return "q"

    player = Player(source, console, keyboard=Impatient([]))
    start = time.monotonic()
    player.run()
    assert time.monotonic() - start < 5, "quitting waits for nobody"
    source.gate.set()
    shown = console.file.getvalue()
    assert "loading" in shown
    assert "A takes blocks 0 to 3" in shown


def test_a_caller_is_told_that_a_step_is_still_under_way():
    source = FakeSource()
    source.gate.clear()

    class Once(FakeKeyboard):
        def read(self, timeout: float) -> str | None:
            return "q" if source.num_calls else None

    player = Player(source, terminal(), keyboard=Once([]))
    player.run()
    assert player.ahead.is_busy
    source.gate.set()


def test_at_the_end_the_last_frame_stays_until_it_is_quit():
    source = FakeSource(num_steps=3)
    console = terminal()
    player, keyboard = play(source, (20.0, "q"), console=console)
    assert keyboard.now == pytest.approx(20.0)
    assert player.timeline.position.number == 2
    assert "■ the end" in console.file.getvalue()


def test_it_can_end_by_itself():
    player, keyboard = play(FakeSource(num_steps=3), exit_when_done=True)
    assert player.timeline.position.number == 2
    assert keyboard.now < 2


def test_without_a_keyboard_it_ends_by_itself():
    source = FakeSource(num_steps=2)
    Player(source, terminal(), steps_per_second=200, keyboard=NoKeyboard()).run()
    assert source.ended


def test_a_failure_before_the_first_step_is_raised_at_once():
    source = FakeSource()
    source.fails_at[0] = ModelError("no such model")
    console = terminal()
    with pytest.raises(ModelError, match="no such model"):
        play(source, console=console)
    assert console.file.getvalue().endswith(SHOW_CURSOR) or LEAVE_SCREEN in console.file.getvalue()


def test_a_later_failure_is_shown_until_it_is_quit_and_then_raised():
    source = FakeSource()
    source.fails_at[3] = TraceError("line 5 is cut off")
    console = terminal()
    keyboard = FakeKeyboard([(9.0, "left"), (10.0, "q")])
    player = Player(source, console, keyboard=keyboard, clock=keyboard.clock)
    keyboard.player = player
    with pytest.raises(TraceError, match="line 5 is cut off"):
        player.run()
    assert numbers(keyboard)[-2:] == [2, 1]
    assert "line 5 is cut off" in console.file.getvalue()


def test_a_step_that_contradicts_the_others_ends_the_run():
    source = FakeSource()
    source.steps[2] = TraceStep(2, 0, 0, "", (BlockAllocated(0, 99, 1, "append"),))
    with pytest.raises(TraceError, match="not next"):
        play(source, exit_when_done=True)


@pytest.mark.parametrize("key", ["ctrl-c", "q"])
def test_the_terminal_is_restored(key: str):
    console = terminal()
    try:
        play(FakeSource(), (0.3, key), console=console)
    except KeyboardInterrupt:
        assert key == "ctrl-c"
    else:
        assert key == "q"
    written = console.file.getvalue()
    assert written.index(LEAVE_SCREEN) > written.index("\x1b[?1049h")
    assert SHOW_CURSOR in written[-40:]


def test_ctrl_z_gives_the_terminal_back_until_the_shell_continues(monkeypatch: pytest.MonkeyPatch):
    console = terminal()
    left = []
    monkeypatch.setattr(player_module, "suspend", lambda: left.append(console.file.getvalue()))
    player, _ = play(FakeSource(), (0.6, "ctrl-z"), (1.5, "q"), console=console)
    assert len(left) == 1
    assert left[0].count("\x1b[?1049h") == left[0].count(LEAVE_SCREEN) == 1
    assert console.file.getvalue().count("\x1b[?1049h") == 2
    assert player.timeline.position.number >= 4


def test_a_frame_is_drawn_only_when_something_changed():
    console = terminal()
    play(FakeSource(), (0.0, "space"), (50.0, "q"), console=console)
    assert console.file.getvalue().count("minipaged") <= 4


# --- lines for pipes ------------------------------------------------------------------------------


def plain(source, **options: object) -> str:
    console = Console(file=io.StringIO(), force_terminal=False, width=20, **options)  # type: ignore[arg-type]
    watch(source, console)
    return console.file.getvalue()


def test_without_a_terminal_there_is_one_plain_line_a_step_and_the_texts():
    lines = plain(FakeSource()).splitlines()
    assert len(lines) == 16 + 5
    assert lines[4] == (
        "step 4: 11 used, 0 cached, 5 free | E arrives (stars): a prompt of 12 tokens | "
        "next token: A “ lantern”, B “ through”, C “ it” and D “ and”"
    )
    assert lines[15].startswith("step 15: 0 used, 11 cached, 5 free | done | D is finished")
    assert lines[16] == "A: The moon is a lantern that nobody has to light . The"
    assert "\x1b" not in "".join(lines)


def test_a_dumb_terminal_gets_plain_lines():
    console = terminal(environ={"TERM": "dumb"})
    assert not can_draw(console)
    watch(FakeSource(num_steps=2), console)
    assert console.file.getvalue().startswith("step 0: 4 used")
    assert "\x1b[?1049h" not in console.file.getvalue()


def test_an_output_that_is_not_unicode_gets_what_it_can_show():
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding="ascii"), force_terminal=False)
    assert not can_draw(console)
    watch(FakeSource(), console)
    console.file.flush()
    assert b"next token: A ? The?" in raw.getvalue()


def test_plain_lines_raise_what_the_source_raises():
    source = FakeSource()
    source.fails_at[1] = TraceError("line 3 is cut off")
    with pytest.raises(TraceError, match="line 3"):
        plain(source)


# --- files ----------------------------------------------------------------------------------------


def test_a_trace_file_is_played_to_its_end(tmp_path: Path):
    for name in ("scene.jsonl", "scene.jsonl.gz"):
        everything().save(tmp_path / name)
        with ReplaySource(tmp_path / name) as source:
            assert plain(source).count("step ") == 16
            assert source.ended


def test_the_steps_before_a_cut_are_shown(tmp_path: Path):
    path = tmp_path / "cut.jsonl"
    everything().save(path)
    path.write_bytes(path.read_bytes()[:-20])
    console = Console(file=io.StringIO(), force_terminal=False)
    with ReplaySource(path) as source, pytest.raises(TraceError, match="line 17 is cut off"):
        watch(source, console)
    assert console.file.getvalue().count("step ") == 15


def test_what_is_no_trace_is_refused(tmp_path: Path):
    path = tmp_path / "no.jsonl"
    path.write_text('{"format": "other"}\n')
    for kind in (ReplaySource, FollowSource):
        with pytest.raises(TraceError, match="not a trace"):
            kind(path)


def test_a_growing_file_is_followed(tmp_path: Path):
    path, whole = tmp_path / "grows.jsonl", tmp_path / "whole.jsonl"
    everything().save(whole)
    lines = whole.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0])
    with FollowSource(path) as source, open(path, "ab", buffering=0) as file:
        assert source.advance() is None
        file.write(lines[1] + lines[2][:30])
        step = source.advance()
        assert step is not None
        assert step.step == 0
        assert source.advance() is None
        file.write(lines[2][30:] + lines[3])
        assert [source.advance().step for _ in range(2)] == [1, 2]  # type: ignore[union-attr]
        assert source.advance() is None
        assert not source.ended
        assert source.status == "following grows.jsonl"


def test_gzip_is_read_too(tmp_path: Path):
    path = tmp_path / "t.gz"
    plain_path = tmp_path / "t"
    everything().save(plain_path)
    path.write_bytes(gzip.compress(plain_path.read_bytes()))
    with ReplaySource(path) as source:
        step = source.advance()
    assert step == everything().steps[0]


# --- small parts ----------------------------------------------------------------------------------


def test_tokens_per_second_leaves_out_the_step_that_loads_the_model():
    rate = TokenRate()
    step = TraceStep(0, 0, 0, "", (Sampled((0, 1), (5, 6), ("a", "b"), (0, 0)),))
    rate.add(Advanced(step, 30.0), is_live=True)
    assert rate.tokens_per_second is None
    rate.add(Advanced(step, 0.1), is_live=True)
    rate.add(Advanced(step, 0.3), is_live=True)
    assert rate.tokens_per_second == pytest.approx(10.0)


def test_tokens_per_second_of_a_file_are_known_only_from_its_durations():
    rate = TokenRate()
    step = TraceStep(0, 0, 0, "", (Sampled((0,), (5,), ("a",), (0,)),))
    rate.add(Advanced(step, 0.1), is_live=False)
    assert rate.tokens_per_second is None
    timed = TraceStep(0, 0, 0, "", step.events, us=50_000)
    rate.add(Advanced(timed, 9.0), is_live=False)
    assert rate.tokens_per_second == pytest.approx(20.0)


def test_one_step_at_a_time_is_under_way():
    source = FakeSource()
    ahead = Ahead(source)
    assert ahead.take() is None
    ahead.ask()
    ahead.ask()
    wait_until(lambda: source.num_done == 1)
    wait_until(lambda: (taken := ahead.take()) is not None and taken.step is source.steps[0])
    time.sleep(0.02)
    assert source.num_calls == 1
    ahead.close()


def test_keys_are_named():
    assert split_keys("\x1b[A\x1bOB \tq?\x1b[1~\x1b[F\x1b[1;2D+") == [
        "up",
        "down",
        "space",
        "tab",
        "q",
        "?",
        "home",
        "end",
        "shift-left",
        "+",
    ]
    assert split_keys("\x1b[200~n\x01\x00é") == ["n", "é"]
    assert split_keys("\x1b\x1b") == ["escape", "escape"]


def test_an_input_that_is_no_terminal_has_no_keys(monkeypatch: pytest.MonkeyPatch):
    for stdin in (io.StringIO("q"), None):
        monkeypatch.setattr(sys, "stdin", stdin)
        with open_keyboard() as keyboard:
            assert isinstance(keyboard, NoKeyboard)
            assert keyboard.read(0.0) is None


def test_keys_on_windows(monkeypatch: pytest.MonkeyPatch):
    typed = iter([" ", "\xe0", "M", "\x00", "G", "q", "\xe0", "?", "\x03"])
    console = types.ModuleType("msvcrt")
    console.kbhit = lambda: True  # type: ignore[attr-defined]
    console.getwch = lambda: next(typed)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "msvcrt", console)
    monkeypatch.setattr(sys, "platform", "win32")
    spec = importlib.util.spec_from_file_location("keys_on_windows", keys.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(isatty=lambda: True))
    with module.open_keyboard() as keyboard:
        assert [keyboard.read(1) for _ in range(5)] == ["space", "right", "home", "q", None]
        with pytest.raises(KeyboardInterrupt):
            keyboard.read(1)
        console.kbhit = lambda: False  # type: ignore[attr-defined]
        assert keyboard.read(0.02) is None


# --- a real terminal ------------------------------------------------------------------------------

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo terminal")
SCRIPT = """
import sys
from minipaged_visualizer.player import watch
from minipaged_visualizer.sources import ReplaySource
try:
    with ReplaySource(sys.argv[1]) as source:
        watch(source, steps_per_second=float(sys.argv[2]))
except KeyboardInterrupt:
    sys.exit(130)
"""


class Terminal:
    """A process in a pseudo terminal, and what its screen shows."""

    def __init__(self, path: Path, speed: float = 0.01) -> None:
        import pty
        import subprocess

        pyte = pytest.importorskip("pyte")
        self.screen = pyte.Screen(80, 24)
        self._stream = pyte.ByteStream(self.screen)
        self.fd, self.child_fd = pty.openpty()
        self.resize(80, 24)
        root = Path(__file__).parent.parent
        paths = os.pathsep.join([str(root), str(root / "visualizer")])
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(path), str(speed)],
            stdin=self.child_fd,
            stdout=self.child_fd,
            stderr=self.child_fd,
            start_new_session=True,
            env={
                **{k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")},
                "TERM": "xterm-256color",
                "PYTHONPATH": paths,
                "LC_ALL": "C.UTF-8",
            },
            preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
        )

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.fd)
        os.close(self.child_fd)

    def resize(self, width: int, height: int) -> None:
        import fcntl
        import struct
        import termios

        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.screen.resize(height, width)

    def type(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def read(self, seconds: float = 0.05) -> None:
        import select

        if select.select([self.fd], [], [], seconds)[0]:
            self._stream.feed(os.read(self.fd, 65536))

    def until(self, *words: str) -> str:
        end = time.monotonic() + 90
        while True:
            text = "\n".join(self.screen.display)
            if all(word in text for word in words):
                return text
            assert time.monotonic() < end, f"{words} not in\n{text}"
            self.read()

    def wait(self) -> int:
        end = time.monotonic() + 90
        while self.process.poll() is None:
            assert time.monotonic() < end
            self.read()
        return self.process.returncode

    def attributes(self) -> list:
        import termios

        return termios.tcgetattr(self.child_fd)


@posix
def test_real_keys_in_a_real_terminal(tmp_path: Path):
    everything().save(tmp_path / "scene.jsonl")
    with Terminal(tmp_path / "scene.jsonl") as terminal:
        before = terminal.attributes()
        terminal.until("step 0 of", "q quit")
        assert terminal.attributes() != before
        terminal.type(" ..")
        terminal.until("paused", "step 2 of")
        terminal.type("\x1b[D")
        terminal.until("step 1 of", "A copies block 3 to block 5")
        terminal.type("p")
        terminal.until("event 8 of 9")
        terminal.type("?")
        terminal.until("Keys", "Signs")
        terminal.type("?")
        terminal.until("Sequences")
        terminal.resize(120, 40)
        text = terminal.until("sharing saves", "blocks")
        assert len(text.splitlines()) == 40
        terminal.until("   0 →    0   4/4 ×4")
        terminal.type("q")
        assert terminal.wait() == 0
        assert terminal.attributes() == before


@posix
def test_a_key_typed_before_the_first_frame_counts(tmp_path: Path):
    everything().save(tmp_path / "scene.jsonl")
    with Terminal(tmp_path / "scene.jsonl") as terminal:
        terminal.type("q")
        assert terminal.wait() == 0


@posix
def test_ctrl_c_restores_the_terminal_and_reaches_the_caller(tmp_path: Path):
    everything().save(tmp_path / "scene.jsonl")
    with Terminal(tmp_path / "scene.jsonl") as terminal:
        before = terminal.attributes()
        terminal.until("q quit")
        terminal.type("\x03")
        assert terminal.wait() == 130
        assert terminal.attributes() == before
