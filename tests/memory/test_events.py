from __future__ import annotations

import dataclasses
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.memory import events as ev
from minipaged.memory.events import EVENT_TYPES, from_json, ignore, short, to_json

INT = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
BY_TYPE = {
    "int": INT,
    "str": TEXT,
    "tuple[int, ...]": st.lists(INT, max_size=3).map(tuple),
    "tuple[str, ...]": st.lists(TEXT, max_size=3).map(tuple),
    "tuple[tuple[int, int], ...]": st.lists(st.tuples(INT, INT), max_size=3).map(tuple),
}
PARALLEL = (ev.Prefilled, ev.Written, ev.Sampled)


def is_parallel(event: ev.Event) -> bool:
    lengths = {len(v) for v in to_json(event)[1:] if isinstance(v, tuple)}
    return not isinstance(event, PARALLEL) or len(lengths) == 1


EVENTS = st.one_of(
    *(
        st.builds(cls, **{f.name: BY_TYPE[str(f.type)] for f in dataclasses.fields(cls)})
        for cls in EVENT_TYPES.values()
    )
).filter(is_parallel)

# One of each kind. Field order is the format: a change here is a new version of it.
EXAMPLES = [
    (ev.Requested(0, "a", 5), ["request", 0, "a", 5]),
    (ev.Forked(0, 1), ["fork", 0, 1]),
    (ev.PrefixHit(0, 0, (3, 1)), ["hit", 0, 0, [3, 1]]),
    (ev.BlockAllocated(0, 2, 7, "append"), ["alloc", 0, 2, 7, "append"]),
    (ev.BlockShared(1, 0, 3), ["share", 1, 0, 3]),
    (ev.BlockCopied(1, 2, 7, 4, "why"), ["copy", 1, 2, 7, 4, "why"]),
    (ev.Prefilled(0, 8, (5, 6), ("a", "b")), ["prefill", 0, 8, [5, 6], ["a", "b"]]),
    (ev.Written((0, 1), (5, 6), ("a", "b")), ["write", [0, 1], [5, 6], ["a", "b"]]),
    (ev.BlockPublished(3, "aa", ""), ["publish", 3, "aa", ""]),
    (ev.BlockEvicted(3, "aa", 4), ["evict", 3, "aa", 4]),
    (ev.Preempted(1, "swap", "no room"), ["preempt", 1, "swap", "no room"]),
    (ev.SwappedOut(1, ((3, 0), (4, 1))), ["swap_out", 1, [[3, 0], [4, 1]]]),
    (ev.SwappedIn(1, ((0, 3), (1, 4))), ["swap_in", 1, [[0, 3], [1, 4]]]),
    (ev.Sampled((0,), (5,), ("a",), (-120,)), ["sample", [0], [5], ["a"], [-120]]),
    (ev.Finished(0, "stop"), ["finish", 0, "stop"]),
    (ev.Released(0, (7, 1, 3), "finished"), ["release", 0, [7, 1, 3], "finished"]),
    (ev.SlabReserved(0, 8, 8, 6), ["reserve", 0, 8, 8, 6]),
    (ev.Attended(0, 29, 3, (400, 600)), ["attend", 0, 29, 3, [400, 600]]),
    (
        ev.KernelAccess("f", (0, 1), (7, 2), 52, "k = 1", "load", "k_cache", (8, 28), (0,), 64),
        ["kernel", "f", [0, 1], [7, 2], 52, "k = 1", "load", "k_cache", [8, 28], [0], 64],
    ),
]


@pytest.mark.parametrize(("event", "row"), EXAMPLES, ids=lambda value: getattr(value, "kind", ""))
def test_field_order_is_the_format(event, row):
    assert json.loads(json.dumps(to_json(event))) == row
    assert from_json(row) == event


def test_the_examples_are_all_there_are():
    assert [type(event) for event, _ in EXAMPLES] == list(EVENT_TYPES.values())


@given(EVENTS)
def test_every_event_survives_json(event):
    again = from_json(json.loads(json.dumps(to_json(event))))
    assert again == event
    assert type(again) is type(event)
    assert hash(again) == hash(event)


def test_two_kinds_are_never_equal_even_with_the_same_fields():
    assert ev.SwappedOut(1, ((2, 3),)) != ev.SwappedIn(1, ((2, 3),))
    assert ev.PrefixHit(1, 2, (3,)) != ev.Released(1, (3,), "")
    assert len({ev.SwappedOut(1, ()), ev.SwappedIn(1, ())}) == 2


def test_events_are_values():
    event = ev.BlockAllocated(0, 2, 7, "append")
    assert pickle.loads(pickle.dumps(event)) == event
    assert dataclasses.replace(event, block=8).block == 8
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.block = 8  # type: ignore[misc]
    assert ignore(event) is None


@pytest.mark.parametrize("event", [event for event, _ in EXAMPLES], ids=lambda event: event.kind)
def test_an_event_is_small_and_cannot_change(event):
    assert not hasattr(event, "__dict__")
    for name in (f.name for f in dataclasses.fields(event)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(event, name, None)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (ev.BlockAllocated(0, 2, 7, "append"), "append"),
        (ev.PrefixHit(0, 0, (3,)), "prefix hit"),
        (ev.BlockShared(1, 0, 3), "fork"),
        (ev.BlockEvicted(3, "aa", 4), "evicted to serve seq 4"),
        (ev.BlockPublished(3, "aa", ""), "publish"),
        (ev.Finished(0, ""), "finish"),
        (ev.SlabReserved(0, 8, 8, 6), "one piece for the whole text"),
    ],
)
def test_every_event_tells_why(event, reason):
    assert event.reason == reason


@pytest.mark.parametrize("row", [["x-mine"], ["x-mine", {"any": [1.5, None]}], ["x-"]])
def test_foreign_events_are_ignored(row):
    assert from_json(row) is None


@pytest.mark.parametrize(
    ("row", "match"),
    [
        (None, "must be an array that begins with its name"),
        ({}, "must be an array"),
        ([], "must be an array"),
        ([1, 2], "must be an array"),
        ("fork", "must be an array"),
        (["frok", 0, 1], "unknown event 'frok'"),
        (["x", 0, 1], "unknown event 'x'"),
        (["X-a"], "unknown event 'X-a'"),
        (["fork", 0], "event 'fork' needs 2 fields, has 1"),
        (["fork", 0, 1, 2], "event 'fork' needs 2 fields, has 3"),
        (["fork", 0, True], "event 'fork': field 'child' must be an integer, not True"),
        (["fork", 0, 1.0], "field 'child' must be an integer, not 1.0"),
        (["fork", None, 1], "field 'parent' must be an integer, not None"),
        (["fork", "0", 1], "field 'parent' must be an integer, not '0'"),
        (["fork", 0, 2**63], "field 'child' must be an integer"),
        (["fork", 0, -(2**63) - 1], "field 'child' must be an integer"),
        (["finish", 0, 1], "field 'why' must be a string, not 1"),
        (["hit", 0, 0, 1], "field 'blocks' must be an array of integers, not 1"),
        (["hit", 0, 0, [1, True]], "field 'blocks' must be an array of integers"),
        (["hit", 0, 0, ["1"]], r"field 'blocks' must be an array of integers, not \['1'\]"),
        (["write", [0], [1], [2]], "field 'texts' must be an array of strings"),
        (["swap_out", 0, [[1, 2, 3]]], "field 'moves' must be an array of pairs of integers"),
        (["swap_out", 0, [1, 2]], "field 'moves' must be an array of pairs of integers"),
        (["swap_in", 0, [[1, "2"]]], "field 'moves' must be an array of integers"),
        (["write", [0, 1], [1], ["a"]], "event 'write': its arrays have different lengths"),
        (["prefill", 0, 0, [1], []], "its arrays have different lengths"),
        (["sample", [0], [1], ["a"], []], "its arrays have different lengths"),
    ],
)
def test_what_is_wrong_with_an_event_is_said(row, match):
    with pytest.raises(ValueError, match=match):
        from_json(row)


@pytest.mark.parametrize(
    "value",
    ["a\nb" * 999, "\x1b[31m", "\udc80", 10**999, [[[[1]]] * 99] * 99, {"k\n": "v" * 99}, 1e300],
)
def test_untrusted_values_are_shown_on_one_short_line(value):
    shown = short(value)
    assert len(shown) <= 60
    assert shown.isprintable()


def test_deep_values_can_be_shown():
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    assert short(value) == "[[[...]]]"
    while value:  # taken apart step by step: freeing it at once would nest as deeply
        (value,) = value
