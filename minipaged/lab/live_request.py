"""A lab request while it runs: the scheduler's view of it, and tokens that stand for nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from minipaged.engine.scheduler import Scheduler
from minipaged.engine.sequence import Request, Sequence
from minipaged.lab.results import RequestTimes
from minipaged.lab.workloads import LabRequest, text


@dataclass(eq=False, slots=True)
class LiveRequest:
    """What was asked for, the scheduler's request, and its times so far.

    `is_held` tells that it is done, and keeps its memory until the others of its batch are.
    """

    lab: LabRequest
    request: Request
    times: RequestTimes
    is_held: bool = False

    @property
    def has_begun(self) -> bool:
        """Whether there is a first token."""
        return self.request.sequences[0].num_tokens > self.lab.num_prompt_tokens

    @property
    def is_done(self) -> bool:
        """Whether every sequence has its last token; all of them are equally long."""
        sequence = self.request.sequences[0]
        return sequence.num_tokens - self.lab.num_prompt_tokens >= self.lab.num_new_tokens

    def grow(self, scheduler: Scheduler, next_seq_id: Callable[[], int]) -> None:
        """Give every sequence its next token; beams go on as their search went."""
        if self.lab.beam_parents is not None:
            self._part(scheduler, next_seq_id)
        for sequence in self.request.sequences:
            sequence.token_ids.append(self._token(sequence))

    def hold(self) -> None:
        """Keep what it has, and ask for no more: without its last token nothing is to compute."""
        self.is_held = True
        for sequence in self.request.sequences:
            sequence.token_ids.pop()

    def _part(self, scheduler: Scheduler, next_seq_id: Callable[[], int]) -> None:
        """Fork the beams that go on twice, then free those that don't go on."""
        assert self.lab.beam_parents is not None
        parents = self.request.live
        done = parents[0].num_tokens - self.lab.num_prompt_tokens
        heirs: list[Sequence] = []
        for index in self.lab.beam_parents[done]:
            heir = parents[index]
            if heir in heirs:
                heir = Sequence(next_seq_id(), len(heirs), list(parents[index].token_ids))
                scheduler.fork(self.request, parents[index], heir)
            heirs.append(heir)
        for parent in parents:
            if parent not in heirs:
                scheduler.finish(self.request, parent, "beam")
        self.request.sequences = heirs

    def _token(self, sequence: Sequence) -> int:
        """Give the token that the workload names for the first sequence; otherwise one of its own.

        Nobody else has the same, so that the prefix cache finds nothing that is not there.
        """
        position, named = sequence.num_tokens, self.lab.token_ids
        if named is not None and sequence.index == 0 and position < len(named):
            return named[position]
        return text(-1 - sequence.seq_id, 0).start + position


def go_live(lab: LabRequest, number: int, next_seq_id: Callable[[], int]) -> LiveRequest:
    """Build the scheduler's request: `n` samples exist from the start, beams part later."""
    seq_ids = [next_seq_id() for _ in range(1 if lab.beam_parents else lab.width)]
    named = tuple((lab.token_ids or ())[: lab.num_prompt_tokens])
    prompt = (*named, *text(-1 - seq_ids[0], lab.num_prompt_tokens)[len(named) :])
    request = Request(f"request {number}", prompt, lab.width, lab.num_new_tokens, number)
    request.sequences = [Sequence(seq, index, list(prompt)) for index, seq in enumerate(seq_ids)]
    times = RequestTimes(lab.arrival, lab.num_prompt_tokens, lab.num_new_tokens, lab.width)
    return LiveRequest(lab, request, times)
