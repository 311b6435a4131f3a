"""A request that samples: `n` texts of one prompt, forked after it, drawn side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minipaged.engine.completion import Completion
from minipaged.engine.outputs import RequestOutput
from minipaged.engine.sampling_params import SamplingParams
from minipaged.engine.scheduler import Scheduler
from minipaged.engine.sequence import Request, Sequence
from minipaged.models.tokenizer import Tokenizer

if TYPE_CHECKING:
    from minipaged.engine.sampler import SampledToken, SamplingRow


class SampleRequest:
    """The request, its params, and a growing completion for each of its sequences."""

    def __init__(
        self,
        request: Request,
        prompt: str | None,
        params: SamplingParams,
        seed: int,
        tokenizer: Tokenizer,
    ) -> None:
        self.request = request
        self.prompt = prompt
        self.params = params
        self._seed = seed
        self.completions = {s: Completion(s.index, params, tokenizer) for s in request.sequences}

    def draws(self, rows: list[int]) -> list[tuple[Sequence, int, SamplingRow]]:
        """Give (sequence, row of logits, how to draw) for each live sample.

        Just behind the prompt there is one row, and all samples draw from it.
        """
        from minipaged.engine.sampler import SamplingRow

        live = self.request.live
        rows = rows if len(rows) > 1 else rows * len(live)
        return [
            (
                sequence,
                row,
                SamplingRow(self.params, self._seed + sequence.index, *self._at(sequence)),
            )
            for sequence, row in zip(live, rows, strict=True)
        ]

    def append(self, sequence: Sequence, token: SampledToken) -> None:
        """Add a sampled token to one of the texts."""
        sequence.token_ids.append(token.token_id)
        self.completions[sequence].append(token)

    def finish_ended(self, scheduler: Scheduler) -> None:
        """Free the samples whose last token has just been added."""
        for sequence in self.request.live:
            reason = self.completions[sequence].finish_reason
            if reason is not None:
                scheduler.finish(self.request, sequence, reason)

    def abort(self) -> None:
        """Mark what has not ended as aborted."""
        for completion in self.completions.values():
            completion.finish_reason = completion.finish_reason or "abort"

    def output(self) -> RequestOutput:
        """Give the samples as they are now."""
        return RequestOutput(
            request_id=self.request.request_id,
            prompt=self.prompt,
            prompt_token_ids=list(self.request.prompt_token_ids),
            outputs=[completion.output() for completion in self.completions.values()],
            finished=not self.request.live,
            num_cached_tokens=self.request.num_cached_tokens or 0,
        )

    def _at(self, sequence: Sequence) -> tuple[int, tuple[int, ...]]:
        completion = self.completions[sequence]
        return len(completion.token_ids), completion.banned
