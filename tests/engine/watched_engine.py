"""An LLM that is checked after every step: its trace is replayed beside it, blocks are counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from minipaged import LLM
from minipaged.engine.sequence import Request
from minipaged.memory.integrity import check_manager
from minipaged.memory.replay import Replay

MAX_STEPS = 3000


class WatchedLLM:
    """Runs requests on an LLM and checks memory after each step and at the end.

    Attributes:
        num_steps: Of the last run.
        num_preempted: By hand or by need, of the last run.
        num_interrupted: Steps that ended in a KeyboardInterrupt, of the last run.
    """

    def __init__(self, model: str | Path, **options: Any) -> None:
        self.llm = LLM(str(model), trace=True, **options)
        header = self.llm.trace.header
        self._replay = Replay(header.num_blocks, header.block_size, header.num_swap_blocks)
        self._num_replayed = [0, 0]  # steps, and events of the step that has not ended
        self.num_steps = self.num_preempted = self.num_interrupted = 0

    def run(
        self,
        requests: Sequence[tuple[Any, Any]],
        before_step: Callable[[int], None] = lambda step: None,
    ) -> list[Any]:
        """Run (prompt, params) to their ends, and give the outputs in order.

        `before_step` is called with the number of steps that this run has behind it.
        """
        self.num_steps = self.num_preempted = self.num_interrupted = 0
        ids = [self.llm.add_request(prompt, params) for prompt, params in requests]
        outputs: dict[str, Any] = {}
        while self.llm.has_unfinished_requests():
            assert self.num_steps < MAX_STEPS, "the engine does not come to an end"
            before_step(self.num_steps)
            try:
                outputs |= {output.request_id: output for output in self.llm.step()}
            except KeyboardInterrupt:
                self.num_interrupted += 1
            self.num_steps += 1
            self.check()
        self.check_idle()
        return [outputs[request_id] for request_id in ids]

    def run_preempting(
        self, requests: Sequence[tuple[Any, Any]], at_step: int, victim: int
    ) -> list[Any]:
        """Run, and preempt one of the running requests before a step."""

        def preempt(step: int) -> None:
            running = self.running
            if step == at_step and running:
                self.llm.engine.scheduler.preempt(running[victim % len(running)], "by hand")
                self.check()

        return self.run(requests, preempt)

    @property
    def running(self) -> list[Request]:
        return self.llm.engine.scheduler.running

    def check(self) -> None:
        """Replay what is new, and compare it with the manager."""
        for event in self._new_events():
            self._replay.apply(event)
            self.num_preempted += event.kind == "preempt"
        assert self._replay.snapshot() == self.llm.memory()
        check_manager(self.llm.engine.manager)

    def check_idle(self) -> None:
        """Every block is free, here and in the swap pool, and nobody waits."""
        self.check()
        memory = self.llm.memory()
        assert memory.num_free == memory.num_blocks
        assert not any(memory.swap_ref_counts)
        assert not memory.tables
        assert not memory.swap_tables
        assert not self.llm.has_unfinished_requests()

    def _new_events(self) -> Iterator[Any]:
        trace = self.llm.trace
        steps, ahead = self._num_replayed
        for step in trace.steps[steps:]:
            yield from step.events[ahead:]
            ahead = 0
        pending = trace.pending()
        yield from pending[ahead:]
        self._num_replayed = [len(trace.steps), len(pending)]
