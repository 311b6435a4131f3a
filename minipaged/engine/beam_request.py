"""Beam search on forked block tables: each beam is a sequence, and they share what they can.

When a beam goes on with two tokens it is forked; when it goes on with none it is freed. Forks come
first, so blocks that an heir still needs are never given back in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from minipaged.engine.outputs import BeamSearchOutput, BeamSearchSequence
from minipaged.engine.sampling_params import BeamSearchParams
from minipaged.engine.scheduler import Scheduler
from minipaged.engine.sequence import Request, Sequence
from minipaged.models.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor


class BeamRequest:
    """One search, and the request whose live sequences are its running beams, in the same order."""

    def __init__(
        self, request: Request, prompt: str | None, params: BeamSearchParams, tokenizer: Tokenizer
    ) -> None:
        from minipaged.engine.beam_search import BeamSearch

        self.request = request
        self.prompt = prompt
        self._tokenizer = tokenizer
        self._search = BeamSearch(params, tokenizer.eos_token_ids)

    def advance(
        self, logprobs: Tensor, scheduler: Scheduler, next_seq_id: Callable[[], int]
    ) -> list[tuple[Sequence, int, float]]:
        """Take every beam one token further.

        Args:
            logprobs: fp32 [num_beams, vocab_size], in the order of the request's live sequences.
            scheduler: Forks and frees the beams' blocks.
            next_seq_id: Names a new beam.

        Returns:
            (sequence, token id, the token's log-probability) of each beam that goes on.
        """
        parents = self.request.live
        extensions = self._search.advance(logprobs)
        heirs: list[Sequence] = []
        for parent_index, _ in extensions:
            parent = parents[parent_index]
            heirs.append(
                self._fork(parent, scheduler, next_seq_id()) if parent in heirs else parent
            )
        for heir, (_, token_id) in zip(heirs, extensions, strict=True):
            heir.token_ids.append(token_id)
        for parent in parents:
            if parent not in heirs:
                scheduler.finish(self.request, parent, "beam")
        ended = [s for s in self.request.sequences if s not in heirs]
        self.request.sequences = ended + heirs
        return [
            (heir, token_id, float(logprobs[parent_index, token_id]))
            for heir, (parent_index, token_id) in zip(heirs, extensions, strict=True)
        ]

    def output(self) -> BeamSearchOutput:
        """Give the beams, best first, once the search has ended."""
        finished = not self.request.live
        return BeamSearchOutput(
            request_id=self.request.request_id,
            prompt=self.prompt,
            prompt_token_ids=list(self.request.prompt_token_ids),
            sequences=self._sequences() if finished else [],
            finished=finished,
        )

    def _fork(self, parent: Sequence, scheduler: Scheduler, seq_id: int) -> Sequence:
        child = Sequence(seq_id, len(self.request.sequences), list(parent.token_ids))
        scheduler.fork(self.request, parent, child)
        return child

    def _sequences(self) -> list[BeamSearchSequence]:
        return [
            BeamSearchSequence(
                text=self._tokenizer.decode(beam.token_ids),
                token_ids=list(beam.token_ids),
                cumulative_logprob=beam.cumulative_logprob,
                score=beam.score,
                finish_reason=beam.finish_reason,
            )
            for beam in self._search.finish()
        ]
