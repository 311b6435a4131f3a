"""The cost of a step: worked out by hand, and right in what grows with what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from minipaged.engine.scheduler_output import Chunk, SchedulerOutput
from minipaged.engine.sequence import Request, Sequence
from minipaged.errors import ConfigError
from minipaged.lab.cost import CostModel
from minipaged.lab.hardware import GPUS
from minipaged.lab.models import MODELS
from minipaged.memory.kv_cache_manager import BlockMove

IDEAL = CostModel(
    MODELS["opt-13b"],
    GPUS["a100-40g"],
    compute_share=1.0,
    bandwidth_share=1.0,
    step_overhead=0.0,
    copy_overhead=0.0,
)
REQUEST = Request("r", (1,), 1, 1, 0)


def chunk(start: int, num_tokens: int) -> Chunk:
    return Chunk(REQUEST, Sequence(0, 0, [1]), start, num_tokens)


def moves(number: int) -> list[BlockMove]:
    return [BlockMove(block, block) for block in range(number)]


def test_a_decode_step_reads_the_weights_and_the_keys_and_values() -> None:
    weights = 2 * 12_853_473_280 / 1555e9
    assert IDEAL.compute_seconds([chunk(0, 1)]) == pytest.approx(weights, rel=1e-4)
    contexts = [chunk(1023, 1)] * 10
    assert IDEAL.compute_seconds(contexts) == pytest.approx(weights + 10 * 1024 * 819_200 / 1555e9)


def test_a_long_prompt_is_bound_by_arithmetic() -> None:
    flops = 2 * 12_853_473_280 * 2048 + 4 * 40 * 5120 * (2048 * 2049 / 2)
    assert IDEAL.compute_seconds([chunk(0, 2048)]) == pytest.approx(flops / 312e12)


def test_chunks_of_a_prompt_count_every_pair_of_tokens_once() -> None:
    whole = IDEAL.compute_seconds([chunk(0, 4096)])
    parts = [IDEAL.compute_seconds([chunk(start, 1024)]) for start in range(0, 4096, 1024)]
    assert sum(parts) == pytest.approx(whole)


def test_decodes_in_one_step_share_the_reading_of_the_weights() -> None:
    one = IDEAL.compute_seconds([chunk(100, 1)])
    assert IDEAL.compute_seconds([chunk(100, 1)] * 32) < 1.2 * one


def test_a_swap_goes_over_the_bus_and_a_copy_through_memory() -> None:
    block = 16 * 819_200
    assert IDEAL.block_bytes == block
    assert IDEAL.swap_seconds(10) == pytest.approx(10 * block / 31.5e9)
    assert IDEAL.copy_seconds(10) == pytest.approx(2 * 10 * block / 1555e9)


def test_many_small_copies_are_slower_than_few_large_ones() -> None:
    """Fig. 19 of the paper: swapping small blocks is slow, large ones are limited by bytes."""
    real = replace(IDEAL, copy_overhead=10e-6)
    seconds = [replace(real, block_size=size).swap_seconds(1024 // size) for size in (1, 16, 256)]
    assert seconds[0] > 5 * seconds[1] > 5 * seconds[2]
    assert seconds[2] == pytest.approx(1024 * 819_200 / 31.5e9, rel=0.2)


def test_a_step_is_its_moves_and_its_tokens() -> None:
    real = CostModel(MODELS["opt-13b"], GPUS["a100-40g"])
    step = SchedulerOutput(swap_outs=moves(2), swap_ins=moves(3), copies=moves(4))
    step.add(chunk(0, 100))
    assert real.seconds(step) == pytest.approx(
        real.swap_seconds(5) + real.copy_seconds(4) + real.compute_seconds(step.chunks)
    )
    assert real.seconds(SchedulerOutput(swap_outs=moves(2))) > real.swap_seconds(2)


def test_gpus_share_the_work() -> None:
    two = replace(IDEAL, num_gpus=2)
    for chunks in ([chunk(0, 2048)], [chunk(2047, 1)] * 8):
        assert two.compute_seconds(chunks) == pytest.approx(IDEAL.compute_seconds(chunks) / 2)
    assert two.swap_seconds(9) == pytest.approx(IDEAL.swap_seconds(9) / 2)


def test_what_is_faster_on_paper_is_faster_here() -> None:
    step = SchedulerOutput()
    for _ in range(30):
        step.add(chunk(500, 1))
    seconds = [
        CostModel(MODELS["llama-2-7b"], GPUS[name]).seconds(step)
        for name in ("t4", "l4", "a100-40g", "a100-80g", "h100", "h200")
    ]
    assert seconds[2:] == sorted(seconds[2:], reverse=True)
    assert min(seconds[:2]) > 2 * seconds[2]


@pytest.mark.parametrize(
    "settings",
    [
        {"block_size": 0},
        {"num_gpus": 0},
        {"compute_share": 0.0},
        {"bandwidth_share": 1.5},
        {"step_overhead": -1.0},
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        replace(IDEAL, **settings)
