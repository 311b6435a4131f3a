"""Two traces with one scrubber: the page and the widget, and their numbers against Python's."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chromium import CHROMIUM, Chromium
from hostile import TOKENS, hostile_trace
from minipaged_visualizer.browser_module import joined
from minipaged_visualizer.side_by_side_page import side_by_side_html
from pages import assert_quiet, open_html, text_of
from scenes import everything

from minipaged.commands.export import export
from minipaged.commands.slabs import show_slabs
from minipaged.engine.config import EngineConfig
from minipaged.errors import ConfigError, TraceError
from minipaged.lab.side_by_side import Scene, run_side_by_side
from minipaged.lab.simulator import simulate
from minipaged.lab.waste import measure
from minipaged.lab.workloads import requests
from minipaged.memory.contiguous import ContiguousManager
from minipaged.memory.events import BlockAllocated, Requested
from minipaged.memory.replay import Replay
from minipaged.memory.reservation import ReservePow2
from minipaged.memory.trace import Trace, TraceHeader, TraceStep

GOLDEN = Path(__file__).parents[1] / "golden"
ENGINE_RUNS = sorted(GOLDEN.glob("engine_*.jsonl"))
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
KINDS = ("tokens", "reserved", "internal", "external", "free")

# Everything that a panel says, at every tick, by moving the scrubber.
READ_ALL = """(async () => {
  const range = document.querySelector('.mp-range'), rows = [];
  const all = (panel, where) => [...panel.querySelectorAll(where)];
  const numbers = (panel, where) => all(panel, where).map((b) => Number(b.textContent));
  const count = (panel, kind) => all(panel, `.sb-slots .sb-${kind}`).length;
  for (let tick = 0; tick <= Number(range.max); tick += 1) {
    range.value = tick;
    range.dispatchEvent(new Event('input'));
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    rows.push([...document.querySelectorAll('.sb-panel')].map((panel) => ({
      who: numbers(panel, '.sb-count b'), slots: numbers(panel, '.sb-counts b'),
      drawn: ['token', 'reserved', 'internal', 'rounding'].map((kind) => count(panel, kind)),
    })));
  }
  return rows;
})()"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as chromium:
        yield chromium


def open_page(browser: Chromium, folder: Path, left: Trace, right: Trace, place: str = "") -> None:
    open_html(browser, folder, side_by_side_html(left, right), place)


def said(browser: Chromium) -> list[str]:
    return [text_of(browser, f".sb-say{side}") for side in (0, 1)]


def who_is_there(trace: Trace) -> list[list[int]]:
    """[running, waiting, done] of each step behind its last write, from Python's replay."""
    header, rows = trace.header, []
    state = Replay(header.num_blocks, header.block_size, header.num_swap_blocks)
    for step in trace.steps:
        writes = [n for n, e in enumerate(step.events, 1) if e.kind in ("prefill", "write")]
        stop = max(writes, default=len(step.events))
        for event in step.events[:stop]:
            state.apply(event)
        count = Counter(sequence.status for sequence in state.sequences.values())
        waiting = count["waiting"] + count["preempted"] + count["swapped"]
        rows.append([count["running"], waiting, count["finished"]])
        for event in step.events[stop:]:
            state.apply(event)
    return rows


def assert_equals_python(rows: list[dict[str, Any]], trace: Trace) -> None:
    """Compare a panel at every tick with the lab's measure of waste and with the replay."""
    waste, who = measure(trace.header, trace.steps), who_is_there(trace)
    for number in range(len(trace.steps)):
        row, now = rows[number + 1], waste.at(number)
        assert row["who"] == who[number]
        shown = dict(zip(KINDS, row["slots"], strict=True))
        lost = now.free if who[number][1] else 0
        assert shown == {
            "tokens": now.tokens,
            "reserved": now.reserved,
            "internal": now.internal,
            "external": now.rounding + lost,
            "free": now.free - lost,
        }
        assert sum(row["slots"]) == now.pool
        assert row["drawn"] == [now.tokens, now.reserved, now.internal, now.rounding]


# --- the same numbers as Python's -----------------------------------------------------------------


@needs_chromium
@pytest.mark.parametrize("policy", ["max", "pow2", "oracle"])
def test_what_is_drawn_of_slabs_and_pages_equals_python(
    browser: Chromium, tmp_path: Path, policy: str
) -> None:
    runs = run_side_by_side(Scene(policy=policy))
    open_page(browser, tmp_path, *runs)
    rows = browser.evaluate(READ_ALL)
    for side, trace in enumerate(runs):
        assert_equals_python([row[side] for row in rows], trace)
    assert_quiet(browser)


@needs_chromium
@pytest.mark.parametrize("run", ENGINE_RUNS, ids=lambda path: path.stem)
def test_sharing_copies_eviction_and_swapping_are_counted_as_python_does(
    browser: Chromium, tmp_path: Path, run: Path
) -> None:
    trace = Trace.load(run)
    open_page(browser, tmp_path, trace, everything())  # other lengths, another pool
    rows = browser.evaluate(READ_ALL)
    assert_equals_python([row[0] for row in rows], trace)
    assert_quiet(browser)


@needs_chromium
def test_samples_in_slabs_of_one_slot_are_counted_as_python_does(
    browser: Chromium, tmp_path: Path
) -> None:
    config = EngineConfig(block_size=1, num_blocks=100, max_num_seqs=8, max_num_batched_tokens=64)
    trace = Trace(TraceHeader(1, 100, allocator="orca-pow2"))
    manager = ContiguousManager(100, 1, ReservePow2(32), notify=trace.observe)
    simulate(
        requests([(5, 9), (3, 6), (7, 2), (4, 11)], width=2),
        config,
        manager,
        observe=trace.observe,
        after_step=lambda moment: trace.end_step(moment.num_prefill_tokens, 0),
    )
    open_page(browser, tmp_path, trace, trace)
    rows = browser.evaluate(READ_ALL)
    for side in (0, 1):
        assert_equals_python([row[side] for row in rows], trace)
    assert_quiet(browser)


# --- what a learner sees and does -----------------------------------------------------------------


@needs_chromium
def test_slabs_run_out_while_pages_go_on(browser: Chromium, tmp_path: Path) -> None:
    open_page(browser, tmp_path, *run_side_by_side(Scene()), "#1")
    assert "Slabs (Max): for the first time somebody must wait" in text_of(browser, ".mp-place")
    browser.press("ArrowRight", "ArrowRight", "ArrowRight")
    assert text_of(browser, ".mp-place") == "step 4 of 31"
    assert said(browser) == [
        "Slabs (Max): 3 run, 7 wait: no hole of 32 slots, though 16 are free.",
        "Paged: 10 run, nobody waits.",
    ]
    assert text_of(browser, ".sb-panel0 .sb-queue").split() == [
        *("waiting", "outside:"),
        *"DEFGHIJ",
    ]
    assert text_of(browser, ".sb-small .sb-hole") == "16 free: too small"
    assert browser.evaluate("document.querySelectorAll('.sb-panel1 .sb-small').length") == 0
    label = browser.evaluate(
        "document.querySelector('.sb-panel0 .sb-pool').getAttribute('aria-label')"
    )
    assert label.startswith(
        "Slabs (Max): pool of 28 blocks of 4: 24 of 112 slots hold tokens, 8 reserved"
    )
    assert_quiet(browser)


@needs_chromium
def test_slabs_may_take_every_slot_and_leave_most_of_them_empty(
    browser: Chromium, tmp_path: Path
) -> None:
    runs = run_side_by_side(Scene(policy="oracle", seed=2))
    waste = measure(runs.slabs.header, runs.slabs.steps).at(6)
    open_page(browser, tmp_path, *runs, "#6")
    assert (waste.free, waste.pool - waste.tokens) == (0, 68)
    assert said(browser)[0] == (
        "Slabs (Oracle): 4 run, 5 wait: every slot is taken, though 68 hold no token."
    )
    assert_quiet(browser)


@needs_chromium
def test_one_ends_and_the_other_goes_on_and_all_are_done(browser: Chromium, tmp_path: Path) -> None:
    runs = run_side_by_side(Scene())
    open_page(browser, tmp_path, *runs, f"#{len(runs.paged.steps)}")
    left, right = said(browser)
    assert "run" in left
    assert right == "Paged: all 10 done since step 15."
    browser.press("End")
    assert said(browser) == [
        "Slabs (Max): all 10 done since step 31.",
        "Paged: all 10 done since step 15.",
    ]
    assert text_of(browser, ".mp-place") == "behind step 31, the last"
    browser.press("Home")
    assert said(browser)[0] == "Slabs (Max): nobody has come yet."
    assert_quiet(browser)


@needs_chromium
def test_keyboard_alone_reaches_everything(browser: Chromium, tmp_path: Path) -> None:
    open_page(browser, tmp_path, *run_side_by_side(Scene()), "#2")
    browser.press("?")
    assert "block 7 of the pool" in text_of(browser, "dialog[open]")
    browser.press("Escape", "t")
    table = text_of(browser, ".mp-text")
    assert re.search(r"running\s+3\s+6", table)
    assert "A: 6 tokens in blocks 16 to 23: one old frog lost her cake" in table
    browser.press("t", "b")
    assert browser.evaluate("document.querySelector('.sb').classList.contains('mp-back-row')")
    browser.press("b", "n")
    assert text_of(browser, ".mp-place") == "step 3 of 31"
    browser.press("p", "ArrowLeft", "ArrowLeft")
    assert text_of(browser, ".mp-place").startswith("step 0")
    reached = set()
    for _ in range(25):
        browser.press("Tab")
        reached.add(browser.evaluate("document.activeElement.getAttribute('aria-label') ?? ''"))
    assert {"Step", "Speed", "Play or pause (Space)"} <= reached
    assert "Go to step 1: Slabs (Max): somebody must wait" in reached
    assert_quiet(browser)


@needs_chromium
def test_a_mark_leads_to_its_step(browser: Chromium, tmp_path: Path) -> None:
    open_page(browser, tmp_path, *run_side_by_side(Scene()))
    browser.evaluate("document.querySelector('.sb-mark1').click()")
    browser.settle()
    assert text_of(browser, ".mp-place") == "step 15 of 31"
    assert_quiet(browser)


@needs_chromium
def test_it_plays_to_the_end(browser: Chromium, tmp_path: Path) -> None:
    open_page(browser, tmp_path, *run_side_by_side(Scene()), "#20")
    browser.press("+", "+", "+", "+", " ")
    browser.wait_until("document.querySelector('.mp-place').innerText.startsWith('behind')")
    assert_quiet(browser)


@needs_chromium
def test_traces_of_different_lengths_steps_and_pools_share_a_clock(
    browser: Chromium, tmp_path: Path
) -> None:
    long, short = everything(), everything()
    short.steps = [replace(step, step=3 * step.step + 5) for step in short.steps[:2]]
    open_page(browser, tmp_path, long, short, "#4")
    left, right = said(browser)
    assert left.startswith("Left (Paged): ")
    assert right == "Right (Paged): nobody has come yet."
    browser.press("ArrowRight")
    assert "nobody has come yet" not in said(browser)[1]
    browser.press("End")
    assert "when the trace ends" in said(browser)[1]
    assert_quiet(browser)


@needs_chromium
def test_empty_traces_are_shown_as_nothing(browser: Chromium, tmp_path: Path) -> None:
    empty = Trace(TraceHeader(4, 16))
    open_page(browser, tmp_path, empty, empty)
    browser.press("ArrowRight", "End", " ", "t")
    assert said(browser)[0] == "Left (Paged): nobody has come yet."
    assert (
        browser.evaluate("document.querySelector('.mp-place').textContent") == "there are no steps"
    )
    assert "undefined" not in browser.evaluate("document.body.innerText")
    assert_quiet(browser)


@needs_chromium
@pytest.mark.parametrize("num_blocks", [200, 600, 2000])
def test_larger_pools_are_drawn(browser: Chromium, tmp_path: Path, num_blocks: int) -> None:
    runs = run_side_by_side(Scene(num_blocks=num_blocks, num_requests=6))
    open_page(browser, tmp_path, *runs, "#3")
    assert said(browser)[1] == "Paged: 6 run, nobody waits."
    blocks = browser.evaluate("document.querySelectorAll('.sb-panel0 .sb-block').length")
    assert blocks == (num_blocks if num_blocks <= 1024 else 0)
    assert_quiet(browser)


@needs_chromium
@pytest.mark.parametrize("width", [420, 1280])
@pytest.mark.parametrize("looks", [{"prefers_color_scheme": "dark"}, {"forced_colors": "active"}])
def test_nothing_is_wider_than_the_window(
    browser: Chromium, tmp_path: Path, width: int, looks: dict[str, str]
) -> None:
    browser.resize(width, 800)
    browser.emulate(**looks)
    open_page(browser, tmp_path, *run_side_by_side(Scene()), "#4")
    for key in ("b", "b", "t"):
        browser.press(key)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
    browser.emulate(prefers_color_scheme="light", forced_colors="none")
    browser.resize(1280, 800)
    assert_quiet(browser)


# --- strangers' traces ----------------------------------------------------------------------------


@needs_chromium
def test_a_hostile_trace_is_shown_as_text(browser: Chromium, tmp_path: Path) -> None:
    hostile = hostile_trace()
    hostile.header = replace(hostile.header, allocator=TOKENS[1])
    open_page(browser, tmp_path, hostile, hostile, "#1")
    browser.press("ArrowRight", "t", "?", "Escape", "b", "End")
    assert text_of(browser, "h2") == TOKENS[0]
    assert f"Left ({TOKENS[1]})" in text_of(browser, ".sb-headline")
    browser.press("t", "Home", "ArrowRight")
    assert "<b>bold</b>" in browser.evaluate("document.querySelector('.sb-pool').textContent")
    assert browser.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert_quiet(browser)


@needs_chromium
def test_an_allocator_of_any_name_is_called_by_it(browser: Chromium, tmp_path: Path) -> None:
    left, right = everything(), everything()
    for trace in (left, right):
        trace.header = replace(trace.header, allocator="constructor")
    open_page(browser, tmp_path, left, right)
    assert said(browser)[0].startswith("Left (constructor): ")
    chart = browser.evaluate("document.querySelector('.sb-chart').getAttribute('aria-label')")
    assert "Left (constructor): " in chart
    assert "Right (constructor): " in chart
    assert_quiet(browser)


@needs_chromium
def test_a_damaged_page_says_so_in_one_line(browser: Chromium, tmp_path: Path) -> None:
    page = side_by_side_html(everything(), everything())
    damaged = '["unheard-of",0,0,'.join(page.rsplit('["alloc",0,0,', 1))
    (tmp_path / "page.html").write_text(damaged, "utf-8")
    browser.open((tmp_path / "page.html").as_uri())
    message = text_of(browser, "[role=alert]")
    assert message.startswith("These traces can't be shown: the right one: event ")
    assert 'unknown event "unheard-of"' in message


def test_a_trace_that_contradicts_itself_is_one_clear_error() -> None:
    wrong = everything()
    wrong.steps.append(TraceStep(99, 0, 0, "", (BlockAllocated(77, 5, 0, "append"),)))
    with pytest.raises(TraceError, match=r"the right one: step 99, event 0 \(alloc\): seq 77"):
        side_by_side_html(everything(), wrong)


def test_numbers_that_a_browser_would_round_are_one_clear_error() -> None:
    large = everything()
    large.steps.append(
        TraceStep(99, 0, 0, "", (Requested(2**53, "", 1), Requested(2**53 + 1, "", 1)))
    )
    with pytest.raises(TraceError, match=r"the left one: step 99, event 0 .* is too large"):
        side_by_side_html(large, everything())


def test_the_page_asks_for_nothing_and_ends_no_script() -> None:
    page = side_by_side_html(hostile_trace(), everything())
    assert not re.search(r"\b(src|href)=(?!\"data:,\")", page.split("<script")[0])
    assert page.count("</script") == 2
    assert "</script" not in joined("side_by_side")


# --- the widget and the commands ------------------------------------------------------------------


def test_the_widget_takes_what_a_player_takes(tmp_path: Path) -> None:
    pytest.importorskip("anywidget")
    from minipaged_visualizer import SideBySide

    runs = run_side_by_side(Scene())
    runs.slabs.save(tmp_path / "slabs.jsonl")

    class Engine:
        trace = runs.paged

    with_file = SideBySide(tmp_path / "slabs.jsonl", Engine())
    page = with_file.to_html(tmp_path / "page.html")
    assert page == side_by_side_html(*runs) == (tmp_path / "page.html").read_text("utf-8")
    assert json.loads(json.dumps(with_file._payload))["left"]["header"]["allocator"] == "orca-max"
    with pytest.raises(TraceError, match="nothing to show"):
        SideBySide(runs.slabs, object())
    with pytest.raises(TraceError, match="can't be written: No such file"):
        with_file.to_html(tmp_path / "no" / "page.html")


@needs_chromium
def test_the_widget_draws_in_a_notebook_cell(browser: Chromium, tmp_path: Path) -> None:
    pytest.importorskip("anywidget")
    from minipaged_visualizer import SideBySide

    widget = SideBySide(*run_side_by_side(Scene()))
    module = str(widget._esm).replace("export default", "globalThis.made =")
    payload = json.dumps(widget._payload)
    page = f"""<!DOCTYPE html><div id="cell"></div><script>{module}
      const values = {{_payload: {payload}}};
      const model = {{get: (name) => values[name]}}, el = document.getElementById("cell");
      globalThis.close = made().render({{model, el}});
    </script>"""
    (tmp_path / "cell.html").write_text(page, "utf-8")
    browser.complaints.clear()
    browser.open((tmp_path / "cell.html").as_uri())
    assert "Paged: 2 run, nobody waits." in said(browser)
    browser.evaluate("globalThis.close()")
    assert browser.evaluate("document.querySelectorAll('.minipaged').length") == 0
    assert browser.complaints == []


def test_the_command_prints_both_runs_or_writes_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show_slabs(Scene(), None)
    printed = " ".join(capsys.readouterr().out.split())
    assert "steps to finish 32 16" in printed
    assert "most requests at once 3 10" in printed
    assert "step 1: request 3 waits: no 32 slots" in printed
    show_slabs(Scene(), tmp_path / "page.html")
    assert capsys.readouterr().out.endswith("KiB\n")
    assert (tmp_path / "page.html").read_text("utf-8") == side_by_side_html(
        *run_side_by_side(Scene())
    )


def test_the_words_of_the_command_line(tmp_path: Path) -> None:
    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "minipaged", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True)

    page = tmp_path / "page.html"
    options = ("--num-blocks", "32", "--block-size", "4", "--requests", "8", "--seed", "3")
    done = run("slabs", "--policy", "oracle", *options, "-o", page)
    assert (done.returncode, done.stderr) == (0, "")
    scene = Scene("oracle", 32, 4, 8, 3)
    assert page.read_text("utf-8") == side_by_side_html(*run_side_by_side(scene))
    wrong = run("slabs", "--policy", "best")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr == "minipaged: a policy is max, pow2 or oracle, not 'best'\n"
    done = run("export", ENGINE_RUNS[0], "--beside", ENGINE_RUNS[1], "-o", page)
    assert done.returncode == 0, done.stderr


def test_export_puts_two_traces_on_one_page(tmp_path: Path) -> None:
    left, right = run_side_by_side(Scene())
    left.save(tmp_path / "left.jsonl")
    right.save(tmp_path / "right.jsonl")
    files = tmp_path / "left.jsonl", tmp_path / "page.html"
    export(*files, beside=tmp_path / "right.jsonl")
    assert files[1].read_text("utf-8") == side_by_side_html(left, right)
    with pytest.raises(ConfigError, match="--beside is for --format html: svg shows one trace"):
        export(files[0], tmp_path / "page.svg", beside=tmp_path / "right.jsonl")
    with pytest.raises(TraceError, match="this is the trace itself"):
        export(files[0], tmp_path / "right.jsonl", "html", beside=tmp_path / "right.jsonl")
    with pytest.raises(TraceError, match=r"none\.jsonl"):
        export(*files, beside=tmp_path / "none.jsonl")
