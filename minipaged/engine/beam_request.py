"""Beam search on forked block tables: each beam is a sequence, and they share what they can.

When a beam goes on with two tokens it is forked; when it goes on with none it is freed. Forks come
first, so blocks that an heir still needs are never given back in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from typing import TYPE_CHECKING, NamedTuple

from minipaged.engine.outputs import BeamSearchOutput, BeamSearchSequence
from minipaged.engine.sampling_params import BeamSearchParams
from minipaged.engine.scheduler import Scheduler
from minipaged.engine.sequence import Request, Sequence
from minipaged.models.tokenizer import Detokenizer, Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from minipaged.engine.beam_search import BeamSearch


class BeamChoice(NamedTuple):
    """The search one token further, and how: (parent's index, token id, log-probability)."""

    search: BeamSearch
    extensions: list[tuple[int, int, float]]


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

    def choose(self, logprobs: Tensor) -> BeamChoice:
        """Choose how the beams go on by a token. Nothing is changed yet.

        Args:
            logprobs: fp32 [num_beams, vocab_size], in the order of the request's live sequences.
        """
        search = copy(self._search)
        extensions = search.advance(logprobs)
        return BeamChoice(
            search,
            [(parent, token, float(logprobs[parent, token])) for parent, token in extensions],
        )

    def advance(
        self, choice: BeamChoice, scheduler: Scheduler, next_seq_id: Callable[[], int]
    ) -> list[tuple[Sequence, int, float]]:
        """Take every beam one token further.

        Args:
            choice: What `choose` gave.
            scheduler: Forks and frees the beams' blocks.
            next_seq_id: Names a new beam.

        Returns:
            (sequence, token id, the token's log-probability) of each beam that goes on.
        """
        self._search = choice.search
        parents = self.request.live
        heirs: list[Sequence] = []
        for parent_index, _, _ in choice.extensions:
            parent = parents[parent_index]
            heirs.append(
                self._fork(parent, scheduler, next_seq_id()) if parent in heirs else parent
            )
        for heir, (_, token_id, _) in zip(heirs, choice.extensions, strict=True):
            heir.token_ids.append(token_id)
        why = "search" if self._search.is_done else "beam"
        for parent in parents:
            if parent not in heirs:
                scheduler.finish(self.request, parent, why)
        self.request.sequences = heirs
        return [
            (heir, token_id, logprob)
            for heir, (_, token_id, logprob) in zip(heirs, choice.extensions, strict=True)
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
                text=self._text(beam.token_ids),
                token_ids=list(beam.token_ids),
                cumulative_logprob=beam.cumulative_logprob,
                score=beam.score,
                finish_reason=beam.finish_reason,
            )
            for beam in self._search.finish()
        ]

    def _text(self, token_ids: Iterable[int]) -> str:
        detokenizer = Detokenizer(self._tokenizer, continues=True)
        detokenizer.feed(token_ids)
        detokenizer.flush()
        return detokenizer.text
