"""The bug zoo: an invariant catches every fault, and never the right code; nothing leaks out."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from minipaged.errors import ConfigError
from minipaged.lab import zoo
from minipaged.lab.zoo.invariants import BrokenInvariantError, Witness
from minipaged.memory.checked_kv import CheckedKV
from minipaged.memory.events import BlockAllocated, BlockEvicted, Requested
from minipaged.memory.integrity import check_trace
from minipaged.memory.kv_cache_manager import KVCacheManager
from minipaged.memory.replay import IntegrityError, Replay
from minipaged.memory.snapshot import MemorySnapshot

NAMES = [bug.name for bug in zoo.BUGS]
DOCS = Path(__file__).parents[2] / "docs" / "ZOO.md"
every_bug = pytest.mark.parametrize("name", NAMES)


# --- hunting --------------------------------------------------------------------------------------


@every_bug
def test_a_bug_is_caught_within_200_operations_by_the_invariant_that_it_names(name: str) -> None:
    caught = zoo.hunt(name)
    assert 0 <= caught.step < 200
    assert caught.invariant == zoo.find(name).caught_by
    assert caught.invariant in zoo.INVARIANTS
    assert caught.message
    assert "\n" not in caught.message
    assert caught.operation


@every_bug
def test_most_seeds_catch_a_bug(name: str) -> None:
    caught = 0
    for seed in range(8):
        try:
            zoo.hunt(name, seed)
            caught += 1
        except zoo.NotCaughtError:
            pass
    assert caught >= 5


@pytest.mark.parametrize("seed", range(60))
def test_the_right_code_is_not_caught(seed: int) -> None:
    assert zoo.run(seed) is None


def test_the_right_code_is_not_caught_in_a_long_run() -> None:
    assert zoo.run(seed=1000, operations=3000) is None


def test_the_random_load_meets_everything_that_memory_can_do() -> None:
    from minipaged.lab.zoo.workload import RandomEngine

    engine = RandomEngine(seed=0)
    kinds, ways = set(), set()
    for _ in range(200):
        engine.operate()
        for event in engine.trace.pending():
            kinds.add(event.kind)
            ways.add(getattr(event, "how", getattr(event, "why", "")))
        engine.trace.end_step(0, 0)
        engine.kv.wipe(engine.manager.snapshot())
    moving = {"hit", "alloc", "share", "copy", "publish", "evict", "swap_out", "swap_in", "release"}
    assert kinds >= moving | {"request", "fork", "prefill", "write", "sample", "preempt", "finish"}
    assert ways >= {"swap", "recompute", "abort", "length"}


def test_a_hunt_is_the_same_every_time() -> None:
    first, second = zoo.hunt("lost-token", seed=3), zoo.hunt("lost-token", seed=3)
    assert first == second
    assert first.trace.steps[-1].note == second.trace.steps[-1].note
    assert first.trace != zoo.hunt("lost-token", seed=4).trace


def test_a_bug_that_does_no_harm_is_told() -> None:
    with pytest.raises(
        zoo.NotCaughtError, match="stale-hash does no harm in 3 operations with seed"
    ):
        zoo.hunt("stale-hash", operations=3)


@every_bug
def test_a_trace_holds_the_run_up_to_the_fault_and_replays(name: str, tmp_path: Path) -> None:
    caught = zoo.hunt(name)
    assert len(caught.trace.steps) == caught.step + 1
    last = caught.trace.steps[-1]
    assert last.step == caught.step
    assert last.note == f"{caught.operation}; caught ({caught.invariant}): {caught.message}"
    header = caught.trace.header
    assert header.title == f"bug zoo: {name}"
    state = Replay(header.num_blocks, header.block_size, header.num_swap_blocks)
    for step in caught.trace.steps:
        for event in step.events:
            state.apply(event)
    caught.trace.save(tmp_path / "fault.jsonl")
    if caught.step:  # all but the last step are good in every respect
        good = (tmp_path / "fault.jsonl").read_bytes().splitlines(keepends=True)[:-1]
        (tmp_path / "good.jsonl").write_bytes(b"".join(good))
        assert check_trace(tmp_path / "good.jsonl")[0] == caught.step


# --- switching ------------------------------------------------------------------------------------


def everything() -> dict[tuple[Any, str], Any]:
    return {(bug.owner, bug.attribute): vars(bug.owner)[bug.attribute] for bug in zoo.BUGS}


RIGHT = everything()


@every_bug
def test_a_bug_is_in_force_inside_and_gone_behind_the_block(name: str) -> None:
    with zoo.bug(name) as bug:
        changed = [place for place, code in everything().items() if code is not RIGHT[place]]
        assert changed == [(bug.owner, bug.attribute)]
        assert vars(bug.owner)[bug.attribute] is bug.wrong
    assert everything() == RIGHT


def test_a_bug_does_what_it_says_in_any_manager() -> None:
    def second_owner() -> list[int]:
        manager = KVCacheManager(num_blocks=8, block_size=4)
        manager.allocate(0, [1, 2, 3, 4, 5])
        manager.commit([(0, [1, 2, 3, 4, 5])])
        manager.fork(0, 1)
        manager.append_slots(1)
        return list(manager.pool.ref_count[:3])

    assert second_owner() == [2, 1, 1]
    with zoo.bug("double-free"):
        assert second_owner() == [2, 0, 1]
    assert second_owner() == [2, 1, 1]


def test_an_error_inside_takes_the_bug_out_too() -> None:
    with pytest.raises(KeyError), zoo.bug("in-use-and-free"):
        raise KeyError
    assert everything() == RIGHT


def test_bugs_nest_also_at_the_same_place() -> None:
    with zoo.bug("hit-not-locked") as outer:
        with zoo.bug("hit-forgets") as inner, zoo.bug("full-hit"):
            assert outer.place == inner.place == "KVCacheManager._take_hits"
            assert KVCacheManager._take_hits is inner.wrong
        assert KVCacheManager._take_hits is outer.wrong
        assert zoo.hunt("hit-too-long").invariant
        assert KVCacheManager._take_hits is outer.wrong
    assert everything() == RIGHT


def test_an_unknown_name_is_refused_with_close_ones() -> None:
    with (
        pytest.raises(ConfigError, match="no bug is called 'doublefree': did you mean double-free"),
        zoo.bug("doublefree"),
    ):
        pass
    with pytest.raises(ConfigError, match=r"no bug is called 'x': `minipaged zoo` lists them"):
        zoo.hunt("x")


# --- the cards ------------------------------------------------------------------------------------


def test_there_are_at_least_20_bugs_with_names_of_their_own() -> None:
    assert len(NAMES) >= 20
    assert len(set(NAMES)) == len(NAMES)
    assert len({bug.title for bug in zoo.BUGS}) == len(NAMES)


@every_bug
def test_a_bug_tells_its_story_and_shows_short_code_with_the_right_one_beside(name: str) -> None:
    bug = zoo.find(name)
    assert 10 < len(bug.title) < 80
    assert len(bug.story) > 80
    assert bug.source.startswith("https://github.com/")
    assert len(bug.shows) > 20
    assert bug.code.startswith("def ")
    assert "# right: " in bug.code
    assert '"""' not in bug.code
    assert len(bug.code.splitlines()) <= 12
    assert max(map(len, bug.code.splitlines())) <= 78  # with its indent it fits a terminal
    compile(bug.code, name, "exec")


# --- the witnesses --------------------------------------------------------------------------------


def snapshot(**changes: Any) -> MemorySnapshot:
    good = MemorySnapshot(2, (1, 1, 0), tables={0: (0, 1)}, num_tokens={0: 3})
    return dataclasses.replace(good, **changes)


@pytest.fixture
def kv() -> CheckedKV:
    kv = CheckedKV(num_blocks=3, block_size=2, num_swap_blocks=1)
    kv.write([0, 1, 2], [7, 8, 9], start=0, before=None)
    return kv


def test_a_sequence_reads_its_own_kv(kv: CheckedKV) -> None:
    kv.check(snapshot(), {0: [7, 8, 9]})
    kv.check(snapshot(), {0: [7, 8, 9, 5]})  # sampled, not computed yet


def test_another_token_another_text_and_nothing_are_told_apart(kv: CheckedKV) -> None:
    with pytest.raises(
        IntegrityError, match=r"position 2 \(block 1\): the KV of token 9 at 2, where"
    ):
        kv.check(snapshot(), {0: [7, 8, 1]})
    with pytest.raises(IntegrityError, match=r"position 3 \(block 1\): KV that was never computed"):
        kv.check(snapshot(num_tokens={0: 4}), {0: [7, 8, 9, 1]})
    kv.write([0], [6], start=0, before=None)
    kv.write([1], [8], start=1, before=0)
    kv.write([0], [7], start=0, before=None)
    with pytest.raises(
        IntegrityError, match=r"position 1 .* the KV of token 8 behind another text"
    ):
        kv.check(snapshot(), {0: [7, 8, 9]})


def test_a_wrong_block_poisons_what_is_computed_behind_it(kv: CheckedKV) -> None:
    kv.write([2], [9], start=2, before=5)  # reads a slot that holds nothing
    with pytest.raises(IntegrityError, match=r"position 2 .* behind another text"):
        kv.check(snapshot(), {0: [7, 8, 9]})


def test_moves_carry_the_kv_and_wiping_spares_what_can_be_found(kv: CheckedKV) -> None:
    kv.copy([(0, 2)])
    kv.check(snapshot(tables={0: (2, 1)}), {0: [7, 8, 9]})
    kv.swap_out([(1, 0)])
    kv.swap_in([(0, 0)])
    kv.check(snapshot(tables={0: (2, 0)}), {0: [7, 8, 9]})
    kv.wipe(snapshot(ref_counts=(0, 0, 0), hashes={2: "aa"}, swap_ref_counts=(0,)))
    assert [slot for slot, cell in enumerate(kv.slots) if cell] == [4, 5]
    assert kv.swap_slots == [None, None]


def test_swapped_sequences_are_read_in_the_swap_pool(kv: CheckedKV) -> None:
    kv.swap_out([(0, 0)])
    away = snapshot(tables={}, swap_tables={0: (0,)}, num_tokens={0: 2}, swap_ref_counts=(1,))
    kv.check(away, {0: [7, 8]})
    with pytest.raises(IntegrityError, match="the KV of token 8 at 1, where token 1 belongs"):
        kv.check(away, {0: [7, 1]})


@pytest.mark.parametrize("slot", [-1, 6])
def test_a_slot_outside_is_refused(kv: CheckedKV, slot: int) -> None:
    with pytest.raises(IntegrityError, match=f"slot {slot} is not in a pool of 6 slots"):
        kv.write([slot], [1], start=3, before=2)


def test_an_eviction_without_need_is_told() -> None:
    def witness(num_blocks: int) -> Witness:
        witness = Witness(num_blocks, 1, 0)
        witness.see(Requested(0, "", 1))
        witness.state.hashes[0] = "aa"
        witness.see(BlockEvicted(0, "aa", 0))
        return witness

    witness(1).see(BlockAllocated(0, 0, 0, ""))
    with pytest.raises(BrokenInvariantError, match="but block 1 is free and empty") as raised:
        witness(2).see(BlockAllocated(0, 0, 0, ""))
    assert raised.value.invariant == "order"


# --- the command ----------------------------------------------------------------------------------


def minipaged(*arguments: object, columns: int = 80) -> subprocess.CompletedProcess[str]:
    code = "import sys; sys.modules['torch'] = None; from minipaged.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COLUMNS": str(columns)},
    )


@pytest.mark.parametrize("columns", [80, 120])
def test_the_list_fits_the_terminal(columns: int) -> None:
    result = minipaged("zoo", columns=columns)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= columns
    assert [line.split()[0] for line in lines[1:] if line[:1].strip()][: len(NAMES)] == NAMES


def test_a_story_ends_with_what_caught_the_bug(tmp_path: Path) -> None:
    path = tmp_path / "fault.jsonl"
    result = minipaged("zoo", "stale-hash", "--trace", path, columns=120)
    assert result.returncode == 0, result.stderr
    bug, caught = zoo.find("stale-hash"), zoo.hunt("stale-hash")
    said = " ".join(result.stdout.split())
    for words in (bug.title, bug.story, bug.source, bug.place, bug.shows, caught.message):
        assert " ".join(words.split()) in said
    assert f"operation {caught.step} of a random load (seed 0): {caught.operation}" in said
    assert f"{caught.invariant}: {zoo.INVARIANTS[caught.invariant]}" in said
    shown = minipaged("watch", "--replay", path)
    assert shown.returncode == 0, shown.stderr
    assert caught.message in shown.stdout


def test_all_are_hunted_in_one_table() -> None:
    result = minipaged("zoo", "--all", columns=120)
    assert result.returncode == 0, result.stderr
    assert f"{len(NAMES)} of {len(NAMES)} caught within 200 random operations" in result.stdout
    assert "the right code breaks no invariant" in " ".join(result.stdout.split())
    assert max(map(len, result.stdout.splitlines())) <= 120


def test_json_is_one_document() -> None:
    listed = json.loads(minipaged("zoo", "--json").stdout)
    assert [row["name"] for row in listed] == NAMES
    told = json.loads(minipaged("zoo", "lost-token", "--seed", 2, "--json").stdout)
    caught = zoo.hunt("lost-token", seed=2)
    assert told["hunt"] == {
        "seed": 2,
        "step": caught.step,
        "operation": caught.operation,
        "invariant": caught.invariant,
        "message": caught.message,
    }
    hunted = json.loads(minipaged("zoo", "--all", "--json").stdout)
    assert [row["name"] for row in hunted] == NAMES
    assert all(row["hunt"]["invariant"] in zoo.INVARIANTS for row in hunted)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["doublefree"], "did you mean double-free"),
        (["double-free", "--all"], "not both"),
        (["--trace", "fault.jsonl"], "--trace needs the name of a bug"),
        (["lost-token", "--trace", "/no/such/folder/f.jsonl"], "can't be written"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(arguments: list[str], words: str) -> None:
    result = minipaged("zoo", *arguments)
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("minipaged: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr


# --- the page -------------------------------------------------------------------------------------


def table() -> str:
    def row(bug: zoo.Bug) -> str:
        engine = bug.source.split("/")[4]
        place = bug.source.rsplit("/", 1)[1]
        link = f"[{engine} {place}]({bug.source})"
        return f"| `{bug.name}` | {bug.title} | {link} | `{bug.place}` | {bug.caught_by} |"

    head = "| name | what is wrong | reported | in place of | caught by |\n|---|---|---|---|---|"
    return "\n".join([head, *map(row, zoo.BUGS)])


def test_the_page_has_the_table_of_the_code() -> None:
    """UPDATE_GOLDEN=1 writes it anew."""
    page = DOCS.read_text(encoding="utf-8")
    begin, end = page.index("| name |"), page.index("\n\n", page.index("| name |"))
    if os.environ.get("UPDATE_GOLDEN"):
        page = page[:begin] + table() + page[end:]
        DOCS.write_text(page, encoding="utf-8")
    assert page[begin:].startswith(table() + "\n\n")
    for name, rule in zoo.INVARIANTS.items():
        assert f"- **{name}**: {rule}." in page


@pytest.mark.parametrize("move", [(-1, 0), (0, -1), (2, 0), (0, 2)])
def test_a_block_outside_the_pool_is_neither_copied_nor_written(move: tuple[int, int]) -> None:
    kv = CheckedKV(num_blocks=2, block_size=2, num_swap_blocks=2)
    kv.write([0, 1], [11, 12], start=0, before=None)
    before = kv.slots.copy(), kv.swap_slots.copy()
    for copy in (kv.copy, kv.swap_out, kv.swap_in):
        with pytest.raises(IntegrityError, match=f"block {max(move) or -1} is not in a pool of 2"):
            copy([move])
        assert (kv.slots, kv.swap_slots) == before
