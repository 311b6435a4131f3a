"""Which sequence a picture of one moment is about, where nobody chose one."""

from __future__ import annotations

from collections.abc import Iterator

from minipaged.memory import events as ev
from minipaged_visualizer.captions import ROUTINE
from minipaged_visualizer.timeline import Timeline


def focused(timeline: Timeline) -> int | None:
    """Give the sequence of the newest telling event; one that has blocks, if there is any."""
    state = timeline.state
    told = list(_told(timeline))
    for choices in (state.tables, state.swap_tables, state.sequences):
        if choices:
            return next((seq for seq in told if seq in choices), min(choices))
    return None


def _told(timeline: Timeline) -> Iterator[int]:
    """Give the sequences that the step's events are about: telling ones first, the newest first."""
    newest_first = timeline.events[::-1]
    for event in sorted(newest_first, key=lambda event: event.kind in ROUTINE):
        seq = event.for_seq if isinstance(event, ev.BlockEvicted) else getattr(event, "seq", None)
        if seq is not None:
            yield seq
