"""Anything may happen in any order, and the engine keeps its promises.

`EngineMachine` adds requests with shared prefixes (n samples or beams), steps, aborts (also between
scheduling and running a step), preempts whom it likes, and interrupts steps. The configurations are
narrow: few blocks, few sequences, a small token budget, a swap pool that is often too small. After
every rule it holds all invariants of memory, the replayed trace, and the rules of scheduling; in
the end every text must be the one that the request writes alone.

These bugs are planted, one at a time, and each must be caught:

 1. the token that was just sampled is lost when a sequence is recomputed
 2. the earliest arrival is preempted instead of the latest
 3. the victim may be somebody who was given slots in this very step
 4. what samples shared is not shared any more when they come back from the swap pool
 5. a fork forgets the block that is not full yet
 6. block copies run after the new tokens are written
 7. admission counts a hit in the free list as free and as found
 8. tokens found in the prefix cache are counted again when a request is resumed
 9. blocks are published when they are reserved, not when they are computed
10. somebody is admitted while others are swapped out
11. with an aborted request goes the swap-out of another one that waits for the next step
12. tokens that could not be chosen, because the step was interrupted, are never chosen
13. admission takes a request for one sequence, however many samples it has
14. a short prompt overtakes a long one
15. after recomputation the samples of a request part ways: one runs a step ahead
16. who is aborted between planning and running a step is computed all the same
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from minipaged.engine.llm_engine import LLMEngine
from minipaged.engine.outputs import BeamSearchOutput, RequestOutput
from minipaged.engine.sampling_params import BeamSearchParams, SamplingParams
from minipaged.engine.scheduler import Scheduler
from minipaged.engine.scheduler_output import SchedulerOutput
from minipaged.engine.sequence import Request
from minipaged.errors import MinipagedError, RequestRefusedError
from minipaged.memory.block_table import BlockTable
from minipaged.memory.events import Preempted, PrefixHit
from minipaged.memory.kv_cache_manager import KVCacheManager

from .scripted_model import (
    Interruption,
    ScriptedEngine,
    ScriptedRunner,
    seed_of,
    solo_beams,
    solo_text,
    texts,
)

MOST_TOKENS = 20
STEMS = [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [1, 2, 3, 4, 11, 12, 13, 14, 15, 16]]


@st.composite
def configurations(draw: Any) -> dict[str, Any]:
    """Give settings under which two or three requests are too many."""
    block_size = draw(st.integers(1, 4))
    num_swap_blocks = draw(st.sampled_from([0, 3, 16, 16]))
    max_num_seqs = draw(st.sampled_from([2, 3, 4, 6]))
    chunked = draw(st.booleans())
    budget = draw(st.integers(0, 3)) + (max_num_seqs if chunked else MOST_TOKENS)
    return {
        "block_size": block_size,
        "num_blocks": -(-draw(st.integers(16, 28)) // block_size),
        "num_swap_blocks": num_swap_blocks,
        "preemption": "swap" if num_swap_blocks else "recompute",
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": budget,
        "enable_chunked_prefill": chunked,
        "enable_prefix_caching": draw(st.sampled_from([True, True, True, False])),
        "max_model_len": MOST_TOKENS,
    }


PROMPTS = st.builds(
    lambda stem, length, rest: stem[:length] + rest,
    st.sampled_from(STEMS),
    st.integers(1, 10),
    st.lists(st.integers(20, 22), max_size=3),
)
SAMPLES = st.builds(
    SamplingParams,
    n=st.sampled_from([1, 2, 2, 3, 4]),
    temperature=st.sampled_from([0.0, 1.0]),
    seed=st.sampled_from([None, 7]),
    max_tokens=st.integers(1, 9),
    ignore_eos=st.booleans(),
)
BEAMS = st.builds(
    BeamSearchParams,
    beam_width=st.integers(1, 3),
    max_tokens=st.integers(1, 6),
    ignore_eos=st.booleans(),
)
PLACES = st.sampled_from(["start", "swapped out", "moved", "written", "sample"])


class EngineMachine(RuleBasedStateMachine):
    @initialize(options=configurations())
    def start(self, options: dict[str, Any]) -> None:
        self.engine = ScriptedEngine(**options)
        self.asked: dict[str, tuple[Request, list[int], Any]] = {}
        self.first_hits: dict[str, int] = {}
        self.answered: set[str] = set()
        self.tokens_asked = 0

    @property
    def unfinished(self) -> list[str]:
        return [name for name, (request, *_) in self.asked.items() if request.live]

    # --- rules --------------------------------------------------------------------------------

    @rule(requests=st.lists(st.tuples(PROMPTS, SAMPLES | BEAMS), min_size=1, max_size=3))
    def add(self, requests: list[tuple[list[int], Any]]) -> None:
        for prompt, params in requests:
            self.add_one(prompt, params)

    def add_one(self, prompt: list[int], params: Any) -> None:
        try:
            name = self.engine.add_request(prompt, params)
        except RequestRefusedError:
            assert self.can_never_run(prompt, params)
            return
        assert not self.can_never_run(prompt, params)
        request = self.engine.request(name).request
        self.asked[name] = (request, prompt, self.engine.check_request(prompt, params))
        self.tokens_asked += len(prompt) + request.width * request.max_tokens

    @precondition(lambda self: self.engine.has_unfinished_requests)
    @rule(count=st.integers(1, 3))
    def step(self, count: int) -> None:
        for _ in range(count):
            if self.engine.has_unfinished_requests:
                self.run_step()

    @precondition(lambda self: self.unfinished)
    @rule(which=st.integers(0, 9), first=st.sampled_from(["nothing", "plan", "preempt all"]))
    def abort(self, which: int, first: str) -> None:
        if first == "plan":
            self.plan()
        elif first == "preempt all" and not self.planned:
            self.preempt([0] * len(self.engine.scheduler.running))
        name = self.unfinished[which % len(self.unfinished)]
        self.check_output(self.engine.abort(name))
        self.engine.check()
        if first == "plan" and self.engine.has_unfinished_requests:
            self.run_step()

    @precondition(lambda self: self.engine.scheduler.running and not self.planned)
    @rule(victims=st.lists(st.integers(0, 9), min_size=1, max_size=3))
    def preempt(self, victims: list[int]) -> None:
        running = self.engine.scheduler.running
        for which in victims:
            if running:
                self.engine.scheduler.preempt(running[which % len(running)], "by hand")

    @precondition(lambda self: self.engine.has_unfinished_requests)
    @rule(where=PLACES)
    def interrupt(self, where: str) -> None:
        self.engine.runner.fail_at = where
        try:
            self.run_step()
        except Interruption:
            self.engine.check()
        finally:
            self.engine.runner.fail_at = None

    # --- what holds after every rule ----------------------------------------------------------

    @invariant()
    def holds(self) -> None:
        self.engine.check()
        num_swapped = len(self.engine.scheduler.swapped)
        assert num_swapped == 0 or self.engine.config.preemption == "swap"
        for name, (request, prompt, _) in self.asked.items():
            assert request.num_cached_tokens == self.first_hits.get(name)
            assert (request.num_cached_tokens or 0) < len(prompt)

    def teardown(self) -> None:
        """Everything comes to its end in a bounded number of steps, and all blocks come back."""
        if hasattr(self, "engine"):
            for _ in range(4 * self.tokens_asked + 10):
                self.step(1)
                self.engine.check()
            self.engine.finish(most=0)
            assert self.answered == self.asked.keys(), "a request ended without an answer"

    # --- inside -------------------------------------------------------------------------------

    @property
    def planned(self) -> SchedulerOutput | None:
        return self.engine._scheduled

    def can_never_run(self, prompt: list[int], params: Any) -> bool:
        config, size = self.engine.config, self.engine.config.block_size
        width = params.n if isinstance(params, SamplingParams) else params.beam_width
        length = len(prompt)
        assert config.max_model_len is not None
        assert config.num_blocks is not None
        if length >= config.max_model_len or width > config.max_num_seqs:
            return True
        fed = length + min(params.max_tokens, config.max_model_len - length) - 1
        own = -(-fed // size) - length // size
        needed: int = length // size + width * own
        return needed > config.num_blocks

    def plan(self) -> None:
        """Schedule a step, if none is planned, and hold it against the rules."""
        if self.planned:
            return
        scheduler, config = self.engine.scheduler, self.engine.config
        waiting, running = list(scheduler.waiting), list(scheduler.running)
        swapped = list(scheduler.swapped)
        num_events = len(self.engine.trace.pending())
        step = self.engine.schedule()
        events = self.engine.trace.pending()[num_events:]
        assert step.chunks, "a step that computes nothing"
        assert step.num_tokens == sum(c.num_tokens for c in step.chunks)
        assert step.num_tokens <= config.max_num_batched_tokens
        admitted = [request for request in waiting if request not in scheduler.waiting]
        assert admitted == waiting[: len(admitted)], "somebody was overtaken"
        assert not (admitted and scheduler.swapped), "admitted while others are swapped out"
        victims = [request for request in running if request not in scheduler.running]
        assert victims == running[len(running) - len(victims) :], "not the latest were preempted"
        served = {chunk.request for chunk in step.chunks}
        assert not served & set(victims), "a victim computes in this step"
        preempted = {event.seq for event in events if isinstance(event, Preempted)}
        assert preempted <= {s.seq_id for victim in victims for s in victim.live}
        for request in admitted:
            hits = [
                e for e in events if isinstance(e, PrefixHit) and e.seq == request.live[0].seq_id
            ]
            num_tokens = sum(len(hit.blocks) for hit in hits) * config.block_size
            self.first_hits.setdefault(request.request_id, num_tokens)
        back = [request for request in swapped if request not in scheduler.swapped]
        for request in {*admitted, *back} - served:  # who starts also gets on, if tokens are left
            assert step.num_tokens + len(request.computing) > config.max_num_batched_tokens
        self.check_chunks(step)

    def check_chunks(self, step: SchedulerOutput) -> None:
        for request in {chunk.request for chunk in step.chunks}:
            chunks = [chunk for chunk in step.chunks if chunk.request is request]
            ends = [chunk for chunk in chunks if chunk.needs_logits]
            if request.is_forked and ends:
                assert [chunk.sequence for chunk in ends] == request.live, "samples part ways"
            if not self.engine.config.enable_chunked_prefill and not request.is_forked:
                (chunk,) = chunks
                assert chunk.stop in (request.num_prompt_tokens, chunk.sequence.num_tokens)

    def run_step(self) -> None:
        self.plan()
        advanced = self.engine.step()
        self.engine.check_contents()
        for live in advanced:
            if not live.request.live:
                self.check_output(live.output())

    def check_output(self, output: RequestOutput | BeamSearchOutput) -> None:
        self.answered.add(output.request_id)
        request, prompt, params = self.asked[output.request_id]
        if isinstance(output, BeamSearchOutput):
            aborted = any(s.finish_reason == "abort" for s in output.sequences)
            assert aborted or output.sequences == solo_beams(prompt, params)
            return
        seed = seed_of(self.engine, request, params)
        for index, (text, completion) in enumerate(zip(texts(output), output.outputs, strict=True)):
            expected = solo_text(prompt, params, seed + index)
            if completion.finish_reason == "abort":
                expected = expected[: len(text)]
            assert text == expected, f"sample {index} of request {request.request_id}"


def run(max_examples: int, phases: Sequence[Phase] = tuple(Phase)) -> None:
    run_state_machine_as_test(
        EngineMachine,
        settings=settings(
            max_examples=max_examples,
            stateful_step_count=30,
            phases=phases,
            report_multiple_bugs=False,
        ),
    )


def test_whatever_happens_the_promises_hold():
    run(max_examples=150)


@pytest.mark.slow
def test_whatever_happens_the_promises_hold_for_long():
    run(max_examples=4000)


BUGS: dict[str, tuple[type, str, dict[str, str]]] = {
    "1 lost token": (
        Scheduler,
        "preempt",
        {
            "sequence.num_computed_tokens = 0": "sequence.num_computed_tokens = 0;"
            "sequence.token_ids[request.num_prompt_tokens:] ="
            "sequence.token_ids[request.num_prompt_tokens:-1]"
        },
    ),
    "2 earliest preempted": (Scheduler, "_schedule_running", {"running[-1]": "running[0]"}),
    "3 victim with slots": (
        Scheduler,
        "_schedule_running",
        {"running[index]": "running[-1-index]"},
    ),
    "4 swapped in unshared": (KVCacheManager, "swap_in", {"swap_block in block_of": "False"}),
    "5 fork without the last block": (
        BlockTable,
        "forked",
        {"self.written_blocks(block_size)": "self.block_ids[:self.num_tokens // block_size]"},
    ),
    "6 late copies": (
        ScriptedRunner,
        "run",
        {
            "self._move(step)": "late, step.copies = step.copies, []; self._move(step)",
            'self._maybe_fail("written")': "step.copies = late; self._move(step)",
        },
    ),
    "7 hits counted as free": (KVCacheManager, "_lacks", {"num_free - free_hits": "num_free"}),
    "8 cached tokens counted twice": (
        Scheduler,
        "_admit",
        {
            "if request.num_cached_tokens is None": "if True",
            "request.num_cached_tokens = ": "request.num_cached_tokens ="
            "(request.num_cached_tokens or 0) + ",
        },
    ),
    "9 published too early": (
        KVCacheManager,
        "allocate",
        {
            "return table.num_tokens": "for hash in prefix_hashes(token_ids, self.block_size):\n"
            "        table.hashes.append(hash)\n"
            "    self._publish(table)\n"
            "    return table.num_tokens"
        },
    ),
    "10 admitted past swapped ones": (Scheduler, "schedule", {"if not self.swapped:": "if True:"}),
    "11 swap-outs lost": (Scheduler, "abort", {"if in_use[move.target]": "if False"}),
    "12 choice lost": (
        LLMEngine,
        "step",
        {
            "draws, beams = ": "self._scheduled = None; self.scheduler.commit(step);"
            "draws, beams = ",
            "self._complete(": "step.chunks = []; self._complete(",
        },
    ),
    "13 samples not counted": (Scheduler, "_schedule_waiting", {"r.width for": "1 for"}),
    "14 overtaken": (
        Scheduler,
        "_schedule_waiting",
        {
            "self.waiting[0]": "min(self.waiting, key=lambda r: r.num_prompt_tokens)",
            "self.waiting.popleft()": "self.waiting.remove(request)",
        },
    ),
    "15 samples part ways": (Scheduler, "_growth", {"gap - 1 for": "gap for"}),
    "16 aborted, but computed": (
        LLMEngine,
        "abort",
        {"self._scheduled.drop(live.request)": "pass"},
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(name, monkeypatch):
    owner, method, changes = BUGS[name]
    source = textwrap.dedent(inspect.getsource(getattr(owner, method)))
    for right, wrong in changes.items():
        assert source.count(right) == 1, f"{method} has changed: plant the bug anew"
        source = source.replace(right, wrong)
    planted: dict[str, Any] = {}
    exec(source, vars(sys.modules[owner.__module__]), planted)
    monkeypatch.setattr(owner, method, planted[method])
    with pytest.raises((AssertionError, LookupError, MinipagedError, RuntimeError, ValueError)):
        run(max_examples=2000, phases=[Phase.generate])
