"""Static batching, as it was before Orca: the batch is closed, and everybody waits for the longest.

Who comes while a batch is under way stays outside. Who is done keeps its memory, and gets its
answer, when the last one of the batch is done.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minipaged.engine.scheduler_output import SchedulerOutput
from minipaged.lab.live_request import LiveRequest
from minipaged.lab.simulation import Simulation
from minipaged.lab.workloads import LabRequest


class StaticBatching(Simulation):
    """A simulation in which batches neither grow nor shrink."""

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self._outside: list[LabRequest] = []
        self._held: list[LiveRequest] = []

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to compute before somebody comes."""
        return super().is_idle and not self._outside

    @property
    def num_waiting(self) -> int:
        """Requests that have come and don't run."""
        return super().num_waiting + len(self._outside)

    def arrive(self, lab: LabRequest) -> None:
        """Let a request in between two batches, keep it outside during one."""
        if self.scheduler.running:
            self._outside.append(lab)
        else:
            super().arrive(lab)

    def _schedule(self) -> SchedulerOutput:
        step = super()._schedule()
        if step.is_empty:  # whoever is held has the memory that the others need
            self._end_batch()
            step = super()._schedule()
        return step

    def _leave(self, done: Iterable[LiveRequest]) -> None:
        """Keep who is done until nobody that runs has anything left to do."""
        for live in done:
            live.hold()
            self._held.append(live)
        if {live.request for live in self._held}.issuperset(self.scheduler.running):
            self._end_batch()

    def _end_batch(self) -> None:
        held, self._held = self._held, []
        super()._leave(held)
        outside, self._outside = self._outside, []
        for lab in outside:
            self.arrive(lab)
