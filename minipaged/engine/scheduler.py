"""Who computes what in the next step, and who gives way when memory runs out.

One rule covers prefill, chunked prefill and decode: a step closes the gap between the tokens a
sequence knows and those whose KV exists, as far as the token budget goes. First come, first served;
when blocks run out, the latest arrival is preempted. Plain Python: it runs without a model.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable
from operator import attrgetter

from minipaged.engine.config import EngineConfig
from minipaged.engine.scheduler_output import Chunk, SchedulerOutput
from minipaged.engine.sequence import Request, Sequence
from minipaged.errors import RequestRefusedError
from minipaged.memory.block_table import blocks_at_most, blocks_for
from minipaged.memory.events import Finished, Observer, Preempted, Requested, ignore
from minipaged.memory.kv_cache_manager import AllocStatus, BlockMove
from minipaged.memory.manager import MemoryManager

_BY_ARRIVAL = attrgetter("arrival")


class Scheduler:
    """Three queues of requests (waiting, running, swapped) in order of arrival."""

    def __init__(
        self, config: EngineConfig, manager: MemoryManager, notify: Observer = ignore
    ) -> None:
        self.config = config
        self.manager = manager
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.swapped: deque[Request] = deque()
        self._swap_outs: list[BlockMove] = []
        self._notify = notify

    @property
    def has_unfinished(self) -> bool:
        """Whether any request still waits, runs or is swapped out."""
        return bool(self.waiting or self.running or self.swapped)

    def add(self, request: Request) -> None:
        """Queue a request, or refuse one that can never run here.

        Raises:
            RequestRefusedError: It needs more sequences or more blocks than there are at all.
        """
        self.check(request)
        self.waiting.append(request)
        self._notify(
            Requested(request.sequences[0].seq_id, request.request_id, request.num_prompt_tokens)
        )

    def check(self, request: Request) -> None:
        """Raise RequestRefusedError, with the numbers, if a request can never run here."""
        limit, pool = self.config.max_num_seqs, self.manager.pool
        if request.width > limit:
            raise RequestRefusedError(
                f"{request.width} sequences asked for, but max_num_seqs is {limit}"
            )
        at_most = self._blocks_at_most(request)
        if at_most > pool.num_blocks:
            raise RequestRefusedError(
                f"needs up to {at_most} blocks, the pool has {pool.num_blocks}: "
                f"{request.num_prompt_tokens} prompt tokens, {request.width} x "
                f"{request.max_tokens} new ones, {self.manager.block_size} tokens a block"
            )

    def schedule(self) -> SchedulerOutput:
        """Decide the next step and reserve its blocks.

        Running requests come first, in order of arrival. If none of them had to be preempted,
        swapped ones come back, and if none is left outside, waiting ones are admitted.
        """
        step = SchedulerOutput()
        preempted = self._schedule_running(step)
        if not preempted:
            self._schedule_swapped(step)
            if not self.swapped:
                self._schedule_waiting(step)
        step.swap_outs, self._swap_outs = self._swap_outs, []
        return step

    def commit(self, step: SchedulerOutput) -> None:
        """Note that the step was computed: KV exists, and finished prompts are forked."""
        self.manager.commit([(c.sequence.seq_id, c.token_ids) for c in step.chunks])
        for chunk in step.chunks:
            chunk.sequence.num_computed_tokens += chunk.num_tokens
            request = chunk.request
            if not request.is_forked and request.num_tokens_to_compute(chunk.sequence) == 0:
                self._fork_samples(request, chunk.sequence)

    def fork(self, request: Request, parent: Sequence, child: Sequence) -> None:
        """Give `child` the parent's blocks and let it run as a sequence of the same request."""
        self.manager.fork(parent.seq_id, child.seq_id)
        child.num_computed_tokens = parent.num_computed_tokens
        if child not in request.sequences:
            request.sequences.append(child)

    def finish(self, request: Request, sequence: Sequence, reason: str) -> None:
        """End one sequence and free its blocks; with its last sequence the request leaves."""
        sequence.finish_reason = reason
        if sequence is request.sequences[0] or sequence.num_tokens > request.num_prompt_tokens:
            self._notify(Finished(sequence.seq_id, reason))  # a sample begins with its fork
        if self.manager.has(sequence.seq_id):
            self.manager.free(sequence.seq_id, "aborted" if reason == "abort" else "finished")
        if not request.live:
            for queue in (self.waiting, self.running, self.swapped):
                if request in queue:
                    queue.remove(request)

    def abort(self, request: Request) -> None:
        """End every live sequence of a request, wherever it is."""
        for sequence in request.live:
            self.finish(request, sequence, "abort")
        in_use = self.manager.swap_pool.ref_count
        self._swap_outs = [move for move in self._swap_outs if in_use[move.target]]

    def preempt(self, request: Request, why: str) -> None:
        """Take all blocks of a running request; it will continue later where it stopped."""
        self.running.remove(request)
        seqs = [s.seq_id for s in request.live if self.manager.has(s.seq_id)]
        swap = self.config.preemption == "swap" and self.manager.can_swap_out(seqs)
        for seq in seqs:
            self._notify(Preempted(seq, "swap" if swap else "recompute", why))
        if swap:
            self._swap_outs.extend(self.manager.swap_out(seqs))
            insort(self.swapped, request, key=_BY_ARRIVAL)
            return
        for seq in reversed(seqs):
            self.manager.free(seq, "preempted")
        request.is_forked = False
        for sequence in request.live:
            sequence.num_computed_tokens = 0
        insort(self.waiting, request, key=_BY_ARRIVAL)

    # --- inside -------------------------------------------------------------------------------

    def _schedule_running(self, step: SchedulerOutput) -> bool:
        """Give every running request its tokens; tell whether any had to be preempted for it."""
        preempted = False
        index = 0
        while index < len(self.running):
            request = self.running[index]
            growth = self._growth(request, step)
            while (needed := self._blocks_to_append(growth)) > self.manager.pool.num_free:
                victim = self.running[-1]
                free = self.manager.pool.num_free
                self.preempt(victim, f"{_names(growth)} needs {needed} blocks, {free} free")
                preempted = True
                if victim is request:
                    return True
            self._reserve(request, growth, step)
            index += 1
        return preempted

    def _schedule_swapped(self, step: SchedulerOutput) -> None:
        while self.swapped and self._budget(step) > 0:
            request = self.swapped[0]
            seqs = [s.seq_id for s in request.live if self.manager.has(s.seq_id)]
            needed = self.manager.blocks_to_swap_in(seqs)
            if self.running:  # alone it always fits
                needed += self._blocks_to_go_on(request)
            if needed > self.manager.pool.num_free:
                return
            self.swapped.popleft()
            step.swap_ins.extend(self.manager.swap_in(seqs))
            self._run(request, step)

    def _schedule_waiting(self, step: SchedulerOutput) -> None:
        while self.waiting and self._budget(step) > 0:
            request = self.waiting[0]
            num_running = sum(r.width for r in self.running)
            if num_running + request.width > self.config.max_num_seqs:
                return
            if not self._admit(request, step):
                return
            self.waiting.popleft()
            self._run(request, step)

    def _admit(self, request: Request, step: SchedulerOutput) -> bool:
        """Allocate a waiting request's prompt if it may start now."""
        prefix, leader = request.prefix(), request.live[0]
        if not self.config.enable_chunked_prefill:
            num_new = len(prefix) - self.manager.count_cached_tokens(prefix)
            if num_new > self._budget(step):
                return False
        not_forked = [request, *(r for r in self.running if not r.is_forked)]
        status = self.manager.can_allocate(
            prefix,
            at_most=self._blocks_at_most(request),
            extra=sum(map(self._blocks_after_fork, not_forked)),
        )
        assert status is not AllocStatus.NEVER, "refused when it was added"
        if status is AllocStatus.LATER:
            return False
        leader.num_computed_tokens = self.manager.allocate(leader.seq_id, prefix)
        if request.num_cached_tokens is None:
            request.num_cached_tokens = leader.num_computed_tokens
        return True

    def _run(self, request: Request, step: SchedulerOutput) -> None:
        insort(self.running, request, key=_BY_ARRIVAL)
        self._reserve(request, self._growth(request, step), step)

    def _growth(self, request: Request, step: SchedulerOutput) -> dict[Sequence, int]:
        """Give how many tokens each sequence computes in this step, within the budget.

        Sequences of a forked request take the last step together, as beams are compared then: those
        that are behind (after recomputation) first catch up to one missing token.
        """
        budget = self._budget(step)
        computing = request.computing
        gaps = {s: request.num_tokens_to_compute(s) for s in computing}
        if len(computing) > 1:
            if all(gap == 1 for gap in gaps.values()):
                return gaps if len(gaps) <= budget else {}
            gaps = {s: gap - 1 for s, gap in gaps.items()}
        growth = {}
        for sequence, gap in gaps.items():
            num_tokens = min(gap, budget)
            if num_tokens > 0 and (num_tokens == gap or self.config.enable_chunked_prefill):
                growth[sequence] = num_tokens
                budget -= num_tokens
        return growth

    def _reserve(
        self, request: Request, growth: dict[Sequence, int], step: SchedulerOutput
    ) -> None:
        for sequence, num_tokens in growth.items():
            step.copies.extend(self.manager.append_slots(sequence.seq_id, num_tokens))
            step.add(Chunk(request, sequence, sequence.num_computed_tokens, num_tokens))

    def _fork_samples(self, request: Request, leader: Sequence) -> None:
        request.is_forked = True
        for sibling in request.live:
            if sibling is not leader:
                self.fork(request, leader, sibling)

    def _budget(self, step: SchedulerOutput) -> int:
        return self.config.max_num_batched_tokens - step.num_tokens

    def _blocks_to_append(self, growth: dict[Sequence, int]) -> int:
        return self.manager.blocks_to_append({s.seq_id: n for s, n in growth.items()})

    def _blocks_at_most(self, request: Request) -> int:
        return blocks_at_most(
            request.num_prompt_tokens, request.max_tokens, request.width, self.manager.block_size
        )

    def _blocks_to_go_on(self, request: Request) -> int:
        """Give the most blocks that the known tokens of a swapped request take on its return.

        A copy-on-write or a new block for the first token of each sequence, new ones for the rest.
        Without them it would be pushed out again at once.
        """
        gaps = map(request.num_tokens_to_compute, request.computing)
        return sum(1 + blocks_for(gap - 1, self.manager.block_size) for gap in gaps)

    def _blocks_after_fork(self, request: Request) -> int:
        """Give the blocks that samples take soon after the prompt: copies, and tokens they have."""
        if len(request.live) == 1:
            return 0
        size = self.manager.block_size
        shared = request.num_prompt_tokens // size
        own = sum(blocks_for(s.num_tokens, size) - shared for s in request.live)
        return shared + own - blocks_for(request.num_prompt_tokens, size)


def _names(sequences: Iterable[Sequence]) -> str:
    return "seq " + ", ".join(str(s.seq_id) for s in sequences)
