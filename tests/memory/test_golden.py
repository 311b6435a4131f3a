"""Field order is the format: this trace changes only on purpose (`UPDATE_GOLDEN=1` rewrites it)."""

from __future__ import annotations

import os
from pathlib import Path

from scripted_run import scripted_trace

from minipaged.memory.events import EVENT_TYPES
from minipaged.memory.integrity import check_trace
from minipaged.memory.trace import Trace

GOLDEN = Path(__file__).parents[1] / "golden" / "memory.jsonl"


def test_the_golden_trace_is_the_same_byte_for_byte(tmp_path):
    path = tmp_path / "memory.jsonl"
    scripted_trace().save(path)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_bytes(path.read_bytes())
    assert path.read_bytes() == GOLDEN.read_bytes()


def test_a_trace_written_as_it_grows_has_the_same_bytes(tmp_path):
    scripted_trace(str(tmp_path / "grown.jsonl"))
    assert (tmp_path / "grown.jsonl").read_bytes() == GOLDEN.read_bytes()


def test_the_golden_trace_shows_every_kind_of_event_and_holds_every_rule():
    trace = Trace.load(GOLDEN)
    assert trace == scripted_trace()
    events = [event for step in trace.steps for event in step.events]
    elsewhere = {"attend", "kernel", "reserve"}  # no model ran, and this memory is paged
    assert {event.kind for event in events} == set(EVENT_TYPES) - elsewhere
    assert check_trace(GOLDEN) == (len(trace.steps), len(events))
    prefilled = sum(len(e.tokens) for e in events if e.kind == "prefill")
    assert prefilled == sum(step.prefill_tokens for step in trace.steps)
