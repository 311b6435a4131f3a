"""The real scheduler over a real manager, fed with lengths instead of a model's answers.

Every step is scheduled, timed by a cost model, and committed; then each sequence that would have
drawn a token gets one that stands for nothing. So memory does exactly what it does under a model,
events included, and 10,000 requests take seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from minipaged.engine.config import EngineConfig
from minipaged.engine.scheduler import Scheduler
from minipaged.errors import ConfigError, WorkloadError
from minipaged.lab.results import SimulationResult
from minipaged.lab.simulation import Simulation, StepCost
from minipaged.lab.static_batching import StaticBatching
from minipaged.lab.workloads import LabRequest
from minipaged.memory.events import Observer, ignore
from minipaged.memory.manager import MemoryManager

_BATCHING: Mapping[str, type[Simulation]] = {
    "continuous": Simulation,
    "static": StaticBatching,
}


class Moment(NamedTuple):
    """What an onlooker sees behind a step, when who is done has left."""

    time: float
    num_prefill_tokens: int
    num_decode_tokens: int
    scheduler: Scheduler


def simulate(
    workload: Iterable[LabRequest],
    config: EngineConfig,
    manager: MemoryManager,
    cost: StepCost | None = None,
    *,
    batching: str = "continuous",
    observe: Observer = ignore,
    sample: Callable[[], object] | None = None,
    after_step: Callable[[Moment], object] | None = None,
) -> SimulationResult:
    """Run a workload to its end and tell how it went.

    Args:
        workload: Sorted by arrival, of any length: no more wait inside than could start at once,
            the others are taken when it is their turn. Who can never run here is refused and
            listed.
        config: What a step may hold, and how victims give way. The manager's own sizes count.
        manager: Fresh, and made by the caller: paged or contiguous.
        cost: How long a step takes; None: one second, so that times count steps.
        batching: "continuous" admits whenever there is room; "static" lets nobody in before all of
            the batch are done, and nobody leave before the longest.
        observe: Gets the scheduler's events; give the manager the same one.
        sample: Called in each step when its KV exists and everybody still holds theirs, such as
            `WasteMeter.sample`.
        after_step: Called behind each step, such as what ends a trace's step.

    Raises:
        ConfigError: `batching` is none of these.
        WorkloadError: The workload is not sorted.
    """
    if batching not in _BATCHING:
        raise ConfigError(f"batching is {' or '.join(_BATCHING)}, not {batching!r}")
    run = _BATCHING[batching](config, manager, cost, observe)
    coming = _in_order(workload)
    upcoming = next(coming, None)
    while upcoming or not run.is_idle:
        while upcoming and _may_arrive(upcoming, run):
            run.arrive(upcoming)
            upcoming = next(coming, None)
        if run.is_idle:
            break  # the last ones were refused
        step = run.step()
        if sample:
            sample()
        decode = step.num_decode_tokens if after_step else 0
        run.advance(step)
        if after_step:
            after_step(Moment(run.now, step.num_tokens - decode, decode, run.scheduler))
    return run.result


def _may_arrive(lab: LabRequest, run: Simulation) -> bool:
    has_room = run.num_waiting < run.scheduler.config.max_num_seqs
    return run.is_idle or (has_room and lab.arrival <= run.now)


def _in_order(workload: Iterable[LabRequest]) -> Iterator[LabRequest]:
    last = 0.0
    for number, request in enumerate(workload):
        if request.arrival < last:
            raise WorkloadError(
                f"request {number} arrives at {request.arrival:g} s, the one before it at {last:g}"
            )
        last = request.arrival
        yield request
