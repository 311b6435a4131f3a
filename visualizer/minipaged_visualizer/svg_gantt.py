"""When each sequence waited, was read, wrote or was preempted, as an SVG: a row a sequence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from minipaged.errors import TraceError
from minipaged.memory.trace import Trace
from minipaged_visualizer.captions import letters, telling_name
from minipaged_visualizer.spans import PHASES, Span, request_spans
from minipaged_visualizer.svg import CHARACTER, document, letter, owned, rect, text

MAX_SEQUENCES = 100
_WIDTH, _MARGIN, _ROW, _BAR = 1240, 24, 30, 22
_LEFT, _LEFT_OF_NAMES = 80, 210  # where the steps begin
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
    names = {span.seq: telling_name(span.name) for span in spans}
    axis = _Axis(_LEFT_OF_NAMES if any(names.values()) else _LEFT, len(steps))
    body = [text(_MARGIN, 34, title, "big"), *_legend()]
    for span in spans:
        if span.seq in shown:
            body += _bar(span, 84 + _ROW * shown[span.seq], axis)
    body += _names(names, shown)
    return document(_WIDTH, bottom + 40, [*body, *axis.draw(bottom)], title)


class _Axis(NamedTuple):
    """Where each step lies."""

    left: int
    num_steps: int

    def x(self, step: int) -> float:
        """Give the place of a step's begin."""
        return self.left + step * (_WIDTH - _MARGIN - self.left) / self.num_steps

    def draw(self, y: float) -> Iterator[str]:
        """Mark up to ten steps, whose numbers are round."""
        for step in range(0, self.num_steps, _round_distance(self.num_steps / 10)):
            yield f'<path d="M{self.x(step):g} {y:g}v6" class="line"/>'
            yield text(self.x(step), y + 22, str(step), "small quiet middle")
        yield text(_MARGIN, y + 22, "step", "small quiet")


def _legend() -> Iterator[str]:
    x = float(_MARGIN)
    for phase in PHASES:
        yield _box(x, 50, 34, phase, 0)
        yield text(x + 42, 66, f"{_SIGNS[phase]} {_ABOUT[phase]}", "quiet")
        x += 80 + CHARACTER * len(_ABOUT[phase])


def _names(names: Mapping[int, str], shown: Mapping[int, int]) -> Iterator[str]:
    for seq, row in shown.items():
        y = 84 + _ROW * row
        yield owned(_MARGIN, y, 40, _BAR, seq)
        yield letter(_MARGIN + 20, y + 16, letters(seq), seq)
        yield text(_MARGIN + 48, y + 16, names.get(seq, ""), "", _LEFT_OF_NAMES - _MARGIN - 56)


def _bar(span: Span, y: float, axis: _Axis) -> Iterator[str]:
    x = axis.x(span.start)
    width = axis.x(span.stop) - x
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


def _round_distance(least: float) -> int:
    """Give the next of 1, 2, 5, 10, 20, 50, ...

    >>> [_round_distance(least) for least in (0.1, 1, 1.5, 3, 87, 501)]
    [1, 1, 2, 5, 100, 1000]
    """
    power = 1
    while 5 * power < least:
        power *= 10
    return next(power * factor for factor in (1, 2, 5) if power * factor >= least)
