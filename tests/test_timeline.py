from __future__ import annotations

import random

import pytest
from minipaged_visualizer.timeline import KEYFRAME_STEPS, START, Position, Timeline
from scenes import Script, everything

from minipaged.errors import TraceError
from minipaged.memory.events import BlockAllocated
from minipaged.memory.replay import Replay
from minipaged.memory.trace import Trace, TraceStep


def timeline_of(trace: Trace) -> Timeline:
    timeline = Timeline(trace.header)
    for step in trace.steps:
        timeline.append(step)
    return timeline


def state_at(trace: Trace, position: Position) -> Replay:
    """The slow way: everything from the start."""
    header = trace.header
    replay = Replay(header.num_blocks, header.block_size, header.num_swap_blocks)
    for number in range(position.number + 1):
        events = trace.steps[number].events
        for event in events[: position.event] if number == position.number else events:
            replay.apply(event)
    return replay


def same(left: Replay, right: Replay) -> bool:
    return (
        left.snapshot() == right.snapshot()
        and left.contents == right.contents
        and left.sequences == right.sequences
    )


@pytest.fixture(scope="module")
def long_trace() -> Trace:
    script = Script(num_blocks=200)
    for seq in range(3):
        script.request(seq, ["Once", f" {seq}", " upon"])
        script.admit(seq)
    for _ in range(3 * KEYFRAME_STEPS + 5):
        script.step()
    return script.trace


def test_a_random_walk_always_shows_what_a_replay_from_the_start_gives(long_trace: Trace):
    rng = random.Random(7)
    timeline = timeline_of(long_trace)
    moves = ["forward_step", "back_step", "forward_event", "back_event", "first", "last"]
    for _ in range(300):
        if rng.random() < 0.3:
            last = len(long_trace.steps) + 1
            timeline.go_to(Position(rng.randrange(-2, last), rng.randrange(-1, 9)))
        else:
            getattr(timeline, rng.choice(moves))()
        assert same(timeline.state, state_at(long_trace, timeline.position)), timeline.position


def test_every_event_of_the_scene_can_be_visited_forward_and_back():
    trace = everything()
    timeline = timeline_of(trace)
    forward = [timeline.position]
    while timeline.forward_event():
        forward.append(timeline.position)
    assert len(forward) == 1 + sum(len(step.events) for step in trace.steps)
    assert timeline.is_at_end
    back = [timeline.position]
    while timeline.back_event():
        back.append(timeline.position)
    assert back[::-1] == forward


def test_steps_go_to_their_ends():
    timeline = timeline_of(everything())
    timeline.go_to(Position(1, 2))
    assert timeline.forward_step()
    assert timeline.position == Position(1, len(timeline.steps[1].events))
    assert timeline.forward_step()
    assert timeline.position.number == 2
    assert timeline.back_step()
    assert timeline.events == timeline.steps[1].events


def test_the_ends_are_the_ends():
    timeline = timeline_of(everything())
    assert timeline.position == START
    assert not timeline.back_step()
    assert not timeline.back_event()
    assert timeline.step is None
    assert timeline.events == ()
    assert timeline.last()
    assert not timeline.forward_step()
    assert not timeline.forward_event()
    assert not timeline.last()
    assert timeline.first()


def test_an_empty_timeline_goes_nowhere():
    timeline = Timeline(everything().header)
    moved = [timeline.forward_step(), timeline.back_event(), timeline.first(), timeline.last()]
    assert moved == [False] * 4
    assert timeline.is_at_end
    assert list(timeline.past()) == []


def test_it_grows_while_it_is_walked():
    trace = everything()
    timeline = Timeline(trace.header)
    for number, step in enumerate(trace.steps):
        assert timeline.is_at_end
        timeline.append(step)
        assert timeline.position.number == number - 1
        assert timeline.forward_step()
    assert same(timeline.state, state_at(trace, timeline.position))


def test_a_preview_becomes_the_beginning_of_the_complete_step():
    trace = everything()
    timeline = Timeline(trace.header)
    beginning = trace.steps[0].events[:5]
    timeline.preview(beginning)
    assert timeline.last()
    assert timeline.events == beginning
    assert timeline.is_at_end
    assert timeline.steps == []
    timeline.append(trace.steps[0])
    assert timeline.position == Position(0, 5)
    assert not timeline.is_at_end
    assert timeline.forward_step()
    assert same(timeline.state, state_at(trace, timeline.position))


def test_an_empty_preview_is_none():
    timeline = Timeline(everything().header)
    timeline.preview(())
    assert not timeline.last()


def test_steps_without_events_can_be_passed():
    trace = everything()
    timeline = Timeline(trace.header)
    for number in range(3):
        timeline.append(TraceStep(number, 0, 0, "", ()))
    assert [timeline.forward_event() for _ in range(4)] == [True, True, True, False]
    assert [timeline.back_event() for _ in range(4)] == [True, True, True, False]
    assert [timeline.forward_step() for _ in range(4)] == [True, True, True, False]


def test_past_tells_this_step_first_as_far_as_it_happened():
    timeline = timeline_of(everything())
    timeline.go_to(Position(2, 1))
    told = list(timeline.past())
    assert [step.step for step, _ in told] == [2, 1, 0]
    assert len(told[0][1]) == 1
    assert told[1][1] == timeline.steps[1].events


def test_used_blocks_over_time():
    trace = everything()
    timeline = timeline_of(trace)
    used = []
    for number in range(len(trace.steps)):
        timeline.go_to_step(number)
        used.append(timeline.state.snapshot().num_used)
    assert timeline.used_history == used
    assert used[-1] == 0


def test_a_step_that_contradicts_the_others_is_refused():
    trace = everything()
    timeline = timeline_of(trace)
    timeline.last()
    with pytest.raises(TraceError, match="never requested"):
        timeline.append(TraceStep(99, 0, 0, "", (BlockAllocated(77, 5, 0, "append"),)))
    assert len(timeline.steps) == len(trace.steps)
    assert timeline.back_step()
