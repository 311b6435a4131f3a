"""Beam search: follow the `beam_width` likeliest sequences side by side, keep the best that end.

The search does the book-keeping alone. Its caller runs the model on the running beams, hands in the
log-probabilities, and is told which beam goes on with which token. A beam that is named twice must
be forked, one that is not named freed:

    search = BeamSearch(params, eos_token_ids)
    while not search.is_done:
        logprobs = ...  # of the successors of search.running
        for parent, token_id in search.advance(logprobs):
            ...
    best = search.finish()

The rules are those of `generate(num_beams=..., early_stopping=False)` in transformers 5; the names
follow vLLM.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from minipaged.engine.sampler import top_k
from minipaged.engine.sampling_params import BeamSearchParams
from minipaged.engine.stopping import FinishReason
from minipaged.errors import ModelError


class Extension(NamedTuple):
    """The running beam `parent` goes on with `token_id`."""

    parent: int
    token_id: int


@dataclass(frozen=True)
class Beam:
    """A sequence that may go on: what it generated, and the log-probability of all that."""

    token_ids: tuple[int, ...]
    cumulative_logprob: float


@dataclass(frozen=True)
class BeamSequence:
    """A sequence that came to its end. `token_ids` are the generated ones, with EOS."""

    token_ids: tuple[int, ...]
    cumulative_logprob: float
    score: float
    finish_reason: FinishReason


class BeamSearch:
    """The state of one search.

    >>> search = BeamSearch(BeamSearchParams(beam_width=2, max_tokens=2), eos_token_ids=[0])
    >>> search.advance(torch.tensor([[0.1, 0.5, 0.4]]).log())
    [Extension(parent=0, token_id=1), Extension(parent=0, token_id=2)]
    >>> search.advance(torch.tensor([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]]).log())
    []
    >>> [(sequence.token_ids, sequence.finish_reason) for sequence in search.finish()]
    [((2, 2), 'length'), ((1, 1), 'length')]

    Attributes:
        running: Beams to run the model on, best first. The first is the prompt: no token generated.
        finished: The best sequences that ended, best first, `beam_width` at most.
        is_done: Whether all have ended, or no running beam is likely to do better than `finished`.
    """

    def __init__(self, params: BeamSearchParams, eos_token_ids: Collection[int]) -> None:
        self._params = params
        self._eos_token_ids = frozenset(() if params.ignore_eos else eos_token_ids)
        self.running = [Beam((), 0.0)]
        self.finished: list[BeamSequence] = []
        self.is_done = False

    def advance(self, logprobs: Tensor) -> list[Extension]:
        """Extend the running beams by one token.

        Args:
            logprobs: fp32 [num_running, vocab_size], of each beam's next token.

        Returns:
            How each of the next running beams arises, best first; nothing if the search is done.

        Raises:
            ModelError: A log-probability is NaN. Nothing was changed.
        """
        assert not self.is_done
        candidates = self._candidates(logprobs)
        width = self._params.beam_width
        # Ends beyond the first `width` are dropped: likelier sequences go on.
        ended = [self._end(beam) for _, beam in candidates[:width] if self._has_ended(beam)]
        going_on = [(how, beam) for how, beam in candidates if not self._has_ended(beam)][:width]
        self.finished = self._best([*self.finished, *ended])
        self.running = [beam for _, beam in going_on]
        if not self._can_improve():
            self.is_done = True
            self.running = []
            return []
        return [how for how, _ in going_on]

    def finish(self) -> list[BeamSequence]:
        """Give the `beam_width` best sequences, best first.

        If the search is not done, running beams compete as they are, for "abort". There are fewer
        sequences only if so few are possible.
        """
        return self._best([*self.finished, *(self._end(beam) for beam in self.running)])

    def _candidates(self, logprobs: Tensor) -> list[tuple[Extension, Beam]]:
        """Give the best extensions of all beams, best first.

        So many that `beam_width` go on, even if each beam's best tokens are all the kinds of EOS.
        """
        length = len(self.running[0].token_ids)
        if logprobs.amax().isnan():
            raise ModelError(
                f"the model gave NaN or infinite logits for token {length} of the beams"
            )
        before = torch.tensor([beam.cumulative_logprob for beam in self.running]).to(logprobs)
        totals = (before[:, None] + logprobs).flatten()  # [num_running * vocab_size]
        best = top_k(totals, max(2, 1 + len(self._eos_token_ids)) * self._params.beam_width)
        return [
            self._extend(index // logprobs.shape[1], index % logprobs.shape[1], total)
            for index, total in zip(best.tolist(), totals[best].tolist(), strict=True)
            if total > -math.inf
        ]

    def _extend(self, parent: int, token_id: int, total: float) -> tuple[Extension, Beam]:
        token_ids = (*self.running[parent].token_ids, token_id)
        return Extension(parent, token_id), Beam(token_ids, total)

    def _finish_reason(self, beam: Beam) -> FinishReason | None:
        if beam.token_ids and beam.token_ids[-1] in self._eos_token_ids:
            return "stop"
        return "length" if len(beam.token_ids) == self._params.max_tokens else None

    def _has_ended(self, beam: Beam) -> bool:
        return self._finish_reason(beam) is not None

    def _end(self, beam: Beam) -> BeamSequence:
        reason = self._finish_reason(beam) or "abort"
        return BeamSequence(beam.token_ids, beam.cumulative_logprob, self._score(beam), reason)

    def _score(self, beam: Beam) -> float:
        length = max(1, len(beam.token_ids))
        return beam.cumulative_logprob / math.pow(length, self._params.length_penalty)

    def _best(self, sequences: list[BeamSequence]) -> list[BeamSequence]:
        by_score = sorted(sequences, key=lambda sequence: -sequence.score)
        return by_score[: self._params.beam_width]

    def _can_improve(self) -> bool:
        """Tell whether the best running beam, if it ended as it is, would be one of the finished.

        A heuristic: the score is a mean, and may rise again with the tokens to come.
        """
        if not self.running:
            return False
        has_room = len(self.finished) < self._params.beam_width
        return has_room or self._score(self.running[0]) > self.finished[-1].score
