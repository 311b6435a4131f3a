"""A trace of contiguous memory in the ordinary views."""

from __future__ import annotations

import io

from minipaged_visualizer.changes import changes_of
from minipaged_visualizer.options import Options
from minipaged_visualizer.sequence_state import view_sequence
from minipaged_visualizer.sequence_view import draw_heading, draw_strip, draw_table
from minipaged_visualizer.terminal import Screen
from minipaged_visualizer.timeline import Timeline
from rich.console import Console

from minipaged.memory.contiguous import ContiguousManager
from minipaged.memory.events import Requested, Sampled, SlabReserved
from minipaged.memory.reservation import ReserveMax
from minipaged.memory.trace import Trace, TraceHeader


def slab_of_16() -> Timeline:
    """One text of 6 tokens in a slab of 16 slots, and a seventh token that comes next."""
    trace = Trace(TraceHeader(block_size=1, num_blocks=32, allocator="orca-max"))
    manager = ContiguousManager(
        32, 1, ReserveMax(16), notify=trace.observe, token_text=lambda token: f"t{token}"
    )
    trace.observe(Requested(0, "", 5))
    manager.allocate(0, range(5))
    manager.commit([(0, range(5))])
    trace.end_step(5, 0)
    manager.append_slots(0)
    manager.commit([(0, [5])])
    for token in (5, 6):
        trace.observe(Sampled((0,), (token,), (f"t{token}",), (0,)))
    trace.end_step(0, 1)
    timeline = Timeline(trace.header)
    for step in trace.steps:
        timeline.append(step)
    timeline.last()
    return timeline


def test_a_table_shows_where_a_slab_is_written_not_its_empty_end():
    view = view_sequence(slab_of_16().state, 0, num_new=1)
    first, *rows = draw_table(view, draw_heading(view, 1), num_shown=3, width=60)
    assert "13 blocks not shown" in first.plain
    assert [row.plain.split() for row in rows] == [
        ["4", "→", "4", "1/1", "t4"],
        ["5", "→", "5", "1/1", "t5"],
        ["6", "→", "6", "0/1", "‹t6›"],
    ]


def test_a_strip_ends_where_a_slab_is_written():
    view = view_sequence(slab_of_16().state, 0, num_new=1)
    (row,) = draw_strip(view, draw_heading(view, 1), width=60, rows=1)
    assert row.plain.rstrip().endswith("6→6 ‹t6›")
    assert "… " in row.plain


def test_a_table_without_empty_entries_still_shows_its_end():
    timeline = slab_of_16()
    view = view_sequence(timeline.state, 0, num_new=0)
    full = view._replace(entries=view.entries[:6])
    first, *rows = draw_table(full, draw_heading(full, 1), num_shown=2, width=60)
    assert "first 4 blocks not shown" in first.plain
    assert [row.plain.split()[0] for row in rows] == ["4", "5"]


def test_every_block_of_a_new_slab_is_marked():
    assert changes_of([SlabReserved(0, 4, 3, 3)]).blocks == {4: "+", 5: "+", 6: "+"}


def test_the_whole_screen_tells_of_the_slab():
    timeline = slab_of_16()
    timeline.go_to_step(0)
    console = Console(width=100, height=24, file=io.StringIO(), force_terminal=False)
    console.print(Screen(timeline, Options()))
    shown = console.file.getvalue()
    assert "32 blocks of 1 token " in shown
    assert "used 16" in shown
    assert "A reserves blocks 0 to 15" in shown
