"""The same requests through contiguous slabs and through pages: two traces with one step clock.

Two requests come in each step, and both runs are the real scheduler with the same limits; only who
manages memory differs. So row k of either trace is the same step, and a run that ends first stays
where it is. The requests tell small made-up stories, so that every slot shows a word. Nothing but
memory makes anybody wait; the note of a step says who waits, and for what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from minipaged.engine.config import EngineConfig
from minipaged.errors import ConfigError
from minipaged.lab.simulator import Moment, simulate
from minipaged.lab.stories import story, token_text
from minipaged.lab.waste import measure
from minipaged.lab.workloads import LabRequest, LengthStatistics, lengths
from minipaged.memory.block_table import blocks_for
from minipaged.memory.buddy import order_for
from minipaged.memory.contiguous import ContiguousManager
from minipaged.memory.events import (
    BlockAllocated,
    Event,
    Finished,
    Observer,
    Preempted,
    Sampled,
    SlabReserved,
    short,
)
from minipaged.memory.kv_cache_manager import KVCacheManager
from minipaged.memory.manager import MemoryManager
from minipaged.memory.reservation import (
    ReservationPolicy,
    ReserveMax,
    ReserveOracle,
    ReservePow2,
)
from minipaged.memory.trace import Trace, TraceHeader

_POLICIES: dict[str, Callable[[int], ReservationPolicy]] = {
    "max": ReserveMax,
    "pow2": ReservePow2,
    "oracle": lambda max_len: ReserveOracle(),
}
POLICIES = tuple(_POLICIES)
_LEAST_SLOTS = 48  # three texts of 16
_MOST_REQUESTS = 1000
_ARRIVALS = 2  # requests a step
_TITLE = "The same requests in contiguous and in paged memory"


@dataclass(frozen=True)
class Scene:
    """What both runs have in common, and the rule for slabs.

    Attributes:
        policy: "max", "pow2" or "oracle": how much a slab reserves.
        num_blocks: Blocks in the pool.
        block_size: Tokens in a block.
        num_requests: Two come in each step.
        seed: The same seed tells the same stories, equally long.
    """

    policy: str = "max"
    num_blocks: int = 28
    block_size: int = 4
    num_requests: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ConfigError(f"a policy is max, pow2 or oracle, not {self.policy!r}")
        _check_size("num_blocks", self.num_blocks, 4096)
        _check_size("block_size", self.block_size, 256)
        _check_size("requests", self.num_requests, _MOST_REQUESTS)
        if self.num_slots < _LEAST_SLOTS:
            raise ConfigError(
                f"a pool of {self.num_blocks} blocks of {self.block_size} is too small: "
                f"{self.num_slots} slots, at least {_LEAST_SLOTS} are needed"
            )

    @property
    def num_slots(self) -> int:
        """Tokens that fit into the pool."""
        return self.num_blocks * self.block_size

    @property
    def max_model_len(self) -> int:
        """The longest text: the largest power of two that fits into the pool three times.

        >>> Scene(num_blocks=28, block_size=4).max_model_len
        32
        """
        return 1 << (self.num_slots // 3).bit_length() - 1

    def config(self) -> EngineConfig:
        """Give limits that stop nobody: whoever waits, waits for memory."""
        return EngineConfig(
            block_size=self.block_size,
            num_blocks=self.num_blocks,
            max_num_seqs=self.num_requests,
            max_num_batched_tokens=self.num_requests * self.max_model_len,
            max_model_len=self.max_model_len,
            enable_prefix_caching=False,
            seed=self.seed,
        )

    def requests(self) -> Iterator[LabRequest]:
        """Let the requests arrive, each with its words."""
        longest = self.max_model_len
        statistics = LengthStatistics(longest / 6, longest / 4, 0.3, 0.6)
        drawn = lengths(statistics, self.num_requests, max_len=longest, seed=self.seed)
        for number, (prompt, new) in enumerate(drawn):
            words = story(f"story {self.seed} {number}", prompt + new)
            yield LabRequest(float(number // _ARRIVALS), prompt, new, token_ids=words)


def _check_size(name: str, value: object, most: int) -> None:
    if type(value) is not int or not 1 <= value <= most:
        raise ConfigError(f"{name} must be 1 to {most}, not {short(value)}")


class SideBySideRuns(NamedTuple):
    """The same requests twice; row k of either trace is the same step."""

    slabs: Trace
    paged: Trace


class RunSummary(NamedTuple):
    """How one of the runs went.

    Attributes:
        num_steps: Steps until everybody was done.
        most_running: The most requests that ran in one step.
        token_share: The part (0 to 1) of all slots that held a token, on average over its steps.
        empty_share: The part that somebody held and that was empty, on average.
        num_preemptions: How often somebody had to give way.
        first_wait: The first step that could not let a request in; None: each could.
        why: What was missing then.
    """

    num_steps: int
    most_running: int
    token_share: float
    empty_share: float
    num_preemptions: int
    first_wait: int | None
    why: str


def run_side_by_side(scene: Scene) -> SideBySideRuns:
    """Run a scene in slabs and in pages."""
    policy = _POLICIES[scene.policy](scene.max_model_len)
    sizes = scene.num_blocks, scene.block_size

    def slabs(notify: Observer) -> MemoryManager:
        return ContiguousManager(*sizes, policy, notify=notify, token_text=token_text)

    def pages(notify: Observer) -> MemoryManager:
        return KVCacheManager(
            *sizes, enable_prefix_caching=False, notify=notify, token_text=token_text
        )

    return SideBySideRuns(_run(scene, policy.name, slabs), _run(scene, "paged", pages))


def summarize(trace: Trace) -> RunSummary:
    """Tell how a run of a scene went."""
    running: set[int] = set()
    most = preemptions = 0
    for event in (event for step in trace.steps for event in step.events):
        if isinstance(event, BlockAllocated | SlabReserved):
            running.add(event.seq)
            most = max(most, len(running))
        elif isinstance(event, Preempted | Finished):
            running.discard(event.seq)
            preemptions += isinstance(event, Preempted)
    first = next((step for step in trace.steps if step.note), None)
    average = measure(trace.header, trace.steps).average()
    tokens, empty = average.share("tokens"), average.share("reserved") + average.share("internal")
    number, why = (first.step, first.note) if first else (None, "")
    return RunSummary(len(trace.steps), most, tokens, empty, preemptions, number, why)


def _run(scene: Scene, allocator: str, make: Callable[[Observer], MemoryManager]) -> Trace:
    trace = Trace(_header(scene, allocator))

    def observe(event: Event) -> None:
        if isinstance(event, Sampled):  # the simulator's tokens stand for nothing, ours are words
            event = replace(event, texts=tuple(map(token_text, event.tokens)))
        trace.observe(event)

    manager = make(observe)
    free: list[int] = [scene.num_blocks]

    def end_step(moment: Moment) -> None:
        note = _note(scene, manager, moment, free[-1])
        trace.end_step(moment.num_prefill_tokens, moment.num_decode_tokens, note)

    simulate(
        scene.requests(),
        scene.config(),
        manager,
        observe=observe,
        sample=lambda: free.append(manager.pool.num_free),
        after_step=end_step,
    )
    trace.close()
    return trace


def _note(scene: Scene, manager: MemoryManager, moment: Moment, num_free: int) -> str:
    """Say who is first of those that wait, and what is missing; nothing where nobody waits."""
    waiting = moment.scheduler.waiting
    if not waiting:
        return ""
    first, size = waiting[0], scene.block_size
    if not isinstance(manager, ContiguousManager):
        return f"{first.request_id} waits: {num_free} of {scene.num_blocks} blocks are free"
    reserved = manager.policy.reserve(first.num_prompt_tokens, first.max_tokens)
    slab = size << order_for(blocks_for(reserved, size))
    return (
        f"{first.request_id} waits: no {slab} slots in a row, "
        f"{num_free * size} of {scene.num_slots} are free"
    )


def _header(scene: Scene, allocator: str) -> TraceHeader:
    header = scene.config().trace_header({"name": "made-up stories"}, 0, _TITLE)
    return replace(header, allocator=allocator)
