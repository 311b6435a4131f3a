"""Attention over blocks in the terminal: a bar and a number beside each entry of a table."""

from __future__ import annotations

from minipaged_visualizer.heat import heat_of
from minipaged_visualizer.options import Options
from minipaged_visualizer.terminal import draw
from minipaged_visualizer.timeline import Timeline
from scenes import Script

from minipaged.memory.events import MEAN_OF_HEADS, Attended


def deep_timeline() -> Timeline:
    script = Script(num_blocks=8)
    script.request(0, ["a"] * 10)
    script.admit(0)
    script.step()
    script.trace.observe(Attended(0, 0, MEAN_OF_HEADS, (1000,)))
    script.trace.observe(Attended(0, 1, 3, (0, 1000)))
    script.trace.observe(Attended(0, 1, MEAN_OF_HEADS, (700, 1, 299)))
    script.trace.end_step(0, 0)
    script.finish(0)
    script.trace.end_step(0, 0)
    timeline = Timeline(script.trace.header)
    for step in script.trace.steps:
        timeline.append(step)
    return timeline


def test_of_several_the_mean_of_the_last_layer_is_shown() -> None:
    timeline = deep_timeline()
    timeline.go_to_step(1)
    table = timeline.state.tables[0]
    assert heat_of(timeline.state, 0) == dict(zip(table, (700, 1, 299), strict=True))
    assert heat_of(timeline.state, 1) == {}
    timeline.last()
    assert heat_of(timeline.state, 0) == {}


def test_a_table_shows_shares_as_bars_and_numbers() -> None:
    timeline = deep_timeline()
    timeline.go_to_step(1)
    for width, height in ((80, 24), (120, 40), (200, 50)):
        lines = [row.plain for row in draw(timeline, Options(), width, height)]
        rows = [row for row in lines if "%" in row and "→" in row]
        assert [row.split("%")[0].split()[-1] for row in rows] == ["70", "0", "30"]
        assert "████▏" in rows[0]
        assert all(len(row) <= width for row in lines)
    timeline.go_to_step(0)
    assert not [r for r in draw(timeline, Options(), 80, 24) if "→" in r.plain and "%" in r.plain]


def test_what_is_looked_at_is_told_in_words() -> None:
    timeline = deep_timeline()
    timeline.go_to_step(1)
    told = " ".join(row.plain.strip() for row in draw(timeline, Options(), 200, 50))
    assert "A looks back in layer 1, all heads: 70 % at its block 0" in told
