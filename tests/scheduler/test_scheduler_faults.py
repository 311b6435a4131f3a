"""Rules that some real engine once broke, held against ours; each test's name is a rule."""

from __future__ import annotations

from typing import Any

import pytest

from minipaged.engine.outputs import BeamSearchOutput
from minipaged.engine.sampling_params import BeamSearchParams, SamplingParams
from minipaged.engine.scheduler_output import SchedulerOutput
from minipaged.errors import ModelError, RequestRefusedError
from minipaged.memory.block_table import blocks_for
from minipaged.memory.events import BlockEvicted, Finished, Preempted, SwappedOut

from .scripted_model import (
    Interruption,
    Letters,
    ScriptedEngine,
    seed_of,
    solo_beams,
    solo_text,
    texts,
)

B = 4
PROMPTS = ["abcdef", "abcdxyz", "q"]
SAMPLES: list[Any] = [
    SamplingParams(n=3, max_tokens=7, ignore_eos=True, seed=5),
    SamplingParams(max_tokens=9, ignore_eos=True),
    SamplingParams(n=2, max_tokens=5, temperature=0, ignore_eos=True),
]
BEAMS: list[Any] = [
    BeamSearchParams(beam_width=3, max_tokens=6, ignore_eos=True),
    SAMPLES[1],
    BeamSearchParams(beam_width=2, max_tokens=5),
]
KINDS = pytest.mark.parametrize("kind", [SAMPLES, BEAMS], ids=["samples", "beams"])
WAYS = pytest.mark.parametrize("how", ["recompute", "swap"])


def start(kind: list[Any], how: str = "recompute", **options: Any) -> ScriptedEngine:
    """Queue three requests that together need more than there is."""
    swap = {"preemption": "swap", "num_swap_blocks": 12} if how == "swap" else {}
    engine = ScriptedEngine(**{"num_blocks": 11, "max_num_seqs": 6, **swap, **options})
    for prompt, params in zip(PROMPTS, kind, strict=True):
        engine.add_request(Letters().encode(prompt), params)
    return engine


def expected(engine: ScriptedEngine, name: str, kind: list[Any]) -> Any:
    """Give what a request writes when it is alone."""
    prompt, params = Letters().encode(PROMPTS[int(name)]), kind[int(name)]
    if isinstance(params, BeamSearchParams):
        return solo_beams(prompt, params)
    seed = seed_of(engine, engine.request(name).request, params)
    return [solo_text(prompt, params, seed + index) for index in range(params.n)]


def content(output: Any) -> Any:
    return output.sequences if isinstance(output, BeamSearchOutput) else texts(output)


def run(engine: ScriptedEngine, kind: list[Any], most: int = 200) -> None:
    """Run to the end in a bounded number of steps; everybody writes what they write alone."""
    wanted = {name: expected(engine, name, kind) for name in list(engine._requests)}
    for _ in range(most):
        assert engine.has_unfinished_requests == bool(wanted)
        for live in engine.step():
            if not live.request.live:
                assert content(live.output()) == wanted.pop(live.request.request_id)
        engine.check()
        engine.check_contents()
        if not wanted:
            break
    engine.finish(most=0)


def num_steps(kind: list[Any], how: str, **options: Any) -> int:
    engine = start(kind, how, **options)
    run(engine, kind)
    return len(engine.trace.steps)


class TestBlocksAndReferenceCounts:
    @KINDS
    @WAYS
    @pytest.mark.parametrize("planned", [False, True], ids=["between steps", "in a planned step"])
    @pytest.mark.parametrize("victim", ["0", "1", "2"])
    def test_aborting_at_any_moment_returns_every_block(self, kind, how, planned, victim):
        for moment in range(num_steps(kind, how)):
            engine = start(kind, how)
            for _ in range(moment):
                engine.steps(1)
            if planned:
                engine.schedule()
            if victim not in engine._requests:
                break
            seqs = {s.seq_id for s in engine.request(victim).request.live}
            engine.abort(victim)
            engine.check()
            memory = engine.manager.snapshot()
            assert not seqs & (memory.tables.keys() | memory.swap_tables.keys())
            run(engine, kind)
        assert moment > 5

    @KINDS
    @WAYS
    def test_aborting_all_at_any_moment_leaves_nothing(self, kind, how):
        for moment in range(num_steps(kind, how)):
            engine = start(kind, how)
            engine.steps(moment)
            engine.schedule()
            engine.abort_all()
            engine.finish(most=0)
            assert engine.step() == []

    def test_samples_that_never_began_do_not_end_in_the_trace(self):
        engine = ScriptedEngine(16, max_num_seqs=4)
        engine.add("abc", n=3)
        engine.add("def", n=3)
        engine.steps(1)
        engine.abort_all()
        ended = [event.seq for event in engine.trace.events if isinstance(event, Finished)]
        assert ended == [0, 1, 2, 3]

    @WAYS
    def test_samples_that_were_preempted_do_end_in_the_trace(self, how):
        engine = start(SAMPLES, how)
        engine.steps(2)
        engine.scheduler.preempt(engine.request("0").request, "by hand")
        engine.abort("0")
        assert {e.seq for e in engine.trace.events if isinstance(e, Finished)} == {0, 1, 2}
        run(engine, SAMPLES)


class TestBlockBoundaries:
    @pytest.mark.parametrize("length", [1, B - 1, B, B + 1, 2 * B])
    def test_the_block_exists_when_a_token_is_written_and_not_before(self, length):
        engine = ScriptedEngine(8)
        request = engine.add([1] * length, max_tokens=2 * B + 1)
        for computed in range(length, length + 2 * B):
            engine.schedule()
            assert len(engine.table(request)) == blocks_for(computed, B)
            engine.steps(1)
            assert request.live[0].num_tokens == computed + 1  # sampled, but not written
            assert len(engine.table(request)) == blocks_for(computed, B)
        engine.finish()

    @pytest.mark.parametrize("length", [1, B - 1, B, B + 1, 2 * B])
    @pytest.mark.parametrize("n", [1, 3])
    def test_no_last_block_holds_no_token(self, length, n):
        engine = ScriptedEngine(24)
        engine.add([1] * length, n=n, max_tokens=2 * B + 1)
        while engine.has_unfinished_requests:
            engine.steps(1)
            memory = engine.manager.snapshot()
            for seq, table in memory.tables.items():
                assert (len(table) - 1) * B < memory.num_tokens[seq] <= len(table) * B

    def test_a_step_adds_several_blocks_to_a_sequence(self):
        engine = ScriptedEngine(24, block_size=2, enable_prefix_caching=False)
        request = engine.add("abc", n=2, max_tokens=12)
        engine.steps(9)
        engine.scheduler.preempt(request, "by hand")
        engine.steps(1)
        assert [len(table) for table in engine.tables(request)] == [2, 2]
        assert engine.chunks() == [(0, 3, 11), (1, 3, 11)]
        assert [len(table) for table in engine.tables(request)] == [6, 6]
        assert len(engine.schedule().copies) == 1
        engine.finish()


class TestPrefixCache:
    def test_a_full_hit_leaves_a_token_to_compute(self):
        engine = ScriptedEngine(8)
        engine.add("abcdefgh", max_tokens=1)
        engine.finish()
        request = engine.add("abcdefgh", max_tokens=1)
        assert engine.chunks() == [(1, 4, 8)]
        assert request.num_cached_tokens == 4

    def test_what_was_scheduled_but_not_computed_is_not_found(self):
        engine = ScriptedEngine(8)
        engine.add("abcdefgh")
        engine.add("xyz", max_tokens=2)
        engine.schedule()
        engine.abort("0")
        engine.add("abcdefgh", max_tokens=2)
        engine.steps(1)
        assert engine.chunks() == [(1, 3, 4), (2, 0, 8)]

    def test_equal_blocks_behind_different_prefixes_are_different(self):
        engine = ScriptedEngine(8)
        engine.add("abcdefghi", max_tokens=2)
        engine.steps(1)
        engine.add("xyz!efghi", max_tokens=2)
        assert engine.chunks() == [(0, 9, 10), (1, 0, 9)]

    def test_a_prefix_shorter_than_a_block_never_hits(self):
        engine = ScriptedEngine(8)
        engine.add("abc", max_tokens=1)
        engine.finish()
        engine.add("abc", max_tokens=1)
        assert engine.chunks() == [(1, 0, 3)]

    def test_two_equal_prompts_in_one_step_keep_a_private_duplicate(self):
        engine = ScriptedEngine(16)
        requests = [engine.add("abcdefghi", max_tokens=3) for _ in range(2)]
        engine.steps(1)
        assert engine.table(requests[0]) == [0, 1, 2]
        assert engine.table(requests[1]) == [3, 4, 5]
        assert list(engine.manager.pool.hash_of) == [0, 1]
        third = engine.add("abcdefghz", max_tokens=3)
        engine.schedule()
        assert engine.table(third)[:2] == [0, 1]
        engine.finish()

    def test_eviction_takes_the_oldest_and_of_one_text_the_tail_first(self):
        engine = ScriptedEngine(5)
        engine.add("abcdefghi", max_tokens=1)
        engine.finish()  # 0 and 1 are cached, 2 is not
        engine.add("jklm", max_tokens=1)
        engine.finish()  # 3 is cached
        assert engine.manager.pool.free_order() == [4, 2, 1, 0, 3]
        engine.add("nopqrstuvwxyz,.;!?", max_tokens=1)
        engine.steps(1)
        evicted = [event.block for event in engine.trace.events if isinstance(event, BlockEvicted)]
        assert evicted == [1, 0, 3]


class TestSchedulingAndPreemption:
    def test_who_can_never_run_is_refused_with_the_numbers_and_blocks_nobody(self):
        engine = start(SAMPLES)
        with pytest.raises(RequestRefusedError, match="needs up to 13 blocks, the pool has 11"):
            engine.add("abcdef", max_tokens=45)
        run(engine, SAMPLES)

    def test_more_samples_than_may_run_are_refused_at_once(self):
        engine = start(SAMPLES)
        with pytest.raises(RequestRefusedError, match="7 sequences asked for, but max_num_seqs"):
            engine.add("a", n=7, max_tokens=1)
        run(engine, SAMPLES)

    @KINDS
    @WAYS
    @pytest.mark.parametrize("victim", ["0", "1", "2"])
    def test_whoever_is_preempted_before_any_step_writes_the_same(self, kind, how, victim):
        times = 0
        for moment in range(1, num_steps(kind, how, num_blocks=40)):
            engine = start(kind, how, num_blocks=40)
            engine.steps(moment)
            if victim in engine._requests:
                times += 1
                engine.scheduler.preempt(engine.request(victim).request, "by hand")
                engine.check()
                run(engine, kind)
        assert times > 3

    @KINDS
    @WAYS
    @pytest.mark.parametrize("cached", [False, True], ids=["cold", "warm"])
    def test_preemption_by_need_changes_no_text(self, kind, how, cached):
        engine = start(kind, how, enable_prefix_caching=cached)
        run(engine, kind)
        preempted = [event.how for event in engine.trace.events if isinstance(event, Preempted)]
        assert set(preempted) == {how}

    @KINDS
    @pytest.mark.parametrize("num_swap_blocks", range(1, 8))
    def test_a_swap_pool_that_runs_out_never_stalls(self, kind, num_swap_blocks):
        engine = start(kind, "swap", num_swap_blocks=num_swap_blocks)
        run(engine, kind)

    def test_a_swap_pool_that_runs_out_falls_back_to_recompute(self):
        engine = start(SAMPLES, "swap", num_swap_blocks=1)
        run(engine, SAMPLES)
        ways = {event.how for event in engine.trace.events if isinstance(event, Preempted)}
        assert ways == {"recompute"}

    @KINDS
    @pytest.mark.parametrize("budget", [6, 7, 9, 16])
    def test_any_budget_gives_the_same_texts(self, kind, budget):
        run(start(kind, max_num_batched_tokens=budget), kind)

    def test_a_prompt_that_was_moved_half_computed_does_not_come_and_go(self):
        """It needs room for the rest as well: with what it had alone it would be pushed out."""
        engine = ScriptedEngine(
            10, max_num_seqs=4, max_num_batched_tokens=8, preemption="swap", num_swap_blocks=9
        )
        engine.add("abcdefgh", max_tokens=25)
        engine.add("ijklmnopqrstuvwxyz", max_tokens=4)
        engine.steps(2)
        engine.scheduler.preempt(engine.request("1").request, "by hand")
        stranger = engine.occupy(3)
        engine.steps(12)
        assert sum(isinstance(event, SwappedOut) for event in engine.trace.events) == 1
        engine.manager.free(stranger)
        engine.finish()


class TestInterruptions:
    PLACES = ("start", "swapped out", "moved", "written", "sample")

    @KINDS
    @WAYS
    @pytest.mark.parametrize("place", PLACES)
    def test_a_step_interrupted_anywhere_runs_again(self, kind, how, place):
        interrupted = 0
        for moment in range(num_steps(kind, how)):
            engine = start(kind, how)
            engine.steps(moment)
            wanted = engine.schedule()
            engine.runner.fail_at = place
            try:
                live = engine.step()
            except Interruption:
                interrupted += 1
                engine.check()
                assert engine.schedule() is wanted
            else:
                assert place == "sample"  # a step without draws: a part of a prompt, or beams
                if any(not one.request.live for one in live):
                    continue
            engine.runner.fail_at = None
            run(engine, kind)
        assert interrupted > 5

    def test_who_is_aborted_in_a_planned_step_takes_nobodys_moves_along(self):
        """Somebody had to make room for it: the swap-out must run, though its cause is gone."""
        engine = ScriptedEngine(6, preemption="swap", num_swap_blocks=4)
        engine.add("abcdefgh", max_tokens=12)
        second = engine.add("ijklmn", max_tokens=8)
        engine.steps(5)
        step = engine.schedule()
        assert [move.target for move in step.swap_outs] == [0, 1, 2]
        engine.abort("0")
        assert engine.schedule() is step
        assert step.chunks == []
        assert engine.step() == []
        assert [event.kind for event in engine.trace.steps[-1].events][-2:] == ["finish", "release"]
        prompt, params = second.prompt_token_ids, SamplingParams(max_tokens=8, ignore_eos=True)
        seed = seed_of(engine, second, params)
        while engine.has_unfinished_requests:
            outputs = [live.output() for live in engine.step()]
        assert texts(outputs[0]) == [solo_text(prompt, params, seed)]

    def test_a_swap_block_that_an_aborted_request_gave_back_takes_the_next_one(self):
        engine = ScriptedEngine(8, preemption="swap", num_swap_blocks=2)
        engine.add("abcdef")
        other = engine.add("ghijk", max_tokens=4)
        engine.steps(1)
        engine.scheduler.preempt(engine.request("0").request, "by hand")
        engine.abort("0")
        engine.scheduler.preempt(other, "by hand")
        assert engine.schedule().swap_outs == [(2, 1), (3, 0)]
        engine.finish()

    def test_copies_of_an_aborted_group_write_into_nobodys_block(self):
        engine = ScriptedEngine(16)
        engine.add("abcdef", n=3)
        other = engine.add("ghijk", max_tokens=4)
        engine.steps(1)
        assert len(engine.schedule().copies) == 2
        engine.abort("0")
        free = engine.manager.pool.free_order()
        assert {move.target for move in engine.schedule().copies} <= set(free)
        engine.steps(1)
        assert engine.table(other) == [2, 3]
        engine.finish()

    def test_when_all_of_a_planned_step_are_aborted_there_is_no_empty_step(self):
        engine = ScriptedEngine(8)
        engine.add("abc")
        engine.schedule()
        engine.abort("0")
        engine.add("def")
        assert engine.chunks() == [(1, 0, 3)]

    @KINDS
    def test_logits_that_are_not_numbers_stop_nobody_else_for_good(self, kind, monkeypatch):
        """The step fails as often as it is run, until the request that spoils it is gone."""
        engine = start(kind, num_blocks=40)
        engine.steps(1)
        poisoned = engine.request("1").request
        sample = engine.runner.sample

        def refuse(logits: Any, rows: Any) -> Any:
            if poisoned.live:
                raise ModelError("the model gave NaN or infinite logits in row 0")
            return sample(logits, rows)

        monkeypatch.setattr(engine.runner, "sample", refuse)
        for _ in range(2):
            with pytest.raises(ModelError, match="NaN"):
                engine.step()
            engine.check()
        engine.abort("1")
        run(engine, kind)

    def test_a_beam_search_that_fails_leaves_the_other_one_where_it_was(self, monkeypatch):
        kind = [BEAMS[0], SAMPLES[1], BEAMS[2]]
        engine = start(kind, num_blocks=40)
        engine.steps(2)
        broken = engine.request("2")
        choose = broken.choose

        def fail_once(logprobs: Any) -> Any:
            monkeypatch.setattr(broken, "choose", choose)
            raise ModelError("the model gave NaN or infinite logits")

        monkeypatch.setattr(broken, "choose", fail_once)
        with pytest.raises(ModelError):
            engine.step()
        run(engine, kind)

    def test_half_a_step_ends_its_requests_and_gives_their_blocks_back(self, monkeypatch):
        engine = start(SAMPLES, num_blocks=40, max_num_seqs=4)
        assert {chunk.request.request_id for chunk in engine.schedule().chunks} == {"0", "1"}
        commit = engine.scheduler.commit

        def commit_and_fail(step: SchedulerOutput) -> None:
            commit(step)
            raise Interruption

        monkeypatch.setattr(engine.scheduler, "commit", commit_and_fail)
        with pytest.raises(Interruption):
            engine.step()
        monkeypatch.setattr(engine.scheduler, "commit", commit)
        engine.check()
        assert engine.queues() == (["2"], [], [])
        run(engine, SAMPLES)
