"""The terminal's projector mode: large type, few things, at every size."""

from __future__ import annotations

import re

import pytest
from hostile import hostile_trace
from large_trace import Run
from minipaged_visualizer.big_letters import ROWS, big, columns_of, wrapped
from minipaged_visualizer.headlines import headline, telling
from minipaged_visualizer.options import Options
from minipaged_visualizer.player import _ACTIONS
from minipaged_visualizer.terminal import draw
from minipaged_visualizer.timeline import Position, Timeline
from scenes import everything

from minipaged.memory.events import EVENT_TYPES, BlockAllocated, BlockCopied, Sampled
from minipaged.memory.trace import Trace

SIZES = ((80, 24), (120, 40), (200, 50), (60, 16))
PROJECTED = Options(is_projected=True)


def timeline_of(trace: Trace) -> Timeline:
    timeline = Timeline(trace.header)
    for step in trace.steps:
        timeline.append(step)
    return timeline


def at_the_copy() -> Timeline:
    """The scene, one event behind its first copy-on-write."""
    timeline = timeline_of(everything())
    events = timeline.steps[1].events
    index = next(i for i, event in enumerate(events) if isinstance(event, BlockCopied))
    timeline.go_to(Position(1, index + 1))
    return timeline


def seen(timeline: Timeline, width: int, height: int, options: Options = PROJECTED) -> list[str]:
    rows = draw(timeline, options, width, height)
    assert len(rows) == height
    assert max(row.cell_len for row in rows) <= width
    return [row.plain for row in rows]


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_copy_on_write_stands_alone_in_large_type(width: int, height: int) -> None:
    options = Options(is_projected=True, by_event=True)
    lines = seen(at_the_copy(), width, height, options)
    text = "\n".join(lines)
    assert "A copies block 3 to block 5" in text
    assert any("shared 3 «" in row and "copy 5 »" in row for row in lines)
    assert any("━►" in row for row in lines)
    size = {80: 1, 120: 2, 200: 3}.get(width)
    for row in big("A COPIES", size) if size else ["A COPIES 3 TO 5"]:
        assert any(row.strip() in line for line in lines)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_every_moment_fits_every_size(width: int, height: int) -> None:
    timeline = timeline_of(everything())
    seen(timeline, width, height)
    for by_event, move in ((True, timeline.forward_event), (False, timeline.forward_step)):
        timeline.first()
        while move():
            lines = seen(timeline, width, height, Options(is_projected=True, by_event=by_event))
            assert "blocks used" in "\n".join(lines) or height < 20


def test_larger_terminals_get_larger_letters() -> None:
    options = Options(is_projected=True, by_event=True)
    heights = [
        sum("█" in row for row in seen(at_the_copy(), width, height, options))
        for width, height in SIZES[:3]
    ]
    assert heights == sorted(set(heights))


def test_a_long_table_shows_its_newest_blocks_and_says_so() -> None:
    run = Run(128, num_running=1)
    trace = Trace(run.header)
    trace.steps.extend(run.steps(400))
    timeline = timeline_of(trace)
    timeline.last()
    text = "\n".join(seen(timeline, 80, 24))
    match = re.search(r"\(the last (\d) of (\d+)\)", text)
    assert match
    shown, count = map(int, match.groups())
    assert count == len(timeline.state.tables[0])
    assert re.findall(r"(\d+) → ", text) == [str(n) for n in range(count - shown, count)]


def test_hostile_tokens_are_text() -> None:
    timeline = timeline_of(hostile_trace())
    while timeline.forward_event():
        text = "\n".join(seen(timeline, 120, 40))
        assert not set(text) & set("\x00\x07\x1b\u202e")


def test_b_turns_it_on_and_off() -> None:
    class FakePlayer:
        options = Options()

        def _set(self, is_projected: bool) -> None:
            self.options = Options(is_projected=is_projected)

    player = FakePlayer()
    for expected in (True, False):
        _ACTIONS["b"](player)  # type: ignore[arg-type]
        assert player.options.is_projected is expected


def test_the_rarest_event_is_told_first_and_every_kind_has_words() -> None:
    copy = BlockCopied(0, 1, 3, 5, "")
    sampled = Sampled((0,), (1,), ("\x1b",), (0,))
    assert telling([copy, BlockAllocated(0, 2, 9, ""), sampled]) is copy
    assert telling([]) is None
    trace = everything()
    for step in trace.steps:
        for event in step.events:
            assert headline(event).isprintable()
            assert 3 < len(headline(event)) < 30
    from minipaged_visualizer.headlines import _RANKS

    assert set(_RANKS) == set(EVENT_TYPES)


def test_letters_have_the_size_that_is_promised() -> None:
    for size, height in ROWS.items():
        rows = big("AB7→?ñ", size)
        assert len(rows) == height
        assert max(map(len, rows)) <= columns_of("AB7→??", size)
    assert wrapped("A TAKES 12345678901234567890", 40, 1, 3) is None


def test_the_text_is_that_of_the_sequence_in_the_headline() -> None:
    timeline = timeline_of(everything())
    timeline.last()
    text = "\n".join(seen(timeline, 80, 24))
    assert "E is finished" in text
    assert "“Stars are slow" in text
