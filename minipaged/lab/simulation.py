"""A run in progress: the clock, the requests that are under way, and what is noted of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Protocol

from minipaged.engine.config import EngineConfig
from minipaged.engine.scheduler import Scheduler
from minipaged.engine.scheduler_output import SchedulerOutput
from minipaged.engine.sequence import Request
from minipaged.errors import RequestRefusedError
from minipaged.lab.live_request import LiveRequest, go_live
from minipaged.lab.results import SimulationResult
from minipaged.lab.workloads import LabRequest
from minipaged.memory.contiguous import ContiguousManager
from minipaged.memory.events import Event, Finished, Observer, Preempted, Sampled, ignore
from minipaged.memory.manager import MemoryManager


class StepCost(Protocol):
    """How long a step takes."""

    def seconds(self, step: SchedulerOutput) -> float:
        """Give the duration of a step (seconds)."""


class Simulation:
    """The clock, the requests that are under way, and what is noted of them."""

    def __init__(
        self,
        config: EngineConfig,
        manager: MemoryManager,
        cost: StepCost | None = None,
        observe: Observer = ignore,
    ) -> None:
        self.now = 0.0
        self.result = SimulationResult()
        self.scheduler = Scheduler(config, manager, self._observe)
        self._cost = cost
        self._pass_on = observe
        self._live: dict[str, LiveRequest] = {}
        self._of_sequence: dict[int, LiveRequest] = {}
        self._numbers, self._seq_ids = count(), count()

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to compute before somebody comes."""
        return not self._live

    @property
    def num_waiting(self) -> int:
        """Requests that have come and don't run."""
        return len(self.scheduler.waiting)

    def arrive(self, lab: LabRequest) -> None:
        """Let a request in, or list it as refused if it can never run here."""
        self.now = max(self.now, lab.arrival)
        live = go_live(lab, next(self._numbers), self._next_seq_id)
        try:
            self._check(live.request)
        except RequestRefusedError as e:
            self.result.refused.append(f"{live.request.request_id}: {e}")
            return
        self._live[live.request.request_id] = live
        self._name_sequences(live)
        self.scheduler.add(live.request)

    def step(self) -> SchedulerOutput:
        """Schedule a step, let its time pass, and note that its KV exists."""
        step = self._schedule()
        assert not step.is_empty, "nobody can go on"
        self.now += self._cost.seconds(step) if self._cost else 1.0
        self.scheduler.commit(step)
        self._note(step)
        return step

    def advance(self, step: SchedulerOutput) -> None:
        """Give every sequence its next token that waits for one, and let go who is done."""
        names = dict.fromkeys(c.request.request_id for c in step.chunks if c.needs_logits)
        drawing = [live for name in names if not (live := self._live[name]).is_held]
        if not drawing:
            return
        for live in drawing:
            if not live.has_begun:
                live.times.first_token = self.now
                live.times.num_cached_tokens = live.request.num_cached_tokens or 0
            live.grow(self.scheduler, self._next_seq_id)
            if live.lab.beam_parents:
                self._name_sequences(live)
        self._pass_on(_sampled(drawing))
        self._leave([live for live in drawing if live.is_done])

    # --- inside -------------------------------------------------------------------------------

    def _schedule(self) -> SchedulerOutput:
        return self.scheduler.schedule()

    def _leave(self, done: Iterable[LiveRequest]) -> None:
        """Let go who has all tokens."""
        for live in done:
            live.times.finish = self.now
            for sequence in live.request.live:
                self.scheduler.finish(live.request, sequence, "length")
            self.result.requests.append(live.times)
            del self._live[live.request.request_id]

    def _next_seq_id(self) -> int:
        return next(self._seq_ids)

    def _name_sequences(self, live: LiveRequest) -> None:
        self._of_sequence.update((sequence.seq_id, live) for sequence in live.request.sequences)

    def _check(self, request: Request) -> None:
        """Raise RequestRefusedError if it can never run; contiguous memory must know of it."""
        self.scheduler.check(request)
        config, num_tokens = self.scheduler.config, request.num_prompt_tokens + request.max_tokens
        if not config.enable_chunked_prefill and num_tokens > config.max_num_batched_tokens:
            raise RequestRefusedError(
                f"without chunked prefill a step must hold all {num_tokens} tokens: "
                f"max_num_batched_tokens is {config.max_num_batched_tokens}"
            )
        if isinstance(manager := self.scheduler.manager, ContiguousManager):
            seqs = [sequence.seq_id for sequence in request.sequences]
            manager.announce(seqs, request.num_prompt_tokens, request.max_tokens)

    def _note(self, step: SchedulerOutput) -> None:
        timeline, pool = self.result.timeline, self.scheduler.manager.pool
        timeline.time.append(self.now)
        timeline.num_running.append(len(self.scheduler.running))
        timeline.num_waiting.append(self.num_waiting)
        timeline.num_tokens.append(step.num_tokens)
        timeline.num_used_blocks.append(pool.num_blocks - pool.num_free)
        self.result.num_copied_blocks += len(step.copies)
        self.result.num_swapped_blocks += len(step.swap_outs) + len(step.swap_ins)

    def _observe(self, event: Event) -> None:
        """Note who was preempted; a group counts once."""
        if isinstance(event, Finished):
            del self._of_sequence[event.seq]
        elif isinstance(event, Preempted):
            live = self._of_sequence[event.seq]
            live.times.num_preemptions += event.seq == live.request.live[0].seq_id
        self._pass_on(event)


def _sampled(drawing: Sequence[LiveRequest]) -> Sampled:
    sequences = [sequence for live in drawing for sequence in live.request.sequences]
    return Sampled(
        seqs=tuple([sequence.seq_id for sequence in sequences]),
        tokens=tuple([sequence.token_ids[-1] for sequence in sequences]),
        texts=("·",) * len(sequences),
        millinats=(0,) * len(sequences),
    )
