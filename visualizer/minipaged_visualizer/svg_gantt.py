"""When each sequence waited, was read, wrote or was preempted, as an SVG: a row a sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from minipaged.errors import TraceError
from minipaged.memory.trace import Trace
from minipaged_visualizer.captions import letters
from minipaged_visualizer.spans import PHASES, Span, request_spans
from minipaged_visualizer.svg import document, letter, owned, rect, text

MAX_SEQUENCES = 100
_WIDTH, _MARGIN, _LEFT, _ROW, _BAR = 1240, 24, 210, 30, 22
_PLOT = _WIDTH - _LEFT - _MARGIN
_SIGNS = {"waiting": "○", "prefill": "~", "decode": "›", "preempted": "‖"}
_ABOUT = {
    "waiting": "waits",
    "prefill": "its prompt is read (prefill)",
    "decode": "writes (decode)",
    "preempted": "preempted: its blocks are given up",
}


def gantt(trace: Trace) -> str:
    """Draw a run's sequences over its steps; of many the first `MAX_SEQUENCES`.

    Raises:
        TraceError: The trace has no steps.
    """
    steps = trace.all_steps()
    if not steps:
        raise TraceError("the trace has no steps: there is nothing to draw")
    spans = request_spans(steps)
    seqs = sorted({span.seq for span in spans})
    shown = {seq: row for row, seq in enumerate(seqs[:MAX_SEQUENCES])}
    bottom = 84 + _ROW * len(shown)
    note = f"; the first {len(shown)} of {len(seqs)} sequences" if len(seqs) > len(shown) else ""
    title = f"Requests over {len(steps)} steps{note}"
    body = [text(_MARGIN, 34, title, "big"), *_legend()]
    for span in spans:
        if span.seq in shown:
            body += _bar(span, 84 + _ROW * shown[span.seq], _PLOT / len(steps))
    body += _names(spans, shown)
    return document(_WIDTH, bottom + 40, [*body, *_axis(len(steps), bottom)], title)


def _legend() -> Iterator[str]:
    x = float(_MARGIN)
    for phase in PHASES:
        yield _box(x, 50, 34, phase, 0)
        yield text(x + 42, 66, f"{_SIGNS[phase]} {_ABOUT[phase]}", "quiet")
        x += 80 + 8.43 * len(_ABOUT[phase])


def _names(spans: Sequence[Span], shown: dict[int, int]) -> Iterator[str]:
    names = {span.seq: span.name for span in spans}
    for seq, row in shown.items():
        y = 84 + _ROW * row
        yield owned(_MARGIN, y, 40, _BAR, seq)
        yield letter(_MARGIN + 20, y + 16, letters(seq), seq)
        name = "" if names[seq].isdigit() else names[seq]
        yield text(_MARGIN + 48, y + 16, name, "", _LEFT - _MARGIN - 56)


def _bar(span: Span, y: float, scale: float) -> Iterator[str]:
    x, width = _LEFT + span.start * scale, (span.stop - span.start) * scale
    yield _box(x, y, max(width, 1), span.phase, span.seq)
    if width > 16:
        sign = _SIGNS[span.phase]
        if span.phase == "decode":
            yield letter(x + 10, y + 16, sign, span.seq)
        else:
            yield text(x + 10, y + 16, sign, "middle bold")


def _box(x: float, y: float, width: float, phase: str, seq: int) -> str:
    """Draw a phase: decode in the sequence's colour, the others by lightness and outline."""
    if phase == "decode":
        return owned(x, y, width, _BAR, seq)
    if phase == "waiting":
        return rect(x, y + _BAR / 2 - 1, width, 3, "cached")
    look = "cached" if phase == "prefill" else "free"
    return rect(x, y, width, _BAR, look)


def _axis(num_steps: int, y: float) -> Iterator[str]:
    """Mark about eight steps."""
    distance = max(num_steps // 8, 1)
    for step in range(0, num_steps, distance):
        x = _LEFT + step * _PLOT / num_steps
        yield f'<path d="M{x:g} {y:g}v6" class="line"/>'
        yield text(x, y + 22, str(step), "small quiet middle")
    yield text(_MARGIN, y + 22, "step", "small quiet")
