"""Stills and Gantt charts as SVG: what they show, that they stand alone, and hostile texts."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hostile import TOKENS, hostile_trace
from large_trace import Run
from minipaged_visualizer.palette import hue
from minipaged_visualizer.svg_gantt import gantt
from minipaged_visualizer.svg_still import still
from scenes import Script, everything

from minipaged.errors import TraceError
from minipaged.memory.events import Attended, BlockCopied
from minipaged.memory.trace import Trace, TraceHeader, TraceStep

SVG = "{http://www.w3.org/2000/svg}"
ALLOWED = {"svg", "title", "style", "defs", "pattern", "path", "rect", "text", "circle"}


def texts(svg: str) -> list[str]:
    """Every line of text, from a strict XML parser."""
    return ["".join(node.itertext()) for node in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def check_stands_alone(svg: str) -> None:
    for node in ElementTree.fromstring(svg).iter():
        assert node.tag.removeprefix(SVG) in ALLOWED
        for name, value in node.attrib.items():
            assert not name.startswith("on")
            assert "href" not in name
            assert "url(" not in value or re.fullmatch(r"url\(#h[123]\)", value)
    rest = svg.replace('xmlns="http://www.w3.org/2000/svg"', "", 1)
    assert not re.search(r"https?:|@import|@font-face|<script|javascript:", rest)


def copy_at(trace: Trace) -> tuple[int, int]:
    """The step and the event of the first copy-on-write."""
    return next(
        (step.step, index + 1)
        for step in trace.steps
        for index, event in enumerate(step.events)
        if isinstance(event, BlockCopied)
    )


def test_a_still_tells_shows_and_counts() -> None:
    trace = everything()
    step, event = copy_at(trace)
    svg = still(trace, step, event)
    check_stands_alone(svg)
    shown = texts(svg)
    assert "A copies block 3 to block 5: block 3 is shared by 3 and A wants to write" in shown
    assert f"step {step}, event {event} of {len(trace.steps[step].events)}" in shown
    assert {"»", "«", "×2", "running", "Pool: 16 blocks of 4 tokens"} <= set(shown)
    assert any("used 6" in line for line in shown)
    assert hue(0)[0] in svg


def test_every_moment_of_a_run_can_be_drawn() -> None:
    trace = everything()
    for step in trace.steps:
        for event in [None, *range(0, len(step.events) + 1, 3)]:
            check_stands_alone(still(trace, step.step, event))
    assert still(trace) == still(trace, trace.steps[-1].step)


def test_a_focus_can_be_chosen() -> None:
    shown = texts(still(everything(), 9, focus=1))
    assert any(line.startswith("“A white boat") for line in shown)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"step": 99}, "there is no step 99: the trace has steps 0 to 15"),
        ({"step": -1}, "there is no step -1: the trace has steps 0 to 15"),
        ({"step": 0, "event": 77}, r"there is no event 77: step 0 has \d+"),
        ({"step": 0, "focus": 4}, "there is no sequence 4 at that moment"),
    ],
)
def test_a_moment_that_is_not_there(where: dict[str, int], message: str) -> None:
    with pytest.raises(TraceError, match=f"^{message}$"):
        still(everything(), **where)


def test_an_empty_trace_can_not_be_drawn() -> None:
    for draw in (still, gantt):
        with pytest.raises(TraceError, match="no steps"):
            draw(Script(4).trace)


@pytest.mark.parametrize("num_blocks", [1, 64, 1024, 16_384, 2**20])
def test_pools_of_every_size_fit(num_blocks: int) -> None:
    run = Run(num_blocks, num_running=1 if num_blocks < 1024 else 20)
    trace = Trace(run.header)
    if num_blocks > 60:
        trace.steps.extend(run.steps(200))
    else:
        trace.steps.append(TraceStep(0, 0, 0, "", ()))
    svg = still(trace)
    check_stands_alone(svg)
    height = float(svg.split('viewBox="0 0 1240 ')[1].split('"')[0])
    assert height < 700
    assert len(svg) < 150_000
    assert ("a cell stands for" in svg) == (num_blocks > 16_384)


def test_attention_is_drawn_on_the_blocks_of_the_focused_sequence() -> None:
    script = Script(num_blocks=8)
    script.request(0, ["a"] * 10)
    script.admit(0)
    script.step()
    plain = still(script.trace)
    script.trace.observe(Attended(0, 1, -1, (700, 0, 300)))
    script.trace.end_step(0, 0)
    svg = still(script.trace)
    assert {"70 %", "0 %", "30 %"} <= set(texts(svg))
    assert svg.count("<circle") == 2
    assert "<circle" not in plain


def test_hostile_texts_are_texts() -> None:
    trace = hostile_trace()
    for svg in (*(still(trace, step.step) for step in trace.steps), gantt(trace)):
        check_stands_alone(svg)
        assert not set(svg) & set("\x00\x07\x1b\u202e")
    assert "</script><…" in texts(still(trace, 2, focus=0))
    assert TOKENS[10] in "".join(texts(still(trace)))


def test_the_gantt_names_sequences_and_marks_phases() -> None:
    svg = gantt(everything())
    check_stands_alone(svg)
    shown = texts(svg)
    assert shown[0] == "Requests over 16 steps"
    assert {"A", "B", "C", "D", "E", "moon", "sea", "stars", "~", "›", "‖", "○"} <= set(shown)
    assert shown.count("‖") == 2


def test_a_gantt_of_many_is_cut_and_says_so() -> None:
    run = Run(4096, num_running=150)
    trace = Trace(TraceHeader(16, 4096))
    trace.steps.extend(run.steps(150))
    assert texts(gantt(trace))[0] == "Requests over 150 steps; the first 100 of 150 sequences"
