"""The meter of steps: one sample a step, however a prompt is cut."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minipaged.engine.config import EngineConfig
from minipaged.lab.simulator import simulate
from minipaged.lab.step_meter import StepMeter
from minipaged.lab.workloads import LabRequest
from minipaged.memory.contiguous import ContiguousManager
from minipaged.memory.events import Observer
from minipaged.memory.kv_cache_manager import KVCacheManager
from minipaged.memory.manager import MemoryManager
from minipaged.memory.reservation import ReserveMax


def paged(notify: Observer) -> MemoryManager:
    return KVCacheManager(num_blocks=64, block_size=4, notify=notify)


def slabs(notify: Observer) -> MemoryManager:
    return ContiguousManager(64, 4, ReserveMax(128), notify=notify)


@pytest.mark.parametrize("batching", ["continuous", "static"])
@pytest.mark.parametrize("make", [paged, slabs])
def test_every_step_has_its_sample_although_a_prompt_comes_in_chunks(
    make: Callable[[Observer], MemoryManager], batching: str
) -> None:
    config = EngineConfig(block_size=4, num_blocks=64, max_num_batched_tokens=16, max_num_seqs=8)
    meter = StepMeter(num_blocks=64, block_size=4)
    load = [LabRequest(0.0, 100, 5), LabRequest(0.0, 30, 9)]
    manager = make(meter.observe)
    result = simulate(load, config, manager, batching=batching, observe=meter.observe)
    assert meter.num_samples == result.num_steps
    assert [meter.series().at(step).tokens for step in range(3)] == [16, 32, 48]
