"""What happened, newest step first: the captions of this step, then those of the steps before."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from minipaged.memory.events import Event
from minipaged_visualizer import palette
from minipaged_visualizer.captions import Caption, captions
from minipaged_visualizer.safe_text import safe, wrap
from minipaged_visualizer.timeline import Timeline


def draw_events(timeline: Timeline, by_event: bool, width: int, rows: int) -> list[Text]:
    """Fill at most `rows` lines; what happens in every step gives way to what is rare."""
    lines: list[Text] = []
    for step, events in timeline.past():
        is_now = step is timeline.step
        told = _tell(events, step.note, is_now and by_event)
        lines.extend(_draw(step.step, told, is_now, width, rows - len(lines)))
        if len(lines) >= rows:
            break
    return lines[:rows] or [Text("nothing has happened yet", palette.DIM)]


def _tell(events: Sequence[Event], note: str, by_event: bool) -> list[Caption]:
    """Tell a step; event by event, the newest comes first and alone."""
    if by_event and events:
        return [*captions(events[-1:]), *reversed(captions(events[:-1]))]
    noted = [Caption(" ", note)] if note else []
    return [*noted, *captions(events)]


def _draw(step: int, told: list[Caption], is_now: bool, width: int, rows: int) -> list[Text]:
    """Draw a step's captions; routine ones only of this step, and only as far as there is room."""
    label = f"{step:>4} "
    blocks = [_wrapped(line, width - len(label), is_now) for line in told]
    kept = [
        block
        for line, block in zip(told, blocks, strict=True)
        if not line.routine or (is_now and sum(map(len, blocks)) <= rows)
    ]
    lines = [line for block in kept for line in block]
    return [
        Text(label if number == 0 else " " * len(label), palette.DIM).append_text(line)
        for number, line in enumerate(lines)
    ]


def _wrapped(line: Caption, width: int, is_now: bool) -> list[Text]:
    style = palette.DIM if line.routine or not is_now else palette.PLAIN
    parts = wrap(safe(line.text), max(width - 2, 8))
    return [
        Text(f"{line.sign if number == 0 else ' '} ", palette.BOLD).append(part, style)
        for number, part in enumerate(parts)
    ]
