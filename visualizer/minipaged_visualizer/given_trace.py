"""The trace that a view was given: a file, a Trace, or what keeps one."""

from __future__ import annotations

from pathlib import Path

from minipaged.errors import TraceError
from minipaged.memory.trace import Trace


def trace_of(source: object) -> Trace:
    """Give a trace from a path, a Trace, or what has one in its attribute `trace`, as an LLM does.

    Raises:
        TraceError: There is none, or the file is no trace or is malformed.
    """
    if isinstance(source, str | Path):
        return Trace.load(source)
    trace = source if isinstance(source, Trace) else getattr(source, "trace", None)
    if not isinstance(trace, Trace):
        raise TraceError("nothing to show: give a trace, its file, or an LLM built with trace=True")
    return trace
