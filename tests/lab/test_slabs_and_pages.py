"""The same requests in slabs and in pages: the same work on one clock, as the scene claims."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minipaged.errors import ConfigError
from minipaged.lab.side_by_side import (
    POLICIES,
    Scene,
    SideBySideRuns,
    run_side_by_side,
    summarize,
)
from minipaged.lab.stories import VOCABULARY
from minipaged.lab.waste import measure
from minipaged.memory.events import BlockAllocated, Finished, Prefilled, Requested, Sampled, Written
from minipaged.memory.integrity import check_trace
from minipaged.memory.trace import Trace

SCENES = [Scene(policy=policy) for policy in POLICIES]
SCENES += [Scene(policy="pow2", seed=5, num_requests=12), Scene(num_blocks=50, block_size=3)]


def name(scene: Scene) -> str:
    return f"{scene.policy}-{scene.num_blocks}x{scene.block_size}-{scene.seed}"


@pytest.fixture(params=SCENES, ids=name)
def scene(request: pytest.FixtureRequest) -> Scene:
    return request.param


@pytest.fixture
def runs(scene: Scene) -> SideBySideRuns:
    return run_side_by_side(scene)


def texts(trace: Trace) -> dict[int, list[str]]:
    """The words that each sequence's KV was computed for in the end, and the last one sampled."""
    kept: dict[int, list[str]] = {}
    for step in trace.steps:
        for event in step.events:
            if isinstance(event, Prefilled):
                kept[event.seq] = kept.get(event.seq, [])[: event.start] + list(event.texts)
            elif isinstance(event, Written):
                for seq, text in zip(event.seqs, event.texts, strict=True):
                    kept[seq].append(text)
            elif isinstance(event, Sampled):
                last = dict(zip(event.seqs, event.texts, strict=True))
            elif isinstance(event, Finished):
                kept[event.seq].append(last[event.seq])
    return kept


def arrivals(trace: Trace) -> list[tuple[int, int, int]]:
    return [
        (step.step, event.seq, event.num_prompt_tokens)
        for step in trace.steps
        for event in step.events
        if isinstance(event, Requested)
    ]


def test_both_do_the_same_work(scene: Scene, runs: SideBySideRuns) -> None:
    asked = list(scene.requests())
    words = {
        seq: [f" {VOCABULARY[token]}" for token in request.token_ids or ()]
        for seq, request in enumerate(asked)
    }
    assert texts(runs.slabs) == texts(runs.paged) == words
    assert arrivals(runs.slabs) == arrivals(runs.paged)
    assert [row[1:] for row in arrivals(runs.paged)] == [
        (seq, request.num_prompt_tokens) for seq, request in enumerate(asked)
    ]


def test_both_have_one_step_clock_and_two_arrivals_a_step(runs: SideBySideRuns) -> None:
    for trace in runs:
        assert [step.step for step in trace.steps] == list(range(len(trace.steps)))
        assert [step for step, *_ in arrivals(trace)] == [
            n // 2 for n in range(len(arrivals(trace)))
        ]


def test_slabs_refuse_while_pages_go_on(scene: Scene, runs: SideBySideRuns) -> None:
    slabs, paged = map(summarize, runs)
    assert slabs.first_wait is not None
    assert "slots in a row" in slabs.why
    assert paged.first_wait is None or paged.first_wait > slabs.first_wait
    assert paged.most_running > slabs.most_running
    assert paged.num_steps < slabs.num_steps
    assert paged.token_share > slabs.token_share
    assert slabs.num_preemptions == 0


def test_everybody_is_done_in_the_end_and_memory_is_free(
    scene: Scene, runs: SideBySideRuns, tmp_path
) -> None:
    for trace in runs:
        finished = [e for step in trace.steps for e in step.events if isinstance(e, Finished)]
        assert len(finished) == scene.num_requests
        trace.save(tmp_path / "run.jsonl")
        assert check_trace(tmp_path / "run.jsonl")[0] == len(trace.steps)


def test_the_note_tells_what_is_missing() -> None:
    runs = run_side_by_side(Scene())
    slabs = summarize(runs.slabs)
    assert (slabs.first_wait, slabs.most_running) == (1, 3)
    assert slabs.why == "request 3 waits: no 32 slots in a row, 16 of 112 are free"
    free = measure(runs.slabs.header, runs.slabs.steps).at(1).free
    assert free == 16
    assert all(not step.note for step in runs.paged.steps)


def test_pages_that_run_out_say_so_too() -> None:
    paged = summarize(run_side_by_side(Scene(num_requests=40)).paged)
    assert paged.first_wait is not None
    assert "of 28 blocks are free" in paged.why


def test_the_same_scene_is_the_same_run_and_another_seed_is_not() -> None:
    scene = Scene()
    assert run_side_by_side(scene) == run_side_by_side(scene)
    assert run_side_by_side(scene) != run_side_by_side(replace(scene, seed=1))


def test_nothing_is_found_in_a_cache() -> None:
    runs = run_side_by_side(Scene(num_requests=30))
    kinds = {event.kind for trace in runs for step in trace.steps for event in step.events}
    assert "hit" not in kinds
    assert BlockAllocated.kind in kinds
    assert "reserve" in kinds


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"policy": "best"}, "a policy is max, pow2 or oracle, not 'best'"),
        ({"num_blocks": 3}, "a pool of 3 blocks of 4 is too small: 12 slots, at least 48"),
        ({"num_blocks": 10**6}, "num_blocks must be 1 to 4096, not 1000000"),
        ({"num_blocks": 28.0}, "num_blocks must be 1 to 4096, not 28.0"),
        ({"num_blocks": "28"}, "num_blocks must be 1 to 4096, not '28'"),
        ({"num_blocks": None}, "num_blocks must be 1 to 4096, not None"),
        ({"block_size": 0}, "block_size must be 1 to 256, not 0"),
        ({"block_size": True}, "block_size must be 1 to 256, not True"),
        ({"num_requests": 0}, "requests must be 1 to 1000, not 0"),
        ({"num_requests": 10**9}, "requests must be 1 to 1000, not 1000000000"),
    ],
)
def test_a_scene_that_can_not_be_is_one_clear_line(options: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Scene(**options)
