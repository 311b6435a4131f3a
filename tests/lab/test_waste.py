"""Waste by kind, against examples that can be counted by hand and against a slow, obvious twin.

Planted and caught while this was written: a copy that forgets the tokens it takes along, a shared
block that counts twice, a release that looks at the wrong entry, a swapped sequence whose tokens
are lost, internal slots that begin one sample late, rounding that is counted as reserved.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.errors import TraceError
from minipaged.lab.waste import Occupancy, Waste, WasteMeter, measure, measure_file, occupancy
from minipaged.memory import events as ev
from minipaged.memory.contiguous import ContiguousManager
from minipaged.memory.kv_cache_manager import KVCacheManager
from minipaged.memory.replay import Replay
from minipaged.memory.reservation import ReserveMax, ReserveOracle, ReservePow2
from minipaged.memory.trace import Trace, TraceHeader, TraceStep

GOLDEN = Path(__file__).parents[1] / "golden"
TRACES = sorted(GOLDEN.glob("*.jsonl"))


# --- a slow twin: what became of each slot is looked up at the end


class Holding:
    """A block from the moment somebody takes it to the moment nobody has it any more."""

    def __init__(self, num_asked: int) -> None:
        self.num_asked = num_asked  # slots that somebody asked for; rounding is the rest
        self.filled = 0


def twin(header: TraceHeader, steps: list[TraceStep]) -> Iterator[Waste]:
    size = header.block_size
    state = Replay(header.num_blocks, size, header.num_swap_blocks)
    held: dict[int, Holding] = {}
    looks = []
    for step in steps:
        writes = [n for n, e in enumerate(step.events) if e.kind in ("prefill", "write")]
        moment = writes[-1] if writes else len(step.events) - 1
        if not step.events:
            looks.append(look(state, held))
        for number, event in enumerate(step.events):
            state.apply(event)
            slab = event if isinstance(event, ev.SlabReserved) else None
            for block, count in enumerate(state.ref_counts):
                if count == 0:
                    held.pop(block, None)
                    continue
                if block not in held:
                    before = (block - slab.first_block) * size if slab else 0
                    asked = slab.num_tokens - before if slab else size
                    held[block] = Holding(min(max(asked, 0), size))
                held[block].filled = len(state.contents[block])
            if number == moment:
                looks.append(look(state, held))
    for seen, num_free, num_saved in looks:
        tokens = sum(filled for _, filled in seen)
        reserved = sum(holding.filled - filled for holding, filled in seen)
        internal = sum(holding.num_asked - holding.filled for holding, _ in seen)
        rounding = sum(size - holding.num_asked for holding, _ in seen)
        pool = header.num_blocks * size
        yield Waste(pool, tokens, reserved, internal, rounding, num_free * size, num_saved * size)


def look(state: Replay, held: dict[int, Holding]) -> tuple[list[tuple[Holding, int]], int, int]:
    snapshot = state.snapshot()
    seen = [(holding, holding.filled) for holding in held.values()]
    return seen, snapshot.num_free, snapshot.num_blocks_saved


def assert_like_the_twin(trace: Trace) -> None:
    series = measure(trace.header, trace.steps)
    wanted = list(twin(trace.header, trace.steps))
    assert [series.at(number) for number in range(len(series))] == wanted
    for waste in wanted:
        assert waste.tokens + waste.reserved + waste.internal + waste.external == waste.pool


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_waste_of_every_golden_trace_is_what_the_twin_finds(path):
    trace = Trace.load(path)
    assert_like_the_twin(trace)
    assert measure_file(path) == measure(trace.header, trace.steps)


def test_the_golden_traces_have_every_kind_of_slot():
    averages = [measure_file(path).average() for path in TRACES]
    for kind in ("tokens", "reserved", "internal", "free", "shared"):
        assert any(getattr(waste, kind) for waste in averages), kind


POLICIES = (ReserveMax(32), ReservePow2(32), ReserveOracle())


@st.composite
def slab_runs(draw: st.DrawFn) -> Trace:
    block_size, policy = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from(POLICIES))
    trace = Trace(TraceHeader(block_size, 100, allocator=policy.name))
    manager = ContiguousManager(100, block_size, policy, notify=trace.observe)
    dice, left = Random(draw(st.integers(0, 999))), {}
    for seq in range(draw(st.integers(1, 8))):
        num_prompt, num_new = dice.randint(1, 12), dice.randint(1, 12)
        trace.observe(ev.Requested(seq, "", num_prompt))
        manager.announce([seq], num_prompt, num_new)
        prompt = list(range(num_prompt))
        while manager.can_allocate(prompt).name != "OK":
            step(trace, manager, left, dice)
        manager.allocate(seq, prompt)
        manager.commit([(seq, prompt)])
        left[seq] = dice.randint(0, num_new - 1)  # some end earlier than was announced
        step(trace, manager, left, dice)
    for _ in range(dice.randint(0, 20)):  # and some runs are cut off
        step(trace, manager, left, dice)
    return trace


def step(trace: Trace, manager: ContiguousManager, left: dict[int, int], dice: Random) -> None:
    going = [seq for seq in left if left[seq] and dice.random() < 0.8]
    if going:
        manager.commit([(seq, [7]) for seq in going])
    for seq in going:
        left[seq] -= 1
    for seq in [seq for seq in left if not left[seq]]:
        manager.free(seq)
        del left[seq]
    trace.end_step(0, len(going))


@given(slab_runs())
def test_waste_of_slabs_is_what_the_twin_finds(trace):
    assert_like_the_twin(trace)


# --- counted by hand


def test_a_short_text_in_a_long_slab_leaves_87_5_percent_untouched():
    meter = WasteMeter(4096, 1)
    manager = ContiguousManager(4096, 1, ReserveMax(4096), notify=meter.observe)
    manager.allocate(0, list(range(512)))
    manager.commit([(0, list(range(512)))])
    meter.sample()
    manager.free(0)
    waste = meter.series().at(0)
    assert waste == Waste(4096, 512, 0, 3584, 0, 0, 0)
    assert waste.share("internal") == waste.unused_share == 0.875


def slab_of_seven(policy: object) -> tuple[Waste, Waste]:
    """Three prompt tokens, and five new ones: behind the prompt, and in the last step."""
    meter = WasteMeter(32, 1)
    manager = ContiguousManager(32, 1, policy, notify=meter.observe)  # type: ignore[arg-type]
    manager.announce([0], 3, 5)
    manager.allocate(0, [1, 2, 3])
    manager.commit([(0, [1, 2, 3])])
    meter.sample()
    for _ in range(4):
        manager.commit([(0, [4])])
    meter.sample()
    manager.free(0)
    assert meter.now() == Occupancy(32, 0, 0, 0, 32, 0)
    series = meter.series()
    return series.at(0), series.at(1)


def test_the_three_policies_on_one_request():
    assert slab_of_seven(ReserveMax(32)) == (
        Waste(32, 3, 4, 25, 0, 0, 0),
        Waste(32, 7, 0, 25, 0, 0, 0),
    )
    assert slab_of_seven(ReservePow2(32)) == (  # 3 + 8 tokens, in a slab of 16
        Waste(32, 3, 4, 4, 5, 16, 0),
        Waste(32, 7, 0, 4, 5, 16, 0),
    )
    assert slab_of_seven(ReserveOracle()) == (  # 7 tokens, in a slab of 8
        Waste(32, 3, 4, 0, 1, 24, 0),
        Waste(32, 7, 0, 0, 1, 24, 0),
    )


def test_paging_wastes_the_end_of_the_last_block():
    meter = WasteMeter(8, 16)
    manager = KVCacheManager(8, 16, notify=meter.observe)
    prompt = list(range(30))
    manager.allocate(0, prompt)
    manager.commit([(0, prompt)])
    meter.sample()
    for token in range(5):
        manager.append_slots(0)
        manager.commit([(0, [token])])
    meter.sample()
    manager.free(0)
    meter.sample()
    series = meter.series()
    assert series.at(0) == Waste(128, 30, 2, 0, 0, 96, 0)  # its two empty slots are filled later
    assert series.at(1) == Waste(128, 35, 0, 13, 0, 80, 0)
    assert series.at(2) == Waste(128, 0, 0, 0, 0, 128, 0)  # cached blocks are free
    assert series.average() == Waste(128, 65 / 3, 2 / 3, 13 / 3, 0, 304 / 3, 0)
    assert series.average(1, 2) == series.at(1)


def test_shared_blocks_count_once_and_what_they_save_comes_on_top():
    meter = WasteMeter(16, 4)
    manager = KVCacheManager(16, 4, notify=meter.observe)
    manager.allocate(0, list(range(6)))
    manager.commit([(0, list(range(6)))])
    manager.fork(0, 1)
    manager.fork(0, 2)
    assert meter.sample() == Occupancy(64, 6, 2, 0, 56, 16)
    for seq in (0, 1, 2):  # two copies; the last one to write keeps the block
        manager.append_slots(seq)
    assert meter.sample() == Occupancy(64, 10, 6, 0, 48, 8)
    manager.commit([(seq, [seq]) for seq in (0, 1, 2)])
    assert meter.sample() == Occupancy(64, 13, 3, 0, 48, 8)
    for seq in (2, 0, 1):
        manager.free(seq)
    series = meter.series()
    assert series.at(0) == Waste(64, 6, 1, 1, 0, 56, 16)
    assert series.at(2) == Waste(64, 13, 0, 3, 0, 48, 8)


def test_a_live_view_cannot_tell_reserved_from_internal():
    meter = WasteMeter(16, 4)
    paged = KVCacheManager(16, 4, notify=meter.observe)
    paged.allocate(0, list(range(6)))
    paged.commit([(0, list(range(6)))])
    paged.fork(0, 1)
    assert occupancy(paged.snapshot()) == meter.now() == Occupancy(64, 6, 2, 0, 56, 8)
    meter = WasteMeter(32, 1)
    slabs = ContiguousManager(32, 1, ReservePow2(32), notify=meter.observe)
    slabs.announce([0], 3, 5)
    slabs.allocate(0, [1, 2, 3])
    slabs.commit([(0, [1, 2, 3])])
    asked = {0: slabs.num_reserved(0)}
    assert occupancy(slabs.snapshot(), asked) == meter.now() == Occupancy(32, 3, 8, 5, 16, 0)


def test_what_is_still_held_at_the_end_counts_as_if_it_ended_there():
    meter = WasteMeter(4, 4)
    meter.observe(ev.BlockAllocated(0, 0, 1, "prompt"))
    meter.observe(ev.Prefilled(0, 0, (7, 8), ("", "")))
    meter.sample()
    assert meter.series().at(0).internal == 2
    meter.observe(ev.Written((0,), (9,), ("",)))
    assert meter.series().at(0).internal == 1  # and looking changes nothing
    meter.observe(ev.Released(0, (1,), "finished"))
    assert meter.series().at(0) == Waste(16, 2, 1, 1, 0, 12, 0)


def test_every_so_many_steps_is_enough_for_an_average():
    trace = Trace.load(GOLDEN / "memory.jsonl")
    all_of_them = measure(trace.header, trace.steps)
    some = measure(trace.header, trace.steps, every=3)
    assert len(some) == len(trace.steps) // 3 > 1
    assert [some.at(n) for n in range(len(some))] == [
        all_of_them.at(3 * n + 2) for n in range(len(some))
    ]


def test_the_average_of_nothing_is_an_error():
    series = WasteMeter(4, 4).series()
    assert len(series) == 0
    with pytest.raises(ValueError, match="no sample from 0 to None in 0"):
        series.average()


def test_a_file_that_is_no_trace_is_told(tmp_path):
    (tmp_path / "x.jsonl").write_text("{}\n", encoding="utf-8")
    with pytest.raises(TraceError, match="not a trace"):
        measure_file(tmp_path / "x.jsonl")


def test_foreign_events_change_nothing():
    meter = WasteMeter(4, 4)
    meter.observe(ev.Sampled((0,), (1,), ("",), (0,)))
    meter.observe(ev.Finished(0, "stop"))
    assert meter.now() == Occupancy(16, 0, 0, 0, 16, 0)
