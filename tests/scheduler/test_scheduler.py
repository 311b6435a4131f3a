"""Small scenes with exact tables: what the scheduler does, and in which order.

Blocks hold four tokens. A prompt of letters is a token a letter; `chunks()` gives the next step as
(sequence, start, stop); sequence numbers count up over all samples of all requests.
"""

from __future__ import annotations

from typing import ClassVar

import pytest

from minipaged.engine.config import EngineConfig
from minipaged.engine.sampling_params import SamplingParams
from minipaged.engine.scheduler import Scheduler
from minipaged.engine.scheduler_output import Chunk
from minipaged.engine.sequence import Request, Sequence
from minipaged.errors import ConfigError, RequestRefusedError
from minipaged.memory.block_table import blocks_at_most
from minipaged.memory.events import Preempted
from minipaged.memory.kv_cache_manager import BlockMove, KVCacheManager

from .scripted_model import MAX_MODEL_LEN, ScriptedEngine, seed_of, solo_text, texts


def preemptions(engine: ScriptedEngine) -> list[tuple[int, str, str]]:
    return [(e.seq, e.how, e.why) for e in engine.trace.events if isinstance(e, Preempted)]


def rest_of(engine: ScriptedEngine) -> dict[str, list[list[int]]]:
    """Run all to the end and give each request's texts."""
    outputs = {}
    while engine.has_unfinished_requests:
        for live in engine.step():
            outputs[live.request.request_id] = texts(live.output())
        engine.check()
    engine.finish(most=0)
    return outputs


class TestOneStep:
    def test_a_request_computes_its_prompt_then_a_token_a_step(self):
        engine = ScriptedEngine(8)
        request = engine.add("abcdef", max_tokens=3)
        assert engine.chunks() == [(0, 0, 6)]
        engine.steps(1)
        assert engine.chunks() == [(0, 6, 7)]
        assert request.sequences[0].num_tokens == 7
        assert request.sequences[0].num_computed_tokens == 6
        engine.steps(2)
        assert not engine.has_unfinished_requests

    def test_prefill_and_decode_share_a_step(self):
        engine = ScriptedEngine(8)
        engine.add("abcdef")
        engine.steps(1)
        engine.add("ghi")
        assert engine.chunks() == [(0, 6, 7), (1, 0, 3)]
        step = engine.schedule()
        assert (step.num_tokens, step.num_decode_tokens) == (4, 1)

    def test_one_token_of_a_prompt_is_no_decode(self):
        engine = ScriptedEngine(8)
        engine.add("abcde")
        engine.finish()
        engine.add("abcde")
        assert engine.chunks() == [(1, 4, 5)]
        assert engine.schedule().num_decode_tokens == 0

    def test_only_a_chunk_that_ends_with_the_last_known_token_needs_logits(self):
        engine = ScriptedEngine(8, max_num_seqs=4, max_num_batched_tokens=4)
        engine.add("abcdefghij")
        asked = []
        for _ in range(4):
            asked.append([(c.start, c.stop, c.needs_logits) for c in engine.schedule().chunks])
            engine.steps(1)
        assert asked == [[(0, 4, False)], [(4, 8, False)], [(8, 10, True)], [(10, 11, True)]]

    def test_scheduling_twice_gives_the_same_step(self):
        engine = ScriptedEngine(8)
        engine.add("abcdef")
        assert engine.schedule() is engine.schedule()
        assert engine.manager.pool.num_free == 6

    def test_nothing_to_do_is_no_step(self):
        engine = ScriptedEngine(8)
        assert engine.step() == []
        assert engine.trace.steps == []


class TestTokenBudget:
    OPTIONS: ClassVar = {"max_num_seqs": 5, "max_num_batched_tokens": 5}

    def test_who_decodes_goes_first_and_prompts_take_what_is_left(self):
        engine = ScriptedEngine(16, **self.OPTIONS)
        engine.add("ab", n=3)
        engine.steps(1)
        engine.add("cdefghij")
        assert engine.chunks() == [(0, 2, 3), (1, 2, 3), (2, 2, 3), (3, 0, 2)]
        engine.steps(1)
        assert engine.chunks() == [(0, 3, 4), (1, 3, 4), (2, 3, 4), (3, 2, 4)]

    def test_a_long_prompt_does_not_starve_who_decodes(self):
        engine = ScriptedEngine(16, **self.OPTIONS)
        engine.add("ab", n=2, max_tokens=8)
        engine.steps(1)
        engine.add("cdefghijklmnopqrs", max_tokens=1)
        for start in range(2, 7):
            assert engine.chunks()[:2] == [(0, start, start + 1), (1, start, start + 1)]
            engine.steps(1)

    @pytest.mark.parametrize(("prompt", "left"), [("cdefghijk", 0), ("cdefghij", 1)])
    def test_a_token_must_be_left_to_come_back(self, prompt, left):
        engine = ScriptedEngine(16, num_swap_blocks=4, preemption="swap", **self.OPTIONS)
        first = engine.add("ab")
        engine.steps(1)
        engine.add(prompt)
        engine.steps(1)
        engine.scheduler.preempt(first, "by hand")
        assert engine.schedule().num_tokens == 5
        assert engine.queues() == (([], ["0", "1"], []) if left else ([], ["1"], ["0"]))

    @pytest.mark.parametrize(("prompt", "left"), [("cdefghijkl", 0), ("cdefghijk", 1)])
    def test_a_token_must_be_left_to_start(self, prompt, left):
        engine = ScriptedEngine(16, **self.OPTIONS)
        engine.add(prompt)
        engine.steps(1)
        engine.add("ab")
        assert engine.schedule().num_tokens == 5
        assert engine.queues() == (([], ["0", "1"], []) if left else (["1"], ["0"], []))

    def test_a_group_gets_all_of_its_tokens_or_none(self):
        engine = ScriptedEngine(16, **self.OPTIONS)
        first = engine.add("abcdefghijk")
        engine.steps(1)
        engine.scheduler.preempt(first, "by hand")  # else nobody later runs beside a prompt
        engine.manager.enable_prefix_caching = False
        engine.scheduler.waiting.clear()
        engine.add("lm", n=3)
        engine.steps(1)
        engine.scheduler.waiting.append(first)
        assert engine.chunks() == [(1, 2, 3), (2, 2, 3), (3, 2, 3), (0, 0, 2)]
        engine.steps(1)
        assert engine.chunks() == [(0, 2, 7)]
        engine.steps(1)
        assert engine.chunks() == [(0, 7, 11)]  # one token is left, but the group needs three
        engine.steps(1)
        assert engine.chunks() == [(0, 11, 12), (1, 3, 4), (2, 3, 4), (3, 3, 4)]

    def test_without_chunks_a_prompt_waits_for_a_step_that_holds_it(self):
        options = {"enable_chunked_prefill": False, "max_model_len": 8}
        engine = ScriptedEngine(16, max_num_seqs=4, max_num_batched_tokens=8, **options)
        engine.add("abc", max_tokens=2)
        engine.add("defghi", max_tokens=2)
        engine.add("j", max_tokens=2)
        assert engine.chunks() == [(0, 0, 3)]  # nor does "j" overtake
        engine.steps(1)
        assert engine.chunks() == [(0, 3, 4), (1, 0, 6), (2, 0, 1)]

    def test_tokens_are_counted_after_the_prefix_hit(self):
        options = {"enable_chunked_prefill": False, "max_model_len": 12}
        engine = ScriptedEngine(16, max_num_seqs=4, max_num_batched_tokens=12, **options)
        engine.add("abcdefghij", max_tokens=2)
        engine.steps(1)
        engine.add("abcdefghxy", max_tokens=2)
        engine.add("abcdefghijk", max_tokens=1)
        assert engine.chunks() == [(0, 10, 11), (1, 8, 10), (2, 8, 11)]

    def test_without_chunks_the_budget_must_hold_the_longest_prompt(self):
        options = {"enable_chunked_prefill": False, "max_num_seqs": 4, "max_num_batched_tokens": 8}
        with pytest.raises(ConfigError, match=r"\(8\) must be at least max_model_len \(9\)"):
            ScriptedEngine(16, max_model_len=9, **options)

    def test_the_budget_must_hold_a_token_of_every_sequence(self):
        with pytest.raises(ConfigError, match=r"\(3\) must be at least max_num_seqs \(4\)"):
            EngineConfig(max_num_seqs=4, max_num_batched_tokens=3)


class TestAdmission:
    def test_never_is_said_with_the_numbers(self):
        """floor(6/4) + 3 x (ceil((6 + 7 - 1)/4) - floor(6/4)) = 1 + 3 x 2 = 7."""
        assert ScriptedEngine(7).add("abcdef", n=3, max_tokens=7).width == 3
        with pytest.raises(RequestRefusedError) as refused:
            ScriptedEngine(6).add("abcdef", n=3, max_tokens=7)
        assert str(refused.value) == (
            "needs up to 7 blocks, the pool has 6: 6 prompt tokens, 3 x 7 new ones, "
            "4 tokens a block"
        )

    @pytest.mark.parametrize("block_size", [1, 3, 4])
    @pytest.mark.parametrize("num_samples", [1, 3])
    @pytest.mark.parametrize("num_prompt_tokens", [1, 3, 4, 5, 8])
    @pytest.mark.parametrize("max_tokens", [2, 4, 5])
    def test_never_is_exact(self, block_size, num_samples, num_prompt_tokens, max_tokens):
        """A request runs in just as many blocks as it may need, and needs every one."""
        needed = blocks_at_most(num_prompt_tokens, max_tokens, num_samples, block_size)
        engine = ScriptedEngine(needed, block_size)
        request = engine.add([1] * num_prompt_tokens, n=num_samples, max_tokens=max_tokens)
        least_free = needed
        while engine.has_unfinished_requests:
            engine.schedule()
            least_free = min(least_free, engine.manager.pool.num_free)
            engine.steps(1)
        assert least_free == 0
        assert preemptions(engine) == []
        if needed > 1:
            with pytest.raises(RequestRefusedError, match=f"needs up to {needed} blocks"):
                ScriptedEngine(needed - 1, block_size).add(
                    request.prompt_token_ids, n=num_samples, max_tokens=max_tokens
                )

    def test_beams_count_as_sequences(self):
        assert ScriptedEngine(7).add("abcdef", beam_width=3, max_tokens=7).width == 3
        with pytest.raises(RequestRefusedError, match="needs up to 7 blocks, the pool has 6"):
            ScriptedEngine(6).add("abcdef", beam_width=3, max_tokens=7)
        with pytest.raises(RequestRefusedError, match="4 sequences asked for, but max_num_seqs is"):
            ScriptedEngine(64, max_num_seqs=3).add("abcdef", beam_width=4)

    def test_max_tokens_is_cut_to_what_the_models_length_leaves_before_blocks_are_counted(self):
        engine = ScriptedEngine(3, max_model_len=12)
        assert engine.add("abcdefgh", max_tokens=1000).max_tokens == 4
        assert [len(text) for text in rest_of(engine)["0"]] == [4]

    def test_min_tokens_is_cut_as_well(self):
        engine = ScriptedEngine(3, max_model_len=12)
        engine.add("abcdefgh", max_tokens=1000, min_tokens=100)
        assert [len(text) for text in rest_of(engine)["0"]] == [4]

    def test_more_samples_than_sequences_may_run_are_refused_at_once(self):
        engine = ScriptedEngine(64, max_num_seqs=3)
        with pytest.raises(RequestRefusedError, match="4 sequences asked for, but max_num_seqs"):
            engine.add("ab", n=4)
        assert not engine.has_unfinished_requests

    @pytest.mark.parametrize(
        ("prompt", "message"),
        [
            ([], "the prompt is empty"),
            ([1] * MAX_MODEL_LEN, f"the prompt has {MAX_MODEL_LEN} tokens; with max_model_len"),
            ([1, 32], "token id 32 is not in a vocabulary of 32"),
            ([-1, 1], "token id -1 is not in a vocabulary of 32"),
        ],
    )
    def test_a_prompt_that_makes_no_sense_is_refused(self, prompt, message):
        engine = ScriptedEngine(64)
        with pytest.raises(RequestRefusedError, match=message):
            engine.add(prompt)
        assert engine.trace.events == []

    def test_who_is_refused_blocks_nobody(self):
        engine = ScriptedEngine(4, max_num_seqs=2)
        engine.add("abc", max_tokens=2)
        for prompt, options in (("abcdefg", {"max_tokens": 60}), ("ab", {"n": 3})):
            with pytest.raises(RequestRefusedError):
                engine.add(prompt, **options)
        engine.add("def", max_tokens=2)
        assert engine.queues() == (["0", "1"], [], [])
        assert engine.chunks() == [(0, 0, 3), (1, 0, 3)]

    def test_first_come_first_served_even_if_a_later_one_would_fit(self):
        engine = ScriptedEngine(4)
        engine.add("abcdefgh", max_tokens=2)
        engine.add("ijklmnop", max_tokens=2)
        engine.add("q", max_tokens=2)
        assert engine.chunks() == [(0, 0, 8), (1, 0, 8)]
        engine.steps(1)
        assert engine.queues() == (["2"], ["0", "1"], [])

    def test_a_large_one_in_front_is_not_overtaken(self):
        engine = ScriptedEngine(4)
        engine.add("abcdefgh", max_tokens=4)
        engine.add("ijklmnopqrst", max_tokens=2)
        engine.add("u", max_tokens=2)
        for _ in range(4):
            assert [seq for seq, _, _ in engine.chunks()] == [0]
            engine.steps(1)
        assert engine.chunks() == [(1, 0, 12), (2, 0, 1)]

    def test_a_group_counts_all_its_sequences(self):
        engine = ScriptedEngine(64, max_num_seqs=4)
        engine.add("ab", n=3, max_tokens=2)
        engine.add("cd", n=2, max_tokens=2)
        assert engine.chunks() == [(0, 0, 2)]
        engine.steps(2)
        assert engine.chunks() == [(3, 0, 2)]

    def test_a_group_starts_when_its_samples_will_find_room_for_their_copies(self):
        engine = ScriptedEngine(5)
        engine.add("abcdefgh", max_tokens=3)
        engine.add("ijklm", n=3, max_tokens=3)  # 2 blocks, and 2 copies of the second one soon
        assert engine.chunks() == [(0, 0, 8)]
        engine.steps(3)
        assert engine.chunks() == [(1, 0, 5)]

    def test_the_room_for_a_groups_copies_is_not_given_away_in_the_same_step(self):
        engine = ScriptedEngine(6)
        engine.add("ijklm", n=3, max_tokens=3)
        engine.add("no", max_tokens=4)
        engine.add("pqrst", max_tokens=2)
        assert engine.chunks() == [(0, 0, 5), (3, 0, 2)]
        engine.steps(1)
        assert engine.manager.pool.num_free == 3
        assert engine.chunks() == [(0, 5, 6), (1, 5, 6), (2, 5, 6), (3, 2, 3)]
        engine.finish()
        assert preemptions(engine) == []

    def test_whoever_may_start_can_allocate(self):
        """Hits in the free list leave it: they are not free for the rest of the prompt."""
        engine = ScriptedEngine(4)
        engine.add("abcdefgh", max_tokens=1)
        engine.finish()
        engine.add("ijkl", max_tokens=3)
        engine.steps(1)
        engine.add("abcdefghijkl", max_tokens=2)
        assert engine.manager.pool.num_free_cached == 2
        assert engine.chunks() == [(1, 4, 5)]  # 4 blocks, 2 of them hits, but only 2 are left
        engine.steps(2)
        assert engine.chunks() == [(2, 8, 12)]


class TestPrefixHits:
    def test_a_hit_is_shared_and_the_rest_computed(self):
        engine = ScriptedEngine(8)
        first = engine.add("abcdefghij")
        engine.steps(1)
        second = engine.add("abcdefghxy")
        assert engine.chunks() == [(0, 10, 11), (1, 8, 10)]
        assert engine.table(first) == [0, 1, 2]
        assert engine.table(second) == [0, 1, 3]
        assert list(engine.manager.pool.ref_count)[:4] == [2, 2, 1, 1]
        assert second.num_cached_tokens == 8

    def test_a_full_hit_leaves_one_token_to_compute(self):
        engine = ScriptedEngine(8)
        first = engine.add("abcdefgh", max_tokens=4)
        engine.steps(1)
        second = engine.add("abcdefgh", max_tokens=4)
        assert engine.chunks() == [(0, 8, 9), (1, 4, 8)]
        assert engine.table(first) == [0, 1, 2]
        assert engine.table(second) == [0, 3]

    def test_two_equal_prompts_in_one_step_do_not_hit(self):
        engine = ScriptedEngine(8)
        first, second = engine.add("abcde"), engine.add("abcde")
        assert engine.chunks() == [(0, 0, 5), (1, 0, 5)]
        assert (engine.table(first), engine.table(second)) == ([0, 1], [2, 3])
        engine.steps(1)
        assert list(engine.manager.pool.hash_of) == [0]

    def test_a_block_is_found_only_when_its_chunk_was_computed(self):
        engine = ScriptedEngine(16, max_num_seqs=8, max_num_batched_tokens=8)
        engine.add("abcdefghijkl", max_tokens=3)
        engine.steps(1)
        engine.add("abcdefghijkx", max_tokens=3)
        assert engine.chunks() == [(0, 8, 12), (1, 8, 12)]  # two blocks are there, the third not


class TestSamples:
    def test_samples_share_the_prompt_and_part_by_copy_on_write(self):
        engine = ScriptedEngine(16)
        request = engine.add("abcdef", n=3)
        assert engine.chunks() == [(0, 0, 6)]
        engine.steps(1)
        assert engine.tables(request) == [[0, 1], [0, 1], [0, 1]]
        assert list(engine.manager.pool.ref_count)[:2] == [3, 3]
        assert engine.chunks() == [(0, 6, 7), (1, 6, 7), (2, 6, 7)]
        assert engine.schedule().copies == [BlockMove(1, 2), BlockMove(1, 3)]  # the last keeps 1
        assert engine.tables(request) == [[0, 2], [0, 3], [0, 1]]

    def test_on_a_block_boundary_nothing_is_copied(self):
        engine = ScriptedEngine(8)
        request = engine.add("abcdefgh", n=3)
        engine.steps(1)
        assert engine.chunks() == [(0, 8, 9), (1, 8, 9), (2, 8, 9)]
        assert engine.schedule().copies == []
        assert engine.tables(request) == [[0, 1, 2], [0, 1, 3], [0, 1, 4]]

    def test_all_samples_draw_from_the_prompts_one_row(self):
        engine = ScriptedEngine(16)
        params = SamplingParams(n=3, max_tokens=5, ignore_eos=True, seed=3)
        request = engine.add(
            "abcdef", **{k: getattr(params, k) for k in ("n", "max_tokens", "seed")}
        )
        prompt = request.prompt_token_ids
        assert seed_of(engine, request, params) == 3
        assert rest_of(engine)["0"] == [solo_text(prompt, params, 3 + i) for i in range(3)]

    def test_the_others_go_on_when_a_sample_ends(self):
        engine = ScriptedEngine(16)
        request = engine.add("abcdef", n=3)
        engine.steps(2)
        engine.scheduler.finish(request, request.sequences[0], "stop")
        assert engine.chunks() == [(1, 7, 8), (2, 7, 8)]
        engine.steps(2)
        assert engine.chunks() == [(1, 9, 10), (2, 9, 10)]


class TestPreemption:
    def test_the_latest_arrival_is_preempted_and_was_given_nothing(self):
        engine = ScriptedEngine(6)
        first, second, third = (engine.add(prompt) for prompt in ("abcdef", "ghijk", "lmn"))
        engine.steps(2)
        assert engine.tables(first) == [[0, 1]]
        assert engine.tables(second) == [[2, 3]]
        assert engine.tables(third) == [[4]]
        engine.steps(1)
        assert engine.table(third) == [4, 5]
        assert engine.manager.pool.num_free == 0
        assert engine.chunks() == [(0, 8, 9), (1, 7, 8)]  # sequence 0 opens its third block
        assert preemptions(engine) == [(2, "recompute", "seq 0 needs 1 blocks, 0 free")]
        assert engine.queues() == (["2"], ["0", "1"], [])
        assert engine.table(first) == [0, 1, 5]

    def test_as_many_as_needed_are_preempted_from_the_back(self):
        engine = ScriptedEngine(6)
        engine.add("abcdefgh", n=3, max_tokens=4)
        for prompt in ("ij", "kl", "mn"):
            engine.add(prompt)
        engine.steps(1)
        assert engine.manager.pool.num_free == 1
        assert engine.chunks() == [(0, 8, 9), (1, 8, 9), (2, 8, 9), (3, 2, 3)]
        assert preemptions(engine) == [
            (5, "recompute", "seq 0, 1, 2 needs 3 blocks, 1 free"),
            (4, "recompute", "seq 0, 1, 2 needs 3 blocks, 2 free"),
        ]
        assert engine.queues() == (["2", "3"], ["0", "1"], [])

    def test_the_latest_arrival_itself_steps_back(self):
        engine = ScriptedEngine(5)
        engine.add("abcdefgh", max_tokens=4)
        engine.add("ijklmno", max_tokens=9)
        engine.steps(2)
        assert engine.chunks() == [(0, 9, 10)]
        assert preemptions(engine) == [(1, "recompute", "seq 1 needs 1 blocks, 0 free")]

    def test_nobody_is_admitted_in_a_step_that_preempts(self):
        engine = ScriptedEngine(5)
        engine.add("abcdefgh")
        engine.add("ijklm")
        engine.steps(2)
        engine.add("n")
        engine.steps(2)
        assert engine.queues() == (["2"], ["0", "1"], [])
        assert engine.chunks() == [(0, 11, 12)]
        assert engine.queues() == (["1", "2"], ["0"], [])
        assert engine.manager.pool.num_free == 2

    def test_who_was_preempted_is_before_all_who_wait(self):
        engine = ScriptedEngine(16, max_num_seqs=2)
        first, _ = engine.add("ab"), engine.add("cd")
        engine.add("ef")
        engine.steps(1)
        engine.scheduler.preempt(engine.scheduler.running[1], "by hand")
        engine.scheduler.preempt(first, "by hand")
        assert engine.queues() == (["0", "1", "2"], [], [])


class TestRecompute:
    def test_the_token_just_sampled_is_kept(self):
        engine = ScriptedEngine(8)
        request = engine.add("abcdef")
        engine.steps(3)
        tokens = list(request.sequences[0].token_ids)
        assert len(tokens) == 9  # 6 + 3; the KV of the last one does not exist yet
        engine.scheduler.preempt(request, "by hand")
        assert engine.manager.snapshot().tables == {}
        assert request.sequences[0].token_ids == tokens
        engine.manager.enable_prefix_caching = False
        assert engine.chunks() == [(0, 0, 9)]

    def test_what_is_still_cached_is_found(self):
        engine = ScriptedEngine(8)
        request = engine.add("abcdef")
        engine.steps(4)
        engine.scheduler.preempt(request, "by hand")
        assert engine.chunks() == [(0, 8, 10)]
        assert request.num_cached_tokens == 0  # it tells of the first time

    @pytest.mark.parametrize("cached", [False, True])
    def test_the_prompt_once_then_fork_then_own_tokens(self, cached):
        engine = ScriptedEngine(12, enable_prefix_caching=cached)
        request = engine.add("abcdef", n=2)
        engine.steps(4)
        assert engine.tables(request) == [[0, 2, 3], [0, 1, 4]]
        engine.scheduler.preempt(request, "by hand")
        assert engine.chunks() == [(0, 4 if cached else 0, 6)]
        assert [c.needs_logits for c in engine.schedule().chunks] == [False]
        engine.steps(1)
        shared = engine.tables(request)[0]
        assert engine.tables(request) == [shared, shared]
        assert [engine.manager.pool.ref_count[block] for block in shared] == [2, 2]
        assert engine.chunks() == [(0, 6, 9), (1, 6, 9)]
        assert [c.needs_logits for c in engine.schedule().chunks] == [False, False]
        assert [copy.source for copy in engine.schedule().copies] == [shared[1]]
        engine.steps(1)
        assert engine.chunks() == [(0, 9, 10), (1, 9, 10)]
        assert [c.needs_logits for c in engine.schedule().chunks] == [True, True]

    def test_samples_catch_up_within_the_budget_and_go_on_together(self):
        engine = ScriptedEngine(
            12, max_num_seqs=4, max_num_batched_tokens=4, enable_prefix_caching=False
        )
        request = engine.add("abcd", n=2)
        engine.steps(5)
        engine.scheduler.preempt(request, "by hand")
        planned = []
        for _ in range(4):
            planned.append(engine.chunks())
            engine.steps(1)
        assert planned == [
            [(0, 0, 4)],
            [(0, 4, 8)],
            [(1, 4, 8)],
            [(0, 8, 9), (1, 8, 9)],
        ]

    def test_the_last_sample_alive_is_recomputed_in_one_go(self):
        engine = ScriptedEngine(12, enable_prefix_caching=False)
        request = engine.add("abcd", n=2)
        engine.steps(3)
        engine.scheduler.finish(request, request.sequences[0], "stop")
        engine.scheduler.preempt(request, "by hand")
        assert engine.chunks() == [(1, 0, 7)]

    def test_a_single_text_resumes_in_just_the_blocks_of_its_tokens(self):
        engine = ScriptedEngine(3, enable_prefix_caching=False)
        request = engine.add("abcd", max_tokens=9)
        engine.steps(7)
        engine.scheduler.preempt(request, "by hand")
        assert engine.chunks() == [(0, 0, 11)]
        engine.finish()

    def test_a_prompt_half_computed_starts_again(self):
        engine = ScriptedEngine(
            8, max_num_seqs=4, max_num_batched_tokens=4, enable_prefix_caching=False
        )
        request = engine.add("abcdefghij", n=2)
        engine.steps(2)
        engine.scheduler.preempt(request, "by hand")
        assert engine.chunks() == [(0, 0, 4)]

    def test_a_resumed_group_waits_for_the_blocks_of_its_own_tokens(self):
        engine = ScriptedEngine(20)
        engine.add("abcd", max_tokens=20)
        group = engine.add("efgh", n=2, max_tokens=12)
        engine.steps(7)
        assert engine.tables(group) == [[1, 3, 6], [1, 4, 7]]
        engine.scheduler.preempt(group, "by hand")
        stranger = engine.occupy(engine.manager.pool.num_free - 4)
        assert engine.chunks() == [(0, 10, 11)]  # the prompt takes one, but five must be free
        engine.steps(1)
        engine.manager.free(stranger)
        engine.occupy(engine.manager.pool.num_free - 5)
        assert engine.chunks() == [(0, 11, 12), (1, 0, 4)]


class TestSwap:
    OPTIONS: ClassVar = {"num_swap_blocks": 8, "preemption": "swap"}

    def test_each_distinct_block_moves_once_and_sharing_is_kept(self):
        engine = ScriptedEngine(12, **self.OPTIONS)
        request = engine.add("abcdef", n=2)
        engine.steps(4)
        assert engine.tables(request) == [[0, 2, 3], [0, 1, 4]]
        engine.scheduler.preempt(request, "by hand")
        memory = engine.manager.snapshot()
        assert memory.swap_tables == {0: (0, 1, 2), 1: (0, 3, 4)}
        assert memory.swap_ref_counts[:5] == (2, 1, 1, 1, 1)
        assert memory.num_used == 0
        assert engine.chunks() == [(0, 9, 10), (1, 9, 10)]
        step = engine.schedule()
        assert step.swap_outs == [(0, 0), (2, 1), (3, 2), (1, 3), (4, 4)]
        assert step.swap_ins == [(0, 5), (1, 6), (2, 7), (3, 8), (4, 9)]
        assert engine.tables(request) == [[5, 6, 7], [5, 8, 9]]
        assert engine.manager.pool.ref_count[5] == 2
        engine.finish()

    def test_blocks_that_others_use_stay_theirs(self):
        engine = ScriptedEngine(12, **self.OPTIONS)
        first = engine.add("abcdefghi")
        engine.steps(1)
        second = engine.add("abcdefghx")
        engine.steps(1)
        assert (engine.table(first), engine.table(second)) == ([0, 1, 2], [0, 1, 3])
        engine.scheduler.preempt(second, "by hand")
        assert engine.table(first) == [0, 1, 2]
        assert list(engine.manager.pool.ref_count)[:4] == [1, 1, 1, 0]
        engine.finish()

    def test_what_comes_back_is_private_and_published_only_if_the_hash_is_absent(self):
        engine = ScriptedEngine(7, **self.OPTIONS)
        request = engine.add("abcdefghi")
        engine.steps(1)
        hashes = dict(engine.manager.pool.hash_of)
        assert list(hashes) == [0, 1]
        engine.scheduler.preempt(request, "by hand")
        assert engine.manager.pool.hash_of == hashes  # the content can still be found
        engine.steps(1)
        assert engine.table(request) == [3, 4, 5]
        assert engine.manager.pool.hash_of == hashes  # both are known already
        engine.scheduler.preempt(request, "by hand")
        engine.steps(1)
        assert engine.table(request) == [6, 2, 5]
        assert engine.manager.pool.hash_of == hashes
        engine.finish()

    def test_hashes_that_were_evicted_meanwhile_are_published_again(self):
        engine = ScriptedEngine(3, **self.OPTIONS)
        request = engine.add("abcdefghi", max_tokens=3)
        engine.steps(1)
        hashes = set(engine.manager.pool.hash_of.values())
        engine.scheduler.preempt(request, "by hand")
        engine.steps(1)
        assert engine.table(request) == [2, 1, 0]
        assert set(engine.manager.pool.hash_of.values()) == hashes
        assert list(engine.manager.pool.hash_of) == [2, 1]
        engine.finish()

    def test_nobody_is_admitted_while_somebody_is_swapped_out(self):
        engine = ScriptedEngine(6, **self.OPTIONS)
        engine.add("abcdefgh", max_tokens=7)
        engine.add("ijklmn")
        engine.steps(4)
        engine.add("o", max_tokens=2)
        engine.steps(1)
        assert engine.queues() == (["2"], ["0", "1"], [])
        assert engine.chunks() == [(0, 12, 13)]
        assert preemptions(engine) == [(1, "swap", "seq 0 needs 1 blocks, 0 free")]
        assert engine.queues() == (["2"], ["0"], ["1"])
        engine.steps(1)
        assert engine.manager.pool.num_free == 2
        assert engine.chunks() == [(0, 13, 14)]  # one block would be enough for "o"
        engine.steps(1)
        assert engine.chunks() == [(1, 10, 11), (2, 0, 1)]

    def test_a_swap_pool_without_room_falls_back_to_recompute(self):
        engine = ScriptedEngine(8, num_swap_blocks=2, preemption="swap")
        large, small = engine.add("abcdefghi"), engine.add("jklm")
        engine.steps(1)
        engine.scheduler.preempt(large, "by hand")
        engine.scheduler.preempt(small, "by hand")
        assert preemptions(engine) == [(0, "recompute", "by hand"), (1, "swap", "by hand")]
        assert engine.queues() == (["0"], [], ["1"])
        engine.finish()

    def test_a_later_arrival_that_was_swapped_comes_back_before_an_earlier_one_that_was_not(self):
        engine = ScriptedEngine(8, num_swap_blocks=2, preemption="swap")
        large, small = engine.add("abcdefghi", max_tokens=4), engine.add("jklm", max_tokens=4)
        engine.steps(1)
        engine.scheduler.preempt(large, "by hand")
        engine.scheduler.preempt(small, "by hand")
        assert [seq for seq, _, _ in engine.chunks()] == [1, 0]
        assert engine.queues() == ([], ["0", "1"], [])

    @pytest.mark.parametrize(("left", "comes_back"), [(4, False), (5, True)])
    def test_who_comes_back_finds_room_to_go_on(self, left, comes_back):
        """Else the next token of each sample would push it out again at once."""
        engine = ScriptedEngine(16, **self.OPTIONS)
        engine.add("abcd", max_tokens=8)
        group = engine.add("ijkl", n=2, max_tokens=6)
        engine.steps(2)
        engine.scheduler.preempt(group, "by hand")
        assert engine.manager.blocks_to_swap_in([1, 2]) == 3
        engine.occupy(engine.manager.pool.num_free - left)
        assert [seq for seq, _, _ in engine.chunks()] == ([0, 1, 2] if comes_back else [0])

    @pytest.mark.parametrize(("left", "comes_back"), [(4, False), (5, True)])
    def test_room_to_go_on_is_that_of_all_known_tokens(self, left, comes_back):
        engine = ScriptedEngine(16, max_num_seqs=4, max_num_batched_tokens=5, **self.OPTIONS)
        engine.add("abcd", max_tokens=8)
        half = engine.add("efghijklmno", max_tokens=6)
        engine.steps(2)
        engine.scheduler.preempt(half, "by hand")
        assert engine.manager.blocks_to_swap_in([1]) == 2
        engine.occupy(engine.manager.pool.num_free - left)
        assert [seq for seq, _, _ in engine.chunks()] == ([0, 1] if comes_back else [0])

    def test_alone_it_needs_no_room_beyond_its_own(self):
        engine = ScriptedEngine(3, **self.OPTIONS)
        request = engine.add("abcd", n=2, max_tokens=5)
        engine.steps(2)
        engine.scheduler.preempt(request, "by hand")
        assert engine.chunks() == [(0, 5, 6), (1, 5, 6)]
        engine.finish()

    def test_a_prompt_half_computed_keeps_what_it_has(self):
        engine = ScriptedEngine(8, max_num_seqs=4, max_num_batched_tokens=4, **self.OPTIONS)
        request = engine.add("abcdefghij", max_tokens=3)
        engine.steps(1)
        assert engine.table(request) == [0, 1, 2]
        engine.scheduler.preempt(request, "by hand")
        assert engine.manager.snapshot().swap_tables == {0: (0,)}  # the rest was only reserved
        assert engine.chunks() == [(0, 4, 8)]
        assert len(engine.table(request)) == 2
        engine.finish()

    def test_swap_without_a_swap_pool_is_refused(self):
        with pytest.raises(ConfigError, match='preemption="swap" needs num_swap_blocks, which is'):
            EngineConfig(preemption="swap")


class TestSchedulerAlone:
    """The scheduler runs without an engine: nothing else is needed."""

    def test_it_runs_on_requests_and_a_manager(self):
        manager = KVCacheManager(num_blocks=4, block_size=4)
        scheduler = Scheduler(EngineConfig(num_blocks=4, block_size=4), manager)
        requests = [Request(str(i), (1, 2, 3 + i), 1, 6, i) for i in range(3)]
        for i, request in enumerate(requests):
            request.sequences = [Sequence(i, 0, list(request.prompt_token_ids))]
            scheduler.add(request)
        for _ in range(100):
            if not scheduler.has_unfinished:
                break
            step = scheduler.schedule()
            scheduler.commit(step)
            for chunk in step.chunks:
                if chunk.stop == chunk.sequence.num_tokens:
                    chunk.sequence.token_ids.append(9)
                    if chunk.sequence.num_tokens == 9:
                        scheduler.finish(chunk.request, chunk.sequence, "length")
        assert [r.sequences[0].finish_reason for r in requests] == ["length"] * 3
        assert manager.pool.num_free == 4

    def test_it_refuses_what_can_never_run(self):
        scheduler = Scheduler(EngineConfig(), KVCacheManager(num_blocks=2, block_size=4))
        request = Request("0", tuple(range(8)), 1, 2, 0, [Sequence(0, 0, list(range(8)))])
        with pytest.raises(RequestRefusedError, match="needs up to 3 blocks, the pool has 2"):
            scheduler.add(request)
        assert not scheduler.has_unfinished

    def test_a_chunk_knows_its_tokens_and_where_they_stand(self):
        chunk = Chunk(Request("0", (7, 8, 9), 1, 2, 0), Sequence(0, 0, [7, 8, 9]), 1, 2)
        assert (chunk.token_ids, chunk.positions, chunk.stop) == ([8, 9], range(1, 3), 3)

    def test_a_fork_belongs_to_the_request(self):
        manager = KVCacheManager(num_blocks=4, block_size=4)
        scheduler = Scheduler(EngineConfig(), manager)
        parent, child = Sequence(0, 0, [7, 8, 9]), Sequence(1, 1, [7, 8, 9])
        request = Request("0", (7, 8, 9), 2, 2, 0, [parent])
        scheduler.add(request)
        scheduler.commit(scheduler.schedule())
        scheduler.fork(request, parent, child)
        assert request.live == [parent, child]
        assert child.num_computed_tokens == 3
        assert manager.block_table(1) == manager.block_table(0) == [0]
