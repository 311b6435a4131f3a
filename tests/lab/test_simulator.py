"""The simulator: the real scheduler and manager, steps that can be worked out, traces that hold.

Bugs that were planted, each to see a test fail: what is held in a static batch goes on computing;
beams are not forked; a static batch lets others in, or ends with its first; requests come before
their time, or all at once; idle time does not pass; two texts have the same made-up tokens; every
sample draws the tokens that are named; a preemption counts once a sample; a token too few is drawn;
the first token is noted again with each.
"""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from minipaged.engine.config import EngineConfig
from minipaged.engine.scheduler_output import SchedulerOutput
from minipaged.errors import ConfigError, WorkloadError
from minipaged.lab.results import SimulationResult, percentile
from minipaged.lab.simulator import simulate
from minipaged.lab.waste import WasteMeter
from minipaged.lab.workloads import (
    SHAREGPT,
    LabRequest,
    LengthStatistics,
    chat,
    lengths,
    requests,
    with_beams,
    with_system_prompt,
)
from minipaged.memory.contiguous import ContiguousManager
from minipaged.memory.integrity import check_manager, check_trace
from minipaged.memory.kv_cache_manager import KVCacheManager
from minipaged.memory.manager import MemoryManager
from minipaged.memory.replay import Replay
from minipaged.memory.reservation import (
    ReservationPolicy,
    ReserveMax,
    ReserveOracle,
    ReservePow2,
)
from minipaged.memory.trace import Trace

TREE = ((0, 0, 0), (0, 0, 1), (2, 1, 0), (1, 1, 1), *((0, 1, 2), (2, 0, 0)) * 20)
SHORT = LengthStatistics(20, 20)


def run(
    workload: list[LabRequest], manager: MemoryManager | None = None, **options: Any
) -> SimulationResult:
    settings = {"block_size": 4, "max_num_seqs": 32, "max_num_batched_tokens": 64}
    chosen = {name: options.pop(name) for name in list(options) if hasattr(EngineConfig, name)}
    config = EngineConfig(**{**settings, **chosen})
    return simulate(workload, config, manager or KVCacheManager(60, 4), **options)


def times(result: SimulationResult) -> list[tuple[float, float, float]]:
    return [(r.arrival, r.first_token, r.finish) for r in result.requests]


# --- steps that can be worked out


def test_a_request_takes_a_step_for_its_prompt_and_one_for_each_further_token() -> None:
    result = run([LabRequest(0.0, num_prompt_tokens=6, num_new_tokens=3)])
    assert times(result) == [(0.0, 1.0, 3.0)]
    assert list(result.timeline.num_tokens) == [6, 1, 1]
    assert list(result.timeline.num_used_blocks) == [2, 2, 2]


def test_requests_share_steps_and_leave_when_they_are_done() -> None:
    result = run([LabRequest(0.0, 6, 1), LabRequest(0.0, 5, 3), LabRequest(0.0, 5, 2)])
    assert times(result) == [(0.0, 1.0, 1.0), (0.0, 1.0, 2.0), (0.0, 1.0, 3.0)]
    assert list(result.timeline.num_running) == [3, 2, 1]
    assert result.mean_batch_size == 2


def test_nobody_comes_before_their_time_and_idle_time_passes() -> None:
    result = run([LabRequest(0.5, 6, 2), LabRequest(2.0, 6, 2), LabRequest(100.0, 6, 1)])
    assert times(result) == [(0.5, 1.5, 2.5), (2.0, 3.5, 4.5), (100.0, 101.0, 101.0)]
    assert [request.ttft for request in result.requests] == [1.0, 1.5, 1.0]
    assert [request.tpot for request in result.requests] == [1.0, 1.0, 0.0]
    assert result.requests_per_second == 3 / 101
    assert result.new_tokens_per_second == 5 / 101


def test_a_step_takes_as_long_as_the_cost_model_says() -> None:
    class TokensTenfold:
        def seconds(self, step: SchedulerOutput) -> float:
            return 10.0 * step.num_tokens

    result = run([LabRequest(0.0, 6, 3)], cost=TokensTenfold())
    assert times(result) == [(0.0, 60.0, 80.0)]
    assert result.mean_normalized_latency == pytest.approx(80 / 3)


def test_who_can_never_run_is_refused_and_the_others_run() -> None:
    result = run([LabRequest(0.0, 500, 9), LabRequest(0.0, 6, 1), LabRequest(0.0, 6, 1, width=99)])
    assert len(result.requests) == 1
    assert [reason.split(": ")[0] for reason in result.refused] == ["request 0", "request 2"]
    assert "60" in result.refused[0]
    assert run([LabRequest(3.0, 500, 9)]).refused


def test_without_chunked_prefill_a_text_must_fit_into_a_step() -> None:
    (refused,) = run([LabRequest(0.0, 60, 9)], enable_chunked_prefill=False).refused
    assert "69" in refused
    assert "64" in refused


def test_samples_share_the_prompt_and_part_inside_a_block() -> None:
    result = run([LabRequest(0.0, 6, 3, width=3)])
    assert list(result.timeline.num_tokens) == [6, 3, 3]
    assert list(result.timeline.num_used_blocks) == [2, 4, 4]
    assert result.num_copied_blocks == 2  # the last of three needs no copy


def test_beams_part_and_end_as_they_did_in_the_recorded_search() -> None:
    events: list[Any] = []
    tree = ((0, 0), (1, 1), (0, 1))
    manager = KVCacheManager(60, 4, notify=events.append)
    run([LabRequest(0.0, 4, 3, 2, beam_parents=tree)], manager, observe=events.append)
    forks = [(e.parent, e.child) for e in events if e.kind == "fork"]
    ends = [(e.seq, e.why) for e in events if e.kind == "finish"]
    assert forks == [(0, 1), (1, 2)]
    assert ends == [(0, "beam"), (1, "length"), (2, "length")]
    assert manager.pool.num_free == 60


def test_a_preempted_request_counts_once_whatever_its_width() -> None:
    workload = [LabRequest(0.0, 8, 40, width=3), LabRequest(0.0, 8, 40, width=3)]
    result = run(workload, KVCacheManager(40, 4))
    assert [request.num_preemptions for request in result.requests] == [0, 1]
    assert result.num_preemptions == 1


# --- the prefix cache finds what is there, and nothing else


def test_a_system_prompt_is_found_and_everything_else_is_new() -> None:
    workload = [LabRequest(10.0 * i, 10, 3) for i in range(3)]
    assert [r.num_cached_tokens for r in run(workload).requests] == [0, 0, 0]
    shared = list(with_system_prompt(workload, num_tokens=10))
    assert [r.num_cached_tokens for r in run(shared).requests] == [0, 8, 8]


def test_a_chat_finds_its_history_with_the_answers() -> None:
    workload = list(chat(1, 4, statistics=LengthStatistics(12, 12), think_seconds=1e4, seed=3))
    done = run(workload, KVCacheManager(200, 4)).requests
    assert len(done) == len(workload) > 2
    for before, turn in pairwise(done):
        known = before.num_prompt_tokens + before.num_new_tokens - 1
        assert turn.num_cached_tokens == known // 4 * 4


def test_a_cache_that_is_switched_off_finds_nothing() -> None:
    shared = list(with_system_prompt([LabRequest(10.0 * i, 10, 3) for i in range(3)], 10))
    manager = KVCacheManager(60, 4, enable_prefix_caching=False)
    assert [r.num_cached_tokens for r in run(shared, manager).requests] == [0, 0, 0]


def test_every_sample_draws_tokens_that_nobody_else_has_but_the_first_those_that_are_named() -> (
    None
):
    events: list[Any] = []
    named = LabRequest(0.0, 5, 3, width=2, token_ids=range(100, 108))
    run([named, LabRequest(0.0, 5, 3, width=2)], observe=events.append)
    drawn: dict[int, list[int]] = {}
    for event in events:
        if event.kind == "sample":
            for seq, token in zip(event.seqs, event.tokens, strict=True):
                drawn.setdefault(seq, []).append(token)
    assert drawn[0] == [105, 106, 107]
    everything = [token for seq in range(4) for token in drawn[seq]]
    assert len(set(everything)) == len(everything) == 12


# --- static batching


def test_a_static_batch_waits_for_its_longest_and_keeps_others_out() -> None:
    workload = [LabRequest(0.0, 6, 1), LabRequest(0.0, 6, 4), LabRequest(1.5, 6, 1)]
    assert times(run(workload)) == [(0.0, 1.0, 1.0), (1.5, 3.0, 3.0), (0.0, 1.0, 4.0)]
    static = run(workload, batching="static")
    assert times(static) == [(0.0, 1.0, 4.0), (0.0, 1.0, 4.0), (1.5, 5.0, 5.0)]
    assert list(static.timeline.num_running) == [2, 2, 2, 2, 1]
    assert list(static.timeline.num_tokens) == [12, 1, 1, 1, 6]  # nothing for who is done
    assert list(static.timeline.num_waiting) == [0, 0, 1, 1, 0]


def test_static_batching_survives_a_pool_that_its_batch_outgrows() -> None:
    result = run(list(requests(lengths(SHORT, 40, max_len=80), rate=0.5)), batching="static")
    assert len(result.requests) == 40
    assert result.num_preemptions > 0


# --- any manager, any workload: everything comes to its end, and the trace holds

WORKLOADS = {
    "lengths": list(requests(lengths(SHORT, 25, max_len=80))),
    "arrivals": list(requests(lengths(SHORT, 25, max_len=80), rate=0.3)),
    "samples": list(requests(lengths(SHORT, 25, max_len=80), width=3)),
    "beams": list(with_beams(requests(lengths(SHORT, 25, max_len=80)), [TREE])),
    "system prompt": list(with_system_prompt(requests(lengths(SHORT, 25, max_len=80)), 30)),
    "chat": list(chat(8, 3, statistics=LengthStatistics(10, 10), rate=0.1, max_len=100)),
}


def simulate_with_trace(
    workload: list[LabRequest], manager: Any, trace: Trace, **options: Any
) -> SimulationResult:
    replay = Replay(60, 4, trace.header.num_swap_blocks)

    def end_step(moment: Any) -> None:
        step = trace.end_step(moment.num_prefill_tokens, moment.num_decode_tokens)
        for event in step.events:
            replay.apply(event)
        assert replay.snapshot() == manager.snapshot()

    return run(workload, manager, observe=trace.observe, after_step=end_step, **options)


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_a_paged_run_ends_with_an_empty_pool_and_a_trace_that_holds(
    name: str, preemption: str, tmp_path: Path
) -> None:
    swap = 60 if preemption == "swap" else 0
    config = EngineConfig(block_size=4, num_blocks=60, num_swap_blocks=swap)
    trace = Trace(config.trace_header({}, 0))
    manager = KVCacheManager(60, 4, num_swap_blocks=swap, notify=trace.observe)
    options = {"num_swap_blocks": swap, "preemption": preemption}
    result = simulate_with_trace(WORKLOADS[name], manager, trace, **options)
    assert len(result.requests) == len(WORKLOADS[name])
    assert not result.refused
    assert manager.pool.num_free == 60
    check_manager(manager)
    trace.save(tmp_path / "run.jsonl")
    assert check_trace(tmp_path / "run.jsonl")[0] == result.num_steps


@pytest.mark.parametrize("batching", ["continuous", "static"])
@pytest.mark.parametrize(
    "policy", [ReserveMax(80), ReservePow2(80), ReserveOracle()], ids=lambda policy: policy.name
)
@pytest.mark.parametrize("name", ["lengths", "arrivals"])
def test_a_contiguous_run_ends_with_an_empty_pool_and_a_trace_that_holds(
    name: str, policy: ReservationPolicy, batching: str
) -> None:
    trace = Trace(EngineConfig(block_size=4, num_blocks=60).trace_header({}, 0))
    manager = ContiguousManager(60, 4, policy, notify=trace.observe)
    result = simulate_with_trace(WORKLOADS[name], manager, trace, batching=batching)
    assert len(result.requests) + len(result.refused) == 25
    assert len(result.requests) > 20
    assert result.num_preemptions == 0
    assert manager.pool.num_free == 60


def test_samples_are_taken_while_everybody_still_has_theirs() -> None:
    meter = WasteMeter(num_blocks=60, block_size=4)
    manager = KVCacheManager(60, 4, notify=meter.observe)
    run([LabRequest(0.0, 6, 3)], manager, observe=meter.observe, sample=meter.sample)
    series = meter.series()
    assert [series.at(step).tokens for step in range(3)] == [6, 7, 8]  # the last is never fed
    assert [series.at(step).reserved for step in range(3)] == [2, 1, 0]


def test_the_same_workload_gives_the_same_result() -> None:
    assert run(WORKLOADS["arrivals"]) == run(WORKLOADS["arrivals"])


# --- limits


def test_a_workload_is_taken_as_it_is_needed() -> None:
    """Of an endless one, no more wait inside than could start at once."""
    taken = 0
    most_ahead = 0

    def endless() -> Any:
        nonlocal taken, most_ahead
        while taken < 500:
            taken += 1
            yield LabRequest(0.0, 20, 5)

    def look(moment: Any) -> None:
        nonlocal most_ahead
        most_ahead = max(most_ahead, len(moment.scheduler.waiting))

    result = run(endless(), after_step=look)  # type: ignore[arg-type]
    assert len(result.requests) == 500
    assert most_ahead <= 32


def test_a_workload_must_be_sorted() -> None:
    with pytest.raises(WorkloadError, match="request 1 arrives at 1 s, the one before it at 2"):
        run([LabRequest(2.0, 6, 1), LabRequest(1.0, 6, 1)])


def test_a_way_of_batching_must_be_known() -> None:
    with pytest.raises(ConfigError, match="continuous or static, not 'dynamic'"):
        run([], batching="dynamic")


def test_nothing_to_do_is_no_step_and_no_mean() -> None:
    result = run([])
    assert (result.num_steps, result.seconds, result.mean_batch_size) == (0, 0.0, 0.0)
    assert (result.requests_per_second, result.mean_ttft) == (0.0, 0.0)
    assert percentile([], 99) == 0.0


def sharegpt(num_requests: int) -> tuple[SimulationResult, float]:
    config = EngineConfig(max_num_seqs=256, max_num_batched_tokens=2560)
    manager = KVCacheManager(15_728 // 16, 16, enable_prefix_caching=False)
    start = time.process_time()
    result = simulate(requests(lengths(SHAREGPT, num_requests)), config, manager)
    return result, time.process_time() - start


def test_sharegpt_requests_fill_the_memory_of_the_paper_in_no_time() -> None:
    result, seconds = sharegpt(400)
    assert len(result.requests) == 400
    assert 24 < result.mean_batch_size < 36
    assert seconds < 10  # about 1 on a machine that has time


@pytest.mark.slow
def test_ten_thousand_sharegpt_requests_take_less_than_a_minute() -> None:
    result, seconds = sharegpt(10_000)
    assert len(result.requests) == 10_000
    assert seconds < 60
