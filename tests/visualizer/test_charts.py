"""Charts: the numbers of a run, and texts that plotly can't take for markup."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hostile import hostile_trace
from large_trace import Run
from minipaged_visualizer.spans import Span, request_spans
from minipaged_visualizer.usage import usage_over_time
from scenes import Script, everything

from minipaged.errors import MinipagedError
from minipaged.memory.events import Requested
from minipaged.memory.trace import Trace, TraceHeader, TraceStep

go = pytest.importorskip("plotly.graph_objects")

from minipaged_visualizer import charts  # noqa: E402


def phases(spans: list[Span], seq: int) -> list[tuple[str, int, int]]:
    return [(span.phase, span.start, span.stop) for span in spans if span.seq == seq]


def test_the_phases_of_every_sequence_of_a_scene() -> None:
    spans = request_spans(everything().steps)
    assert phases(spans, 0) == [("prefill", 0, 1), ("decode", 1, 12)]
    assert phases(spans, 1) == [("decode", 1, 10)]  # a fork: its parent read the prompt
    assert phases(spans, 3) == [
        ("prefill", 1, 2),
        ("decode", 2, 8),
        ("preempted", 8, 11),
        ("decode", 11, 15),
    ]
    assert phases(spans, 4) == [
        ("waiting", 4, 5),
        ("prefill", 5, 6),
        ("decode", 6, 7),
        ("preempted", 7, 12),
        ("prefill", 12, 13),
        ("decode", 13, 15),
    ]
    assert spans[0].name == spans[2].name == "moon"


def test_a_run_that_stops_midway_has_open_ends() -> None:
    steps = [TraceStep(0, 0, 0, "", (Requested(0, "a", 3),)), TraceStep(1, 0, 0, "", ())]
    assert request_spans(steps) == [Span(0, "a", "waiting", 0, 2)]
    assert request_spans([]) == []


def test_usage_equals_the_snapshots_after_each_step() -> None:
    trace = everything()
    script = usage_over_time(trace)
    assert [point.step for point in script] == [step.step for step in trace.steps]
    assert max(point.shared for point in script) == 4
    assert script[-1].used == script[-1].wasted == 0
    assert 0 < max(point.wasted for point in script) < 4
    assert max(point.saved for point in script) >= 4


def test_a_long_run_is_thinned_out_and_keeps_its_end() -> None:
    run = Run(num_blocks=256, num_running=4)
    trace = Trace(run.header)
    trace.steps.extend(run.steps(1234))
    points = usage_over_time(trace, max_points=100)
    assert 90 < len(points) <= 100
    assert points[-1].step == 1233


def test_memory_over_time_draws_four_lines() -> None:
    figure = charts.memory_over_time(everything())
    assert [line.name for line in figure.data] == ["used", "shared", "cached", "wasted"]
    assert len({line.line.dash for line in figure.data}) == 4  # colour is not all
    assert list(figure.data[0].y) == [point.used for point in usage_over_time(everything())]


def test_the_gantt_has_a_bar_for_each_span() -> None:
    figure = charts.requests_gantt(everything())
    bars = {bar.name: list(zip(bar.y, bar.base, bar.x, strict=True)) for bar in figure.data}
    assert bars["preempted"] == [(3, 8, 3), (4, 7, 5)]
    assert bars["waiting"] == [(4, 4, 1)]
    assert list(figure.layout.yaxis.ticktext) == [
        "A  moon",
        "B  moon",
        "C  moon",
        "D  sea",
        "E  stars",
    ]


def test_rows_of_the_gantt_are_close_whatever_their_numbers() -> None:
    trace = Trace(TraceHeader(4, 4))
    arrivals = tuple(Requested(seq, "", 1) for seq in (0, 50, 99))
    trace.steps.append(TraceStep(0, 0, 0, "", arrivals))
    figure = charts.requests_gantt(trace)
    waiting = next(bar for bar in figure.data if bar.name == "waiting")
    assert list(waiting.y) == list(figure.layout.yaxis.tickvals) == [0, 1, 2]
    assert list(figure.layout.yaxis.ticktext) == ["A", "AY", "CV"]


def test_the_gantt_of_many_sequences_says_how_many_it_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(charts, "MAX_SEQUENCES", 2)
    figure = charts.requests_gantt(everything())
    assert "the first 2 of 5 sequences" in figure.layout.title.text
    assert len(figure.layout.yaxis.ticktext) == 2


def test_sharing_and_plain_numbers() -> None:
    saved = charts.sharing_saved(everything())
    assert max(saved.data[1].y) >= 4
    waste = charts.waste_by_system(
        {"Max": {"tokens": 0.2, "reserved": 0.8}, "paged": {"tokens": 0.96, "empty slots": 0.04}}
    )
    assert [bar.name for bar in waste.data] == ["tokens", "reserved", "empty slots"]
    assert list(waste.data[1].y) == [80, 0]
    sweep = charts.block_size_sweep([1, 16, 256], {"waste": [0, 3, 40]}, "percent")
    assert list(sweep.data[0].x) == [1, 16, 256]
    with pytest.raises(MinipagedError, match="waste: 2 values for 1 block sizes"):
        charts.block_size_sweep([1], {"waste": [0, 3]}, "percent")


def texts(value: object) -> list[str]:
    """Every string of a figure."""
    if isinstance(value, dict):
        return [text for part in value.values() for text in texts(part)]
    if isinstance(value, list):
        return [text for part in value for text in texts(part)]
    return [value] if isinstance(value, str) else []


def test_hostile_names_are_no_tags_formulas_or_templates() -> None:
    trace = hostile_trace()
    nasty = "<a href='javascript:alert(1)'>$x$ %{y}\x1b\u202e</a>"
    figures = [
        charts.memory_over_time(trace),
        charts.requests_gantt(trace),
        charts.sharing_saved(trace),
        charts.waste_by_system({nasty: {nasty: 0.5}}, nasty),
        charts.block_size_sweep([1], {nasty: [2]}, nasty, nasty),
    ]
    for figure in figures:
        drawn = json.loads(figure.to_json())
        del drawn["layout"]["template"]
        found = texts(drawn)
        assert any("&lt;" in text for text in found)
        for text in found:
            assert not set(text) & set("<>$%\x1b\u202e"), text


def test_charts_load_without_plotly_and_say_what_they_need() -> None:
    code = (
        "import sys; sys.modules['plotly'] = sys.modules['torch'] = None\n"
        "from minipaged_visualizer import charts\n"
        "from minipaged.errors import MinipagedError\n"
        "try: charts.waste_by_system({})\n"
        "except MinipagedError as e: print(e)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "charts need plotly: pip install 'minipaged[notebook]'"


def test_a_chart_is_data_for_the_notebook_and_no_widget() -> None:
    assert type(charts.memory_over_time(Script(4).trace)) is go.Figure
