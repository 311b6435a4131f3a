"""The Chrome trace: JSON of the known shape, in step with the spans and the usage."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hostile import hostile_trace
from minipaged_visualizer.perfetto import to_perfetto
from minipaged_visualizer.usage import usage_over_time
from scenes import Script, everything

from minipaged.memory.trace import Trace


def rows(trace: Trace) -> list[dict[str, Any]]:
    document = json.loads(to_perfetto(trace))
    assert document["displayTimeUnit"] == "ms"
    return document["traceEvents"]


def test_every_row_has_what_its_kind_needs() -> None:
    for row in rows(everything()):
        assert row["pid"] == 1
        assert isinstance(row["name"], str)
        needed = {"X": {"ts", "dur", "tid"}, "i": {"ts", "s", "tid"}, "C": {"ts", "args"}}
        assert needed.get(row["ph"], set()) <= row.keys()
        assert row.get("ts", 0) >= 0
        assert row.get("dur", 1) > 0


def test_sequences_are_threads_with_their_phases() -> None:
    found = rows(everything())
    names = {r["tid"]: r["args"]["name"] for r in found if r["name"] == "thread_name"}
    assert names == {0: "steps of the engine", 1: "A moon", 2: "B moon", 3: "C moon"} | {
        4: "D sea",
        5: "E stars",
    }
    sea = [(r["name"], r["ts"], r["dur"]) for r in found if r["ph"] == "X" and r["tid"] == 4]
    assert sea == [
        ("prefill", 1000, 1000),
        ("decode", 2000, 6000),
        ("preempted", 8000, 3000),
        ("decode", 11000, 4000),
    ]


def test_steps_tell_what_happened_and_counters_how_memory_is_used() -> None:
    trace = everything()
    found = rows(trace)
    steps = [r for r in found if r["ph"] == "X" and r["tid"] == 0]
    assert len(steps) == len(trace.steps)
    assert any("copies block 3" in line for line in steps[1]["args"]["what happened"])
    used = [r["args"]["blocks"] for r in found if r["name"] == "blocks used"]
    assert used == [point.used for point in usage_over_time(trace)]
    copies = [r for r in found if r["ph"] == "i" and r["name"] == "copy"]
    assert {row["tid"] for row in copies} == {1, 2}
    assert all(1000 <= row["ts"] < 2000 for row in copies)


def test_durations_are_used_where_they_are_known() -> None:
    trace = everything()
    trace.steps[0] = replace(trace.steps[0], us=77)
    steps = [r for r in rows(trace) if r["ph"] == "X" and r["tid"] == 0]
    assert [(r["ts"], r["dur"]) for r in steps[:2]] == [(0, 77), (77, 1000)]


def test_hostile_texts_are_plain_ascii_json() -> None:
    text = to_perfetto(hostile_trace())
    assert text.isascii()
    assert "\\u001b" not in text
    assert "\\u202e" not in text
    json.loads(text)


def test_an_empty_trace_is_an_empty_timeline() -> None:
    assert [row["ph"] for row in rows(Script(4).trace)] == ["M", "M"]
