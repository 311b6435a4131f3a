"""One simulation as a value: what it depends on, and what came out.

A `Run` is frozen, small and hashable, so that figures which need the same run share it, and so that
it travels to another process. `measure` carries one out, `measure_all` many, on several cores.

Averages are taken over a window: the first fifth of a run, in which everybody is young, is left
out, and so is its end, when nobody comes or waits any more and memory empties.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import mean
from typing import NamedTuple

from minipaged.engine.config import EngineConfig
from minipaged.errors import ConfigError
from minipaged.lab.cost import CostModel
from minipaged.lab.eviction import HeadFirstManager
from minipaged.lab.hardware import find_gpu
from minipaged.lab.loads import Load
from minipaged.lab.models import find_model
from minipaged.lab.results import SimulationResult, percentile
from minipaged.lab.simulator import simulate
from minipaged.lab.step_meter import StepMeter
from minipaged.lab.waste import Waste
from minipaged.memory.contiguous import ContiguousManager
from minipaged.memory.events import Observer
from minipaged.memory.kv_cache_manager import KVCacheManager
from minipaged.memory.manager import MemoryManager
from minipaged.memory.reservation import (
    ReservationPolicy,
    ReserveMax,
    ReserveOracle,
    ReservePow2,
)

SYSTEMS = ("orca-max", "orca-pow2", "orca-oracle", "paged")
MAX_LEN = 2048  # OPT's and LLaMA's longest text
OPT_13B_SLOTS = 15_728  # 12 GiB (the paper's table 1) by 800 KiB a token


@dataclass(frozen=True)
class Run:
    """Everything that a simulation depends on.

    Attributes:
        load: Who asks for what.
        system: "paged", or one of Orca's three rules for slabs.
        block_size: Tokens in a block; slabs are cut by the slot, whatever it says.
        num_slots: Tokens that fit into the pool.
        model: Decides, with `gpu`, how long a step takes.
        gpu: As the catalogue calls it.
        batching: "continuous" or "static".
        preemption: "recompute" or "swap", to as many blocks as the pool has.
        prefix_caching: Whether equal prefixes are found; paged only.
        head_first: Release blocks head first, so that a prefix's beginning is evicted first.
        chunk: The most tokens of a step if prompts may be cut, None if they may not.
    """

    load: Load = field(default_factory=Load)
    system: str = "paged"
    block_size: int = 16
    num_slots: int = OPT_13B_SLOTS
    model: str = "opt-13b"
    gpu: str = "a100-40g"
    batching: str = "continuous"
    preemption: str = "recompute"
    prefix_caching: bool = False
    head_first: bool = False
    chunk: int | None = None

    def __post_init__(self) -> None:
        if self.system not in SYSTEMS:
            raise ConfigError(f"a system is {', '.join(SYSTEMS)}, not {self.system!r}")
        if self.num_slots < self.unit:
            raise ConfigError(f"{self.num_slots} slots are less than a block of {self.block_size}")

    @property
    def unit(self) -> int:
        """Tokens in what the pool hands out: a block, or a slot of a slab."""
        return self.block_size if self.system == "paged" else 1

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool."""
        return self.num_slots // self.unit

    def config(self) -> EngineConfig:
        """Give the scheduler's settings; 256 sequences and 2,560 tokens a step were vLLM's."""
        return EngineConfig(
            block_size=self.unit,
            num_blocks=self.num_blocks,
            num_swap_blocks=self.num_blocks if self.preemption == "swap" else 0,
            max_num_seqs=256,
            max_num_batched_tokens=self.chunk or 2560,
            enable_prefix_caching=self.prefix_caching,
            enable_chunked_prefill=self.chunk is not None,
            preemption=self.preemption,
        )

    def manager(self, notify: Observer) -> MemoryManager:
        """Make the memory, empty."""
        if self.system == "paged":
            kind = HeadFirstManager if self.head_first else KVCacheManager
            config = self.config()
            return kind(
                self.num_blocks,
                self.block_size,
                num_swap_blocks=config.num_swap_blocks,
                enable_prefix_caching=self.prefix_caching,
                notify=notify,
            )
        policies: tuple[ReservationPolicy, ...]
        policies = (ReserveMax(MAX_LEN), ReservePow2(MAX_LEN), ReserveOracle())
        policy = next(policy for policy in policies if policy.name == self.system)
        return ContiguousManager(self.num_blocks, 1, policy, notify=notify)

    def cost(self) -> CostModel:
        """Make the clock."""
        return CostModel(find_model(self.model), find_gpu(self.gpu), self.unit)


class Outcome(NamedTuple):
    """What came out of a run; means over the window, unless it says otherwise.

    Attributes:
        waste: Slots by kind.
        batch: Requests in a step.
        requests_per_second: That ended in the window.
        tokens_per_second: New ones, of those requests, all samples counted.
        normalized_latency: Seconds a new token, from arrival to the end, over all requests.
        ttft: Seconds to the first token, over all requests.
        tpot: Seconds a token behind it, over all requests.
        slow_step: Seconds of a step that 1 % exceed: how long a reader may wait for the next word.
        step_seconds: Of a step on average.
        cached: The part (0 to 1) of the prompts' tokens that the prefix cache had.
        num_preemptions: In the whole run.
        num_copied_blocks: In the whole run.
        num_swapped_blocks: In the whole run.
        num_finished: Requests.
        num_refused: Requests that could never run.
        is_full: Whether somebody waited for memory in a quarter of the steps or more.
        saved_by_request: The part (0 to 1) of a request's blocks that sharing saved when it ended,
            averaged over the requests; `saved` is averaged over time.
        num_steps: In the whole run.
        seconds: The whole run, by the cost model.
    """

    waste: Waste
    batch: float
    requests_per_second: float
    tokens_per_second: float
    normalized_latency: float
    ttft: float
    tpot: float
    slow_step: float
    step_seconds: float
    cached: float
    num_preemptions: int
    num_copied_blocks: int
    num_swapped_blocks: int
    num_finished: int
    num_refused: int
    is_full: bool
    saved_by_request: float
    num_steps: int
    seconds: float

    @property
    def saved(self) -> float:
        """The part (0 to 1) of the blocks that sharing saved: saved / blocks without sharing."""
        return self.waste.shared / (self.waste.held + self.waste.shared)


def measure(run: Run) -> Outcome:
    """Carry a run out.

    Raises:
        WorkloadError: A file of lengths can't be read.
        ConfigError: A setting makes no sense, or no request could run.
    """
    meter = StepMeter(run.num_blocks, run.unit, run.load.width)
    manager = run.manager(meter.observe)
    result = simulate(
        run.load.requests(),
        run.config(),
        manager,
        run.cost(),
        batching=run.batching,
        observe=meter.observe,
    )
    if not result.requests:
        why = result.refused[0] if result.refused else "there are none"
        raise ConfigError(f"no request could run: {why}")
    return _outcome(result, meter)


def measure_all(
    runs: Iterable[Run], workers: int = 1, tell: Callable[[int, int], object] | None = None
) -> dict[Run, Outcome]:
    """Carry out each run once, on so many processes.

    `tell` hears (done, all) behind each. A script that takes more than one process needs the usual
    `if __name__ == "__main__":`.

    Raises:
        ConfigError: No request of a run could run, or a process ended before its run did.
    """
    different = sorted(set(runs), key=_size, reverse=True)
    outcomes: dict[Run, Outcome] = {}
    for run, outcome in zip(different, _outcomes(different, workers), strict=True):
        outcomes[run] = outcome
        if tell:
            tell(len(outcomes), len(different))
    return outcomes


def _outcomes(runs: Sequence[Run], workers: int) -> Iterator[Outcome]:
    if workers < 2 or len(runs) < 2:
        yield from map(measure, runs)
        return
    spawn = multiprocessing.get_context("spawn")  # a fork may copy another thread's locks
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(min(workers, len(runs)), spawn, _leave_ctrl_c) as pool:
        try:
            yield from pool.map(measure, runs)
        except BrokenProcessPool:
            raise ConfigError(
                "a process ended before its run did: a script that takes several needs the usual "
                'if __name__ == "__main__":'
            ) from None
        finally:  # whoever stops early waits for no run
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()


def _leave_ctrl_c() -> None:
    """Let the parent alone answer Ctrl-C; it ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _size(run: Run) -> int:
    """Give about how long a run takes, so that the longest begin first."""
    return run.load.num_requests * run.load.width * (8 if run.load.name == "sharegpt" else 1)


def _outcome(result: SimulationResult, meter: StepMeter) -> Outcome:
    line, requests = result.timeline, result.requests
    steps = [step for step, num_tokens in enumerate(line.num_tokens) if num_tokens]
    first, last = _window(result, steps)
    begin, end = line.time[steps[first]], line.time[steps[last - 1]]
    ended = [r for r in requests if begin < r.finish <= end] or requests
    span = end - begin or result.seconds
    seconds = [after - before for before, after in pairwise(line.time[steps[first] :])]
    prompt_tokens = sum(r.num_prompt_tokens for r in requests)
    return Outcome(
        waste=meter.series().average(first, last),
        batch=sum(line.num_running[step] for step in steps[first:last]) / (last - first),
        requests_per_second=len(ended) / span,
        tokens_per_second=sum(r.num_new_tokens * r.width for r in ended) / span,
        normalized_latency=result.mean_normalized_latency,
        ttft=result.mean_ttft,
        tpot=result.mean_tpot,
        slow_step=percentile(seconds, 99),
        step_seconds=span / (last - first),
        cached=sum(r.num_cached_tokens for r in requests) / prompt_tokens,
        num_preemptions=result.num_preemptions,
        num_copied_blocks=result.num_copied_blocks,
        num_swapped_blocks=result.num_swapped_blocks,
        num_finished=len(requests),
        num_refused=len(result.refused),
        is_full=4 * sum(line.num_waiting[step] > 0 for step in steps) >= len(steps),
        saved_by_request=mean(meter.savings),
        num_steps=result.num_steps,
        seconds=result.seconds,
    )


def _window(result: SimulationResult, steps: Sequence[int]) -> tuple[int, int]:
    """Give the first of the steps to look at, and the one behind the last."""
    line = result.timeline
    last_arrival = max(request.arrival for request in result.requests)
    busy = [
        number
        for number, step in enumerate(steps)
        if line.num_waiting[step] or line.time[step] < last_arrival
    ]
    stop = busy[-1] + 1 if busy else 0
    if stop < len(steps) // 5:  # memory was hardly ever short: there is nothing to leave out
        stop = len(steps)
    return stop // 5, stop
