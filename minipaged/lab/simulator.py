"""The real scheduler over a real manager, fed with lengths instead of a model's answers.

Every step is scheduled, timed by a cost model, and committed; then each sequence that would have
drawn a token gets one that stands for nothing. So memory does exactly what it does under a model,
events included, and 10,000 requests take seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from minipaged.engine.config import EngineConfig
from minipaged.engine.scheduler import Scheduler
from minipaged.engine.scheduler_output import SchedulerOutput
from minipaged.lab.results import SimulationResult
from minipaged.lab.workloads import LabRequest
from minipaged.memory.events import Observer, ignore
from minipaged.memory.kv_cache_manager import KVCacheManager


class StepCost(Protocol):
    """How long a step takes."""

    def seconds(self, step: SchedulerOutput) -> float:
        """Give the duration of a step (seconds)."""


class Moment(NamedTuple):
    """What an onlooker sees behind a step."""

    time: float
    step: SchedulerOutput
    scheduler: Scheduler


def simulate(
    workload: Iterable[LabRequest],
    config: EngineConfig,
    manager: KVCacheManager,
    cost: StepCost | None = None,
    *,
    batching: str = "continuous",
    observe: Observer = ignore,
    after_step: Callable[[Moment], object] | None = None,
    sample_every: int = 0,
) -> SimulationResult:
    """Run a workload to its end and tell how it went.

    Args:
        workload: Sorted by arrival; taken one by one, so it may be long.
        config: What a step may hold, and how victims give way. The manager's own sizes count.
        manager: Fresh, and made by the caller: paged or contiguous.
        cost: How long a step takes; None: one second, so that times count steps.
        batching: "continuous" admits whenever there is room; "static" only once everybody of the
            batch before is done, and nobody leaves before the longest.
        observe: Gets the scheduler's events; give the manager the same one.
        after_step: Called behind each step, when its tokens are known.
        sample_every: Keep a snapshot of memory every so many steps; 0: none.
    """
    raise NotImplementedError
