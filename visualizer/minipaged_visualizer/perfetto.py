"""A run as a Chrome trace, which ui.perfetto.dev and chrome://tracing open: JSON, no network.

Each sequence is a thread whose slices are its phases, with an instant for what happened to it; one
more thread has the engine's steps; counters tell how blocks are used. A trace has a clock only if
one was asked for: a step is drawn as long as it took where that is known, else as one millisecond.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from minipaged.memory import events as ev
from minipaged.memory.trace import Trace, TraceStep
from minipaged_visualizer.captions import caption, captions, letters, telling_name
from minipaged_visualizer.safe_text import safe
from minipaged_visualizer.spans import request_spans
from minipaged_visualizer.usage import usage_over_time

_STEP_MICROSECONDS = 1000
_PID, _STEPS_TID = 1, 0
_TOLD = (ev.BlockCopied, ev.PrefixHit, ev.Preempted, ev.SwappedIn, ev.Forked, ev.BlockEvicted)


def to_perfetto(trace: Trace) -> str:
    """Give the JSON of a Chrome trace.

    Raises:
        IntegrityError: The trace contradicts itself.
    """
    steps = trace.all_steps()
    starts = [0, *accumulate(step.us or _STEP_MICROSECONDS for step in steps)]
    rows = [
        *_names(trace),
        *_step_slices(steps, starts),
        *_phase_slices(steps, starts),
        *_instants(steps, starts),
        *_counters(trace, steps, starts),
    ]
    document = {"displayTimeUnit": "ms", "traceEvents": rows}
    return json.dumps(document, ensure_ascii=True, separators=(",", ":")) + "\n"


def _names(trace: Trace) -> Iterator[dict[str, Any]]:
    """Name the process, the steps' thread and the sequences', and put them in order."""
    model = str(trace.header.model.get("name", "")) or trace.header.title
    yield _meta("process_name", 0, name=safe(f"minipaged {model}"))
    yield _meta("thread_name", _STEPS_TID, name="steps of the engine")
    named: set[int] = set()
    for span in request_spans(trace.all_steps()):
        if span.seq not in named:
            named.add(span.seq)
            yield _meta("thread_name", _tid(span.seq), name=_thread_name(span.seq, span.name))
            yield _meta("thread_sort_index", _tid(span.seq), sort_index=_tid(span.seq))


def _thread_name(seq: int, name: str) -> str:
    return f"{letters(seq)} {safe(telling_name(name)):.40}".rstrip()


def _step_slices(steps: Sequence[TraceStep], starts: Sequence[int]) -> Iterator[dict[str, Any]]:
    for number, step in enumerate(steps):
        told = [safe(each.text) for each in captions(step.events) if not each.routine]
        arguments = {
            "prefill_tokens": step.prefill_tokens,
            "decode_tokens": step.decode_tokens,
            "note": safe(step.note),
            "what happened": told,
        }
        yield _slice(_STEPS_TID, f"step {step.step}", starts[number], starts[number + 1], arguments)


def _phase_slices(steps: Sequence[TraceStep], starts: Sequence[int]) -> Iterator[dict[str, Any]]:
    for span in request_spans(steps):
        arguments = {"steps": f"{span.start} to {span.stop - 1}"}
        yield _slice(_tid(span.seq), span.phase, starts[span.start], starts[span.stop], arguments)


def _instants(steps: Sequence[TraceStep], starts: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Give an instant for each telling event, spread over its step in their order."""
    for number, step in enumerate(steps):
        duration = starts[number + 1] - starts[number]
        for index, event in enumerate(step.events):
            if isinstance(event, _TOLD):
                yield {
                    "ph": "i",
                    "s": "t",
                    "pid": _PID,
                    "tid": _tid(_seq_of(event)),
                    "ts": starts[number] + duration * index // len(step.events),
                    "name": event.kind,
                    "args": {"caption": safe(caption(event).text)},
                }


def _seq_of(event: ev.Event) -> int:
    """Give the sequence that an event is about."""
    if isinstance(event, ev.BlockEvicted):
        return event.for_seq
    seq: int = event.child if isinstance(event, ev.Forked) else getattr(event, "seq", 0)
    return seq


def _counters(
    trace: Trace, steps: Sequence[TraceStep], starts: Sequence[int]
) -> Iterator[dict[str, Any]]:
    ends = {step.step: starts[number + 1] for number, step in enumerate(steps)}
    for point in usage_over_time(trace):
        for name in ("used", "shared", "cached", "wasted", "saved"):
            yield {
                "ph": "C",
                "pid": _PID,
                "ts": ends[point.step],
                "name": f"blocks {name}",
                "args": {"blocks": getattr(point, name)},
            }


def _tid(seq: int) -> int:
    return seq + 1


def _slice(tid: int, name: str, start: int, stop: int, arguments: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": _PID,
        "tid": tid,
        "name": name,
        "ts": start,
        "dur": stop - start,
        "args": arguments,
    }


def _meta(what: str, tid: int, **arguments: Any) -> dict[str, Any]:
    return {"ph": "M", "pid": _PID, "tid": tid, "name": what, "args": arguments}
