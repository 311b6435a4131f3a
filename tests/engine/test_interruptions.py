"""Whoever is preempted or aborted, and when: the others' tokens, and one's own, stay the same."""

from __future__ import annotations

import random
from typing import Any

import pytest
from random_models import NUM_BEAMS, RandomModel, Variant, random_prompt
from watched_engine import WatchedLLM

from minipaged import BeamSearchParams, SamplingParams

MAX_TOKENS = 8
WAYS = ["recompute", "swap"]
REQUESTS: list[tuple[list[int], Any]] = [
    (random_prompt(6), SamplingParams(n=3, temperature=0.9, seed=5, max_tokens=MAX_TOKENS)),
    (random_prompt(9), BeamSearchParams(beam_width=NUM_BEAMS, max_tokens=MAX_TOKENS)),
    (random_prompt(3), SamplingParams(temperature=0, max_tokens=MAX_TOKENS)),
]


def start(model: RandomModel, how: str, **options: Any) -> WatchedLLM:
    return WatchedLLM(
        model.folder,
        **{
            "block_size": 4,
            "num_blocks": 64,
            "num_swap_blocks": 64 if how == "swap" else 0,
            "preemption": how,
            "max_num_seqs": 8,
            "max_num_batched_tokens": 8,
            **options,
        },
    )


def essence(output: Any) -> Any:
    """All that must be the same: tokens, texts, ends, and scores but for rounding."""
    samples = output.outputs if hasattr(output, "outputs") else output.sequences
    return [
        (
            one.token_ids,
            one.text,
            one.finish_reason,
            pytest.approx(one.cumulative_logprob, abs=1e-4),
        )
        for one in samples
    ]


@pytest.fixture
def model(random_model) -> RandomModel:
    return random_model(Variant("Mistral", ends=True, window=True))


@pytest.fixture
def expected(model) -> list[Any]:
    """Each request's output when it runs alone, in one piece, without cached blocks."""
    alone = start(model, "recompute", enable_prefix_caching=False, max_num_batched_tokens=64)
    return [essence(alone.run([request])[0]) for request in REQUESTS]


@pytest.mark.parametrize("cache", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("how", WAYS)
def test_anybody_is_preempted_before_any_step(model, expected, how, cache) -> None:
    watched = start(model, how, enable_prefix_caching=cache)
    watched.run(REQUESTS)
    num_preempted = 0
    for step in range(1, watched.num_steps):
        for victim in range(len(REQUESTS)):
            outputs = watched.run_preempting(REQUESTS, at_step=step, victim=victim)
            assert [essence(output) for output in outputs] == expected
            num_preempted += watched.num_preempted
    assert num_preempted > 20


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("how", WAYS)
def test_many_are_preempted_at_random(model, expected, how, seed) -> None:
    watched = start(model, how, num_swap_blocks=6 if how == "swap" else 0)
    chance = random.Random(seed)

    def preempt_some(step: int) -> None:
        for request in list(watched.running):
            if chance.random() < 0.2:
                watched.llm.engine.scheduler.preempt(request, "by chance")
                watched.check()

    outputs = watched.run(REQUESTS * 2, preempt_some)
    assert [essence(output) for output in outputs] == expected * 2
    assert watched.num_preempted > 5


@pytest.mark.parametrize("num_swap_blocks", [0, 1, 8, 32])
@pytest.mark.parametrize("block_size", [1, 4])
def test_memory_runs_out(model, expected, block_size, num_swap_blocks) -> None:
    watched = start(
        model,
        "swap" if num_swap_blocks else "recompute",
        block_size=block_size,
        num_blocks={1: 37, 4: 12}[block_size],
        num_swap_blocks=num_swap_blocks,
    )
    outputs = watched.run(REQUESTS * 3)
    assert [essence(output) for output in outputs] == expected * 3
    assert watched.num_preempted > 2


@pytest.mark.parametrize("planned", [False, True], ids=["between steps", "in a planned step"])
@pytest.mark.parametrize("how", WAYS)
def test_anybody_is_aborted_before_any_step(model, expected, how, planned) -> None:
    watched = start(model, how, num_blocks=14, num_swap_blocks=8 if how == "swap" else 0)
    watched.run(REQUESTS)
    assert watched.num_preempted
    for at_step in range(watched.num_steps):
        for victim in range(len(REQUESTS)):
            outputs = run_aborting(watched, at_step, victim, planned)
            for index, whole in enumerate(expected):
                if index != victim:
                    assert essence(outputs[index]) == whole
                else:
                    check_beginning(outputs[index], whole)


def run_aborting(watched: WatchedLLM, at_step: int, victim: int, planned: bool) -> list[Any]:
    """Run the requests; one is aborted before a step, perhaps after that step was scheduled."""
    llm = watched.llm
    ids = [llm.add_request(*request) for request in REQUESTS]
    outputs: dict[str, Any] = {}
    step = 0
    while llm.has_unfinished_requests():
        if step == at_step and ids[victim] not in outputs_that_ended(outputs):
            if planned:
                llm.engine.schedule()
                watched.check()
            outputs[ids[victim]] = llm.abort(ids[victim])
            watched.check()
        outputs |= {output.request_id: output for output in llm.step()}
        watched.check()
        step += 1
    watched.check_idle()
    return [outputs[request_id] for request_id in ids]


def outputs_that_ended(outputs: dict[str, Any]) -> set[str]:
    return {request_id for request_id, output in outputs.items() if output.finished}


def check_beginning(output: Any, whole: Any) -> None:
    assert output.finished
    if hasattr(output, "sequences"):
        assert all(beam.finish_reason for beam in output.sequences)
        return
    for one, (token_ids, text, reason, _) in zip(output.outputs, whole, strict=True):
        assert one.token_ids == token_ids[: len(one.token_ids)]
        assert text.startswith(one.text)
        assert one.finish_reason in ("abort", reason)


@pytest.mark.parametrize("where", ["run", "sample"])
@pytest.mark.parametrize("how", WAYS)
def test_a_step_that_was_interrupted_is_run_again(model, expected, how, where, monkeypatch) -> None:
    watched = start(model, how, num_blocks=14, num_swap_blocks=8 if how == "swap" else 0)
    watched.run(REQUESTS)
    assert watched.num_preempted
    runner = watched.llm.engine.runner
    work, armed = getattr(runner, where), []

    def interrupted(*args: Any) -> Any:
        result = work(*args)
        if armed:
            armed.pop()
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(runner, where, interrupted)
    num_interrupted = 0
    for at_step in range(watched.num_steps):
        outputs = watched.run(REQUESTS, lambda step, at=at_step: step == at and armed.append(at))
        num_interrupted += watched.num_interrupted
        assert [essence(output) for output in outputs] == expected
    assert num_interrupted > 10


def test_a_step_that_fails_half_done_ends_its_requests(model, expected, monkeypatch) -> None:
    watched = start(model, "recompute", num_blocks=14)
    commit = watched.llm.engine.scheduler.commit

    def fail(step: Any) -> None:
        commit(step)
        raise MemoryError

    for num_steps in range(12):
        for request in REQUESTS:
            watched.llm.add_request(*request)
        for _ in range(num_steps):
            watched.llm.step()
        with monkeypatch.context() as patch:
            patch.setattr(watched.llm.engine.scheduler, "commit", fail)
            with pytest.raises(MemoryError):
                watched.llm.step()
        watched.check()
        while watched.llm.has_unfinished_requests():  # who was not part of that step goes on
            watched.llm.step()
        watched.check_idle()
    assert [essence(output) for output in watched.run(REQUESTS)] == expected
