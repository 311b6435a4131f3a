"""The real scheduler and engine on contiguous slabs: same texts, same replay, same invariants."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged.engine.sampling_params import SamplingParams
from minipaged.engine.sequence import Request
from minipaged.engine.uniform import hash64
from minipaged.errors import RequestRefusedError
from minipaged.lab.waste import measure
from minipaged.memory.contiguous import ContiguousManager
from minipaged.memory.integrity import check_trace
from minipaged.memory.reservation import (
    ReservationPolicy,
    ReserveMax,
    ReserveOracle,
    ReservePow2,
)
from minipaged.memory.trace import Trace

from .scripted_model import MAX_MODEL_LEN, ScriptedEngine, solo_text

POLICIES: tuple[ReservationPolicy, ...] = (
    ReserveMax(MAX_MODEL_LEN),
    ReservePow2(MAX_MODEL_LEN),
    ReserveOracle(),
)
LENGTH = st.integers(1, 20)


class SlabEngine(ScriptedEngine):
    """The scripted engine with a contiguous manager in the paged one's place."""

    manager: ContiguousManager  # type: ignore[assignment]

    def __init__(self, num_blocks: int, policy: ReservationPolicy, **options: Any) -> None:
        super().__init__(num_blocks, **options)
        self.manager = ContiguousManager(
            num_blocks, self.config.block_size, policy, notify=self.trace.observe
        )
        self.scheduler.manager = self.manager
        self.trace.header = replace(self.trace.header, allocator=policy.name)

    def add(self, prompt: Any, max_tokens: int = 8, **options: Any) -> Request:
        """Announce and queue a request."""
        request = super().add(prompt, max_tokens, **options)
        seqs = [sequence.seq_id for sequence in request.sequences]
        self.manager.announce(seqs, request.num_prompt_tokens, request.max_tokens)
        return request


def wanted(engine: SlabEngine, request: Request, **options: Any) -> list[list[int]]:
    """Give the texts of a request's samples as they come out when nobody else is there."""
    params = SamplingParams(max_tokens=request.max_tokens, ignore_eos=True, **options)
    seed = hash64(engine.config.seed, int(request.request_id))
    return [
        solo_text(request.prompt_token_ids, params, seed + index) for index in range(request.width)
    ]


def made(request: Request) -> list[list[int]]:
    return [s.token_ids[request.num_prompt_tokens :] for s in request.sequences]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@settings(max_examples=15)
@given(
    asked=st.lists(
        st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(1, 3)), max_size=8
    ),
    block_size=st.sampled_from([1, 4]),
    budget=st.integers(4, 40),
)
def test_texts_come_out_as_if_each_were_alone(policy, asked, block_size, budget):
    engine = SlabEngine(
        256 // block_size,
        policy,
        block_size=block_size,
        max_num_seqs=4,
        max_num_batched_tokens=budget,
    )
    requests = [
        (engine.add([7 + n] * num_prompt, num_new, n=width), width)
        for n, (num_prompt, num_new, width) in enumerate(asked)
    ]
    engine.finish()
    for request, _ in requests:
        assert made(request) == wanted(engine, request)
    waste = measure(engine.trace.header, engine.trace.steps)
    for number in range(len(waste)):
        now = waste.at(number)
        assert now.tokens + now.reserved + now.internal + now.external == now.pool == 256
        assert min(now) >= 0
        if policy.name == "orca-oracle":
            assert now.internal == 0


def test_seven_of_the_longest_texts_fit_whatever_they_need():
    engine = SlabEngine(491, ReserveMax(MAX_MODEL_LEN), block_size=1)  # 7 x 64, and 43
    for _ in range(9):
        engine.add("a", max_tokens=4)
    engine.steps(1)
    first = [str(number) for number in range(7)]
    assert engine.queues() == (["7", "8"], first, [])
    engine.steps(2)
    assert engine.queues() == (["7", "8"], first, [])  # 43 slots are free, and of no use
    engine.steps(2)
    assert engine.queues() == ([], ["7", "8"], [])
    engine.finish()


def test_first_come_first_served_even_if_the_next_would_fit():
    engine = SlabEngine(64, ReserveOracle(), block_size=1)
    engine.add("a", max_tokens=20)
    engine.add("abcdefgh", max_tokens=30)  # 37 slots: a slab of all 64
    engine.add("a", max_tokens=2)
    engine.steps(1)
    assert engine.queues()[:2] == (["1", "2"], ["0"])
    engine.finish()


def test_slabs_of_samples_are_there_before_they_fork():
    engine = SlabEngine(64, ReserveOracle(), block_size=1)
    request = engine.add("abc", max_tokens=6, n=2)
    other = engine.add("abc", max_tokens=50)
    engine.steps(1)
    assert engine.tables(request) == [list(range(8)), list(range(8, 16))]
    assert engine.queues()[0] == [other.request_id]
    engine.finish()
    assert made(request) == wanted(engine, request)


def test_a_sample_that_ends_at_its_first_token_leaves_its_siblings_their_prompt():
    engine = SlabEngine(64, ReserveMax(16), block_size=4)
    request = engine.add("abc", max_tokens=1, n=3)
    engine.finish()
    assert made(request) == wanted(engine, request)


def test_abort_gives_slabs_back_before_and_after_the_fork():
    engine = SlabEngine(64, ReserveOracle(), block_size=1, max_num_batched_tokens=4, max_num_seqs=4)
    early, late = engine.add("abcdef", n=2), engine.add("abc", n=2)
    engine.steps(1)
    engine.abort(early.request_id)
    engine.check()
    engine.steps(2)
    engine.abort(late.request_id)
    engine.check()
    assert engine.manager.pool.num_free == 64


def test_a_request_that_is_aborted_while_it_waits_is_withdrawn():
    engine = SlabEngine(64, ReserveOracle(), block_size=1)
    engine.add("abc", max_tokens=40)
    second, third = engine.add("abc", max_tokens=40), engine.add("abc", max_tokens=3)
    engine.steps(1)
    engine.abort(second.request_id)
    engine.manager.withdraw(second.sequences[0].seq_id)
    engine.finish()
    assert made(third) == wanted(engine, third)


def test_what_can_never_run_is_refused_with_the_numbers():
    engine = SlabEngine(100, ReserveMax(MAX_MODEL_LEN), block_size=1)
    with pytest.raises(RequestRefusedError, match=r"needs 2 slabs of 64 blocks, .* room for 1"):
        engine.add("abc", max_tokens=3, n=2)


def test_a_recorded_run_passes_the_referee(tmp_path: Path):
    engine = SlabEngine(64, ReservePow2(MAX_MODEL_LEN), block_size=4)
    for length in (3, 9, 5):
        engine.add("a" * length, max_tokens=length, n=2)
    engine.finish()
    engine.trace.save(tmp_path / "run.jsonl")
    steps, events = check_trace(tmp_path / "run.jsonl")
    assert (steps, events > 40) == (len(engine.trace.steps), True)
    again = Trace.load(tmp_path / "run.jsonl")
    assert again == engine.trace
    assert again.header.allocator == "orca-pow2"
