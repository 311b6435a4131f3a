"""What happened, newest step first: the captions of this step, then those of the steps before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text

from minipaged.memory.events import Event
from minipaged_visualizer import palette
from minipaged_visualizer.captions import Caption, captions
from minipaged_visualizer.lines import line
from minipaged_visualizer.safe_text import safe, wrap
from minipaged_visualizer.timeline import Timeline


class _Told(NamedTuple):
    """A caption, and whether it belongs to what is marked in the other parts of the picture."""

    caption: Caption
    is_now: bool


def draw_events(timeline: Timeline, by_event: bool, width: int, rows: int) -> list[Text]:
    """Fill at most `rows` lines; what happens in every step gives way to what is rare."""
    lines: list[Text] = []
    for step, events in timeline.past():
        if len(lines) >= rows:
            break
        if step is timeline.step:
            told = _tell_now(events, step.note, by_event)
        else:
            told = [_Told(each, False) for each in _tell(events, step.note) if not each.routine]
        lines += _draw(step.step, told, width, rows - len(lines))
    return lines[:rows] or [line(("nothing has happened yet", palette.DIM))]


def _tell(events: Sequence[Event], note: str) -> list[Caption]:
    return [*([Caption(" ", note)] if note else []), *captions(events)]


def _tell_now(events: Sequence[Event], note: str, by_event: bool) -> list[_Told]:
    """Tell this step; event by event, the newest comes first and alone stands out."""
    if not by_event:
        return [_Told(each, True) for each in _tell(events, note)]
    newest = [_Told(each, True) for each in captions(events[-1:])]
    return newest + [_Told(each, False) for each in reversed(captions(events[:-1]))]


def _draw(step: int, told: list[_Told], width: int, rows: int) -> list[Text]:
    """Draw a step's captions; if they don't fit, the routine ones are left out."""
    label = f"{step:>4} "
    drawn = [_wrapped(each, width - len(label)) for each in told]
    if sum(map(len, drawn)) > rows:
        pairs = zip(told, drawn, strict=True)
        drawn = [rows for each, rows in pairs if not each.caption.routine or each is told[0]]
    shown = [row for rows in drawn for row in rows]
    return [
        line((" " * len(label) if number else label, palette.DIM), row)
        for number, row in enumerate(shown)
    ]


def _wrapped(told: _Told, width: int) -> list[Text]:
    caption = told.caption
    style = palette.PLAIN if told.is_now and not caption.routine else palette.DIM
    parts = wrap(safe(caption.text), max(width - 2, 8))
    return [
        line((" " if number else caption.sign, palette.BOLD), " ", (part, style))
        for number, part in enumerate(parts)
    ]
