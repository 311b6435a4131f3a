from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from scripted_run import scripted_trace
from watched import Watched

from minipaged.errors import TraceError
from minipaged.memory.integrity import check_manager, check_snapshot, check_trace
from minipaged.memory.replay import IntegrityError
from minipaged.memory.snapshot import MemorySnapshot

GOOD = MemorySnapshot(
    block_size=2,
    ref_counts=(2, 1, 1, 0),
    hashes={0: "aa", 3: "bb"},
    tables={0: (0, 1), 1: (0, 2)},
    num_tokens={0: 3, 1: 4, 2: 1},
    swap_ref_counts=(1, 0),
    swap_tables={2: (0,)},
)


def test_a_good_state_passes():
    check_snapshot(GOOD)
    check_snapshot(MemorySnapshot(2, ()))


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "counted too low": ({"ref_counts": (1, 1, 1, 0)}, "block 0: ref_count 1, in tables 2 times"),
    "counted too high": ({"ref_counts": (2, 2, 1, 0)}, "block 1: ref_count 2, in tables 1 times"),
    "lost reference": ({"ref_counts": (2, 1, 1, 1)}, "block 3: ref_count 1, but in no table"),
    "no such block": ({"tables": {0: (0, 1), 1: (0, 4)}}, "block 4 is not in a pool of 4"),
    "negative block": ({"tables": {0: (0, 1), 1: (0, -2)}}, "block -2 is not in a pool of 4"),
    "swap block lost": ({"swap_ref_counts": (1, 1)}, "swap block 1: ref_count 1, but in no table"),
    "swap block counted": ({"swap_ref_counts": (2, 0)}, "swap block 0: ref_count 2, in tables 1"),
    "both pools": ({"swap_tables": {0: (0,)}}, "seq 0 holds blocks in both pools"),
    "tokens without slots": ({"num_tokens": {0: 5, 1: 4, 2: 1}}, "seq 0 has 5 tokens, 4 slots"),
    "negative tokens": ({"num_tokens": {0: -1, 1: 4, 2: 1}}, "seq 0 has -1 tokens, 4 slots"),
    "swapped without slots": ({"num_tokens": {0: 3, 1: 4, 2: 3}}, "seq 2 has 3 tokens, 2 slots"),
    "one hash, two blocks": ({"hashes": {0: "aa", 3: "aa"}}, "two blocks have the same hash"),
    "published half full": ({"hashes": {1: "cc"}}, "block 1 is published, but not full for seq 0"),
    "shared at two places": (
        {"tables": {0: (0, 1), 1: (2, 0)}},
        "block 0 is shared: entry 0 of seq 0 (2 tokens), entry 1 of seq 1 (2 tokens)",
    ),
    "shared with different tokens": (
        {"tables": {0: (0, 1), 1: (0, 1)}, "ref_counts": (2, 2, 0, 0)},
        "block 1 is shared: entry 1 of seq 0 (1 tokens), entry 1 of seq 1 (2 tokens)",
    ),
    "shared and empty": (
        {
            "tables": {0: (0, 1), 1: (0, 1)},
            "ref_counts": (2, 2, 0, 0),
            "num_tokens": {0: 2, 1: 2, 2: 1},
        },
        "block 1 is shared: entry 1 of seq 0 (0 tokens), entry 1 of seq 1 (0 tokens)",
    ),
    "swap block shared at two places": (
        {"swap_tables": {2: (0, 1), 3: (1, 0)}, "swap_ref_counts": (2, 2), "num_tokens": {
            0: 3, 1: 4, 2: 4, 3: 4
        }},
        "swap block 1 is shared: entry 1 of seq 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "rule"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_state_is_told(change, rule):
    with pytest.raises(IntegrityError) as raised:
        check_snapshot(dataclasses.replace(GOOD, **change))
    assert rule in str(raised.value)


@pytest.fixture
def m() -> Watched:
    m = Watched(6, 2, num_swap_blocks=2)
    m.admit(0, [1, 2, 3])
    m.admit(1, [5, 6, 7])
    m.free(1)
    return m


def test_a_free_list_that_lost_a_block_is_told(m):
    m.pool._free.popleft()
    with pytest.raises(IntegrityError, match="the free list has 3 entries, 4 are free"):
        check_manager(m)


def test_a_free_list_with_a_block_in_use_is_told(m):
    m.pool._free.append(1)
    with pytest.raises(IntegrityError, match="the free list has 5 entries, 4 are free"):
        check_manager(m)


def test_a_swap_pool_is_checked_too(m):
    m.swap_pool._free.popleft()
    with pytest.raises(IntegrityError, match="the free list has 1 entries, 2 are free"):
        check_manager(m)


def test_a_cached_block_among_those_without_content_is_told(m):
    assert m.pool.num_free_cached == 1
    m.pool._free.append(m.pool._free_cached.popleft())
    m.pool._free.append(m.pool._free.popleft())
    with pytest.raises(IntegrityError, match="a cached free block stands before one without"):
        check_manager(m)


def test_a_hash_that_leads_elsewhere_is_told(m):
    content_hash = m.pool.hash_of[0]
    m.pool._block_of[content_hash] = 3
    with pytest.raises(IntegrityError, match="block 0 has a hash that leads elsewhere"):
        check_manager(m)


# --- traces ---------------------------------------------------------------------------------------


def steps_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def path(tmp_path) -> Path:
    path = tmp_path / "run.jsonl"
    scripted_trace().save(path)
    return path


def test_a_good_trace_gives_its_numbers_of_steps_and_events(path):
    rows = steps_of(path)
    assert check_trace(path) == (len(rows) - 1, sum(len(row["events"]) for row in rows[1:]))
    assert check_trace(str(path)) == check_trace(path)


def test_a_gzipped_trace_is_checked_too(path, tmp_path):
    scripted_trace().save(tmp_path / "run.jsonl.gz")
    assert check_trace(tmp_path / "run.jsonl.gz") == check_trace(path)


def swap_columns(row: list[Any]) -> list[Any]:
    return [*row[:-1], [[b, a] for a, b in row[-1]]]


def find(rows: list[dict[str, Any]], kind: str) -> tuple[int, int]:
    """Give line (from 0) and index of the first event of a kind."""
    return next(
        (line, index)
        for line, row in enumerate(rows[1:], 1)
        for index, event in enumerate(row["events"])
        if event[0] == kind
    )


# What is done to the first event of a kind, and the rule that this breaks.
TAMPERED = {
    "allocated twice": ("alloc", lambda e: [e, [*e[:2], e[2] + 1, *e[3:]]], "handed out while in"),
    "allocation left out": ("alloc", lambda e: [], "is not next"),
    "hit left out": ("hit", lambda e: [], "is not next"),
    "share left out": ("share", lambda e: [], "is not next"),
    "no copy-on-write": ("copy", lambda e: [], "writes to block 1, shared by 2"),
    "write left out": ("write", lambda e: [], "publish: block 2 holds 3 of 4 tokens"),
    "prefill left out": ("prefill", lambda e: [], "publish: block 0 holds 0 of 4 tokens"),
    "published twice": ("publish", lambda e: [e, e], "has a hash already"),
    "never published": ("publish", lambda e: [], "hit: block 0 has no published content"),
    "eviction left out": ("evict", lambda e: [], "handed out with its old hash"),
    "evicted twice": ("evict", lambda e: [e, e], "has another hash"),
    "release left out": ("release", lambda e: [], "is not next"),
    "released twice": ("release", lambda e: [e, e], "are not the tail"),
    "released head first": ("release", lambda e: [[*e[:2], e[2][::-1], e[3]]], "are not the tail"),
    "swapped out elsewhere": ("swap_out", lambda e: [swap_columns(e)], "are not the blocks of"),
    "swapped out twice": ("swap_out", lambda e: [e, e], "are not the blocks of seq 0"),
    "swap-in left out": ("swap_in", lambda e: [], "is swapped out"),
    "request left out": ("request", lambda e: [], "was never requested"),
    "asked twice": ("request", lambda e: [e, e], "was requested twice"),
}


@pytest.mark.parametrize(("kind", "tamper", "rule"), TAMPERED.values(), ids=TAMPERED.keys())
def test_a_planted_contradiction_is_found_with_its_line_and_event(path, kind, tamper, rule):
    rows = steps_of(path)
    line, index = find(rows, kind)
    events = rows[line]["events"]
    events[index : index + 1] = tamper(events[index])
    write(path, rows)
    with pytest.raises(IntegrityError) as raised:
        check_trace(path)
    message = str(raised.value)
    assert rule in message
    assert message.startswith(f"{path}: line ")
    found = int(message.removeprefix(f"{path}: line ").split()[0]) - 1
    assert found >= line
    step = rows[found]
    assert f"(step {step['step']}), event " in message
    number = int(message.split(", event ")[1].split()[0])
    assert f", event {number} ({step['events'][number][0]}): " in message


def test_a_finished_sequence_that_still_holds_blocks_is_told(path):
    rows = steps_of(path)
    line = len(rows) - 1
    assert rows[line]["events"][-1][0] == "release"
    del rows[line]["events"][-1]
    write(path, rows)
    rule = f"line {line + 1} (step {line - 1}): seq 2 has finished, but still holds blocks"
    with pytest.raises(IntegrityError) as raised:
        check_trace(path)
    assert str(raised.value) == f"{path}: {rule}"


def test_a_broken_state_at_the_end_of_a_step_is_told_with_its_line(path):
    rows = steps_of(path)
    line, index = find(rows, "release")
    rows[line]["events"][index][2] = rows[line]["events"][index][2][:1]  # a tail without its head
    del rows[line + 1 :], rows[line]["events"][index + 1 :]
    write(path, rows)
    with pytest.raises(IntegrityError) as raised:
        check_trace(path)
    assert f"line {line + 1} (step {line - 1}): seq 3 has 7 tokens, 4 slots" in str(raised.value)


def test_no_event_that_moves_a_block_can_be_left_out(path):
    rows = steps_of(path)
    moving = {"hit", "alloc", "share", "copy", "swap_out", "swap_in", "release"}
    for line, row in enumerate(rows[1:], 1):
        for index, event in enumerate(row["events"]):
            if event[0] in moving:
                fewer = {**row, "events": [*row["events"][:index], *row["events"][index + 1 :]]}
                write(path, [*rows[:line], fewer, *rows[line + 1 :]])
                with pytest.raises(IntegrityError):
                    check_trace(path)


def test_what_cannot_be_read_is_a_trace_error(tmp_path):
    (tmp_path / "run.jsonl").write_text("no trace\n", encoding="utf-8")
    with pytest.raises(TraceError, match="line 1: not JSON"):
        check_trace(tmp_path / "run.jsonl")
