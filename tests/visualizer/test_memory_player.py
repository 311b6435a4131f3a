"""The notebook widget: what it sends of a trace that grows, and what a browser makes of it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from chromium import CHROMIUM, Chromium
from minipaged_visualizer.browser_module import style, widget_module
from minipaged_visualizer.payload import step_captions, trace_payload
from scenes import Script, everything

from minipaged.errors import TraceError
from minipaged.memory import events as ev
from minipaged.memory.trace import Trace

pytest.importorskip("anywidget")
from minipaged_visualizer import memory_player
from minipaged_visualizer.memory_player import (
    LOOKS_A_SECOND_AT_REST,
    MOST_EVENTS_A_MESSAGE,
    MOST_STEPS_A_MESSAGE,
    UPDATES_A_SECOND,
    MemoryPlayer,
)

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def play() -> Iterator[Callable[[object], MemoryPlayer]]:
    """Build players whose messages are kept in `sent`, and close them."""
    players: list[MemoryPlayer] = []

    def build(source: object) -> MemoryPlayer:
        player = MemoryPlayer(source)
        player.sent = []
        player.send = lambda content, buffers=None: player.sent.append(content)
        players.append(player)
        return player

    yield build
    for player in players:
        player.close()


def running_script() -> Script:
    script = Script(num_blocks=16)
    script.request(0, ["Once", " upon"], samples=2)
    script.admit(0)
    script.step()
    return script


def wait_until(holds: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


# --- what is sent ---------------------------------------------------------------------------------


def test_the_terminal_needs_no_anywidget() -> None:
    code = (
        "import sys; sys.modules['anywidget'] = None; import minipaged_visualizer.player;"
        "from minipaged_visualizer import export_html"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["path", "trace", "llm"])
def test_it_takes_a_path_a_trace_or_an_llm(play: Any, kind: str) -> None:
    path = GOLDEN / "memory.jsonl"
    trace = Trace.load(path)
    source = {"path": str(path), "trace": trace, "llm": SimpleNamespace(trace=trace)}[kind]
    assert play(source)._payload == trace_payload(trace.header, trace.steps)


@pytest.mark.parametrize("source", [None, 7, SimpleNamespace(trace=None)])
def test_what_has_no_trace_is_one_clear_error(source: object) -> None:
    with pytest.raises(TraceError, match="an LLM built with trace=True"):
        MemoryPlayer(source)


def test_new_steps_are_sent_once_in_order_and_not_too_often(play: Any) -> None:
    script = running_script()
    player = play(script.trace)
    start = time.monotonic()
    for _ in range(40):
        script.step() if len(script.trace.steps) < 8 else script.trace.end_step(0, 0, "idle")
        time.sleep(0.005)
    wait_until(lambda: player._num_sent == 41)
    assert len(player.sent) <= (time.monotonic() - start) * UPDATES_A_SECOND + 2
    rows = [row for message in player.sent for row in message["steps"]]
    assert [row["step"] for row in rows] == list(range(1, 41))
    assert player.sent[0]["first"] == 1
    assert json.loads(json.dumps(rows))[0]["events"][0][0] == "copy"


def test_when_a_run_rests_the_whole_trace_is_kept_for_a_reload(play: Any) -> None:
    script = running_script()
    player = play(script.trace)
    script.step()
    wait_until(lambda: len(player._payload["steps"]) == 2)


def test_a_run_that_rests_is_looked_at_less_often(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_player, "_AT_REST_AFTER", 2)
    script = running_script()
    player, looks = play(script.trace), []
    push = player.push
    player.push = lambda: looks.append(time.monotonic()) or push()
    wait_until(lambda: len(looks) == 6)
    assert looks[5] - looks[2] > 2.5 / LOOKS_A_SECOND_AT_REST
    script.step()
    wait_until(lambda: len(player.sent) == 1)


def test_a_closed_trace_needs_no_thread(play: Any) -> None:
    script = running_script()
    player = play(script.trace)
    script.step()
    script.trace.close()
    player._thread.join(20)
    assert not player._thread.is_alive()
    assert [row["step"] for message in player.sent for row in message["steps"]] == [1]
    assert len(player._payload["steps"]) == 2
    assert play(script.trace)._thread is None
    assert play(Trace.load(GOLDEN / "memory.jsonl"))._thread is None
    player._answer(player, {"type": "resend", "first": 1}, [])
    assert len(player.sent) == 2


def test_what_a_view_missed_is_sent_again(play: Any) -> None:
    player = play(everything())
    player._answer(player, {"type": "resend", "first": 14}, [])
    wait_until(lambda: player.sent)
    (message,) = player.sent
    assert (message["first"], len(message["steps"])) == (14, 2)
    for nonsense in ({}, {"type": "resend"}, {"type": "resend", "first": -3}, "resend", None):
        player._answer(player, nonsense, [])
    time.sleep(2 / UPDATES_A_SECOND)
    assert len(player.sent) == 1


def test_a_run_faster_than_a_browser_floods_nobody(play: Any) -> None:
    script = running_script()
    player = play(script.trace)
    idle = ev.Sampled((0,), (1,), ("a",), (-1,))
    for _ in range(3000):
        for _ in range(2):
            script.trace.observe(idle)
        script.trace.end_step(0, 0, "")
    start = time.monotonic()
    wait_until(lambda: player._num_sent == 3001)
    sizes = [sum(len(row["events"]) for row in message["steps"]) for message in player.sent]
    assert max(sizes) <= MOST_EVENTS_A_MESSAGE
    assert sum(sizes) == 6000
    assert len(sizes) <= (time.monotonic() - start) * UPDATES_A_SECOND + 4
    rows = [row["step"] for message in player.sent for row in message["steps"]]
    assert rows == list(range(1, 3001))


def test_many_steps_without_events_are_several_messages(play: Any) -> None:
    script = running_script()
    player = play(script.trace)
    for _ in range(2 * MOST_STEPS_A_MESSAGE):
        script.trace.end_step(0, 0, "")
    wait_until(lambda: player._num_sent == 2 * MOST_STEPS_A_MESSAGE + 1)
    assert max(len(message["steps"]) for message in player.sent) <= MOST_STEPS_A_MESSAGE


def test_a_step_that_is_too_much_for_a_message_goes_alone(play: Any) -> None:
    script = running_script()
    player = play(script.trace)
    for count in (1, 2 * MOST_EVENTS_A_MESSAGE, 1):
        for _ in range(count):
            script.trace.observe(ev.Sampled((0,), (1,), ("a",), (-1,)))
        script.trace.end_step(0, 0, "")
    wait_until(lambda: player._num_sent == 4)
    assert all(len(message["steps"]) <= 2 for message in player.sent)
    assert [row["step"] for message in player.sent for row in message["steps"]] == [1, 2, 3]


def test_a_closed_player_looks_no_more(play: Any) -> None:
    script = running_script()
    player = play(script.trace)
    player.close()
    assert not player._thread.is_alive()
    script.step()
    time.sleep(3 / UPDATES_A_SECOND)
    assert player.sent == []


def test_to_html_gives_the_trace_so_far(play: Any, tmp_path: Path) -> None:
    player = play(GOLDEN / "memory.jsonl")
    page = player.to_html(tmp_path / "page.html")
    assert page.startswith("<!DOCTYPE html>")
    assert (tmp_path / "page.html").read_text("utf-8") == page


def test_captions_cover_every_event_and_tell_each_alone() -> None:
    events = [ev.BlockShared(1, 0, 4), ev.BlockShared(1, 1, 5), ev.Finished(0, "stop")]
    assert step_captions(events) == [
        [
            2,
            "B shares blocks 4 and 5 with its parent: nothing is copied",
            [
                "B shares block 4 with its parent: nothing is copied",
                "B shares block 5 with its parent: nothing is copied",
            ],
        ],
        [1, "A is finished: it came to its end"],
    ]


# --- what a browser makes of it -------------------------------------------------------------------

HARNESS = """<!DOCTYPE html><meta charset="utf-8"><style>{style}</style>
<main></main><script type="module">
{module}
const listeners = {{}};
const state = {{ _key: "k", _payload: {payload} }};
const model = {{
  get: (name) => state[name],
  on: (name, listener) => (listeners[name] = listener),
  send: (message) => window.asked.push(message),
}};
const made = widget.createWidget();
window.asked = [];
made.initialize({{ model: {{ ...model }} }});
window.say = (message) => listeners["msg:custom"](message);
window.show = () => made.render({{ model: {{ ...model }}, el: document.querySelector("main") }});
</script>"""


@pytest.fixture
def page(tmp_path: Path) -> Iterator[tuple[Chromium, list[dict[str, Any]]]]:
    """A page with a widget that got the first 3 steps, and the steps that will come."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    trace = everything()
    payload = trace_payload(trace.header, trace.steps)
    first = {**payload, "steps": payload["steps"][:3]}
    text = HARNESS.format(style=style(), module=widget_module(), payload=json.dumps(first))
    (tmp_path / "page.html").write_text(text, "utf-8")
    with Chromium() as browser:
        browser.open((tmp_path / "page.html").as_uri())
        yield browser, payload["steps"]
        assert browser.complaints == []


def say(browser: Chromium, first: int, steps: list[dict[str, Any]]) -> None:
    browser.evaluate(f"say({json.dumps({'type': 'steps', 'first': first, 'steps': steps})})")
    browser.settle()


def test_steps_that_came_before_a_view_and_after_it_are_shown(page: Any) -> None:
    browser, steps = page
    place = "document.querySelector('.mp-place').innerText"
    say(browser, 3, steps[3:5])
    browser.evaluate("show() && null")
    browser.settle()
    assert browser.evaluate("document.querySelector('.mp-range').max") == "5"
    say(browser, 5, steps[5:6])
    assert browser.evaluate(place).startswith("step 0")  # who looks elsewhere stays there
    browser.evaluate("document.querySelector('.minipaged').focus()")
    browser.press("End")
    say(browser, 6, steps[6:8])
    assert browser.evaluate(place).startswith("step 7")  # who looks at the newest goes on
    say(browser, 6, steps[6:8])  # twice the same
    assert browser.evaluate("document.querySelector('.mp-range').max") == "8"
    say(browser, 12, steps[12:])
    assert browser.evaluate("asked.pop()") == {"type": "resend", "first": 8}


def test_keys_stay_in_the_widget_and_two_views_are_two(page: Any) -> None:
    browser, _ = page
    browser.evaluate("show() && show() && null")
    browser.evaluate("window.heard = 0; document.addEventListener('keydown', () => heard++)")
    browser.evaluate("document.querySelectorAll('.minipaged')[1].focus()")
    browser.press("n", "x", "q", "b", "d")
    places = "[...document.querySelectorAll('.mp-place')].map(p => p.innerText.slice(0, 14))"
    first, second = browser.evaluate(places)
    assert first.startswith("step 0")
    assert second.startswith("step 1, event")
    assert browser.evaluate("heard") == 0
    ids = "[...document.querySelectorAll('[id]')].map(e => e.id)"
    names = browser.evaluate(ids)
    assert len(names) == len(set(names))
