"""Which sequence a picture of one moment is about, where nobody chose one."""

from __future__ import annotations

from minipaged.memory import events as ev
from minipaged_visualizer.captions import ROUTINE
from minipaged_visualizer.timeline import Timeline


def focused(timeline: Timeline) -> int | None:
    """Give the sequence that the newest telling event is about, else the first that has blocks."""
    state = timeline.state
    newest_first = timeline.events[::-1]
    for event in sorted(newest_first, key=lambda event: event.kind in ROUTINE):
        seq = event.for_seq if isinstance(event, ev.BlockEvicted) else getattr(event, "seq", None)
        if seq in state.tables:
            return int(seq)
    return min(state.tables or state.swap_tables or state.sequences, default=None)
