"""The text of one sample as it grows, and when it ends."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from minipaged.engine import stopping
from minipaged.engine.outputs import CompletionOutput
from minipaged.engine.sampling_params import SamplingParams
from minipaged.models.tokenizer import Detokenizer, Tokenizer

if TYPE_CHECKING:
    from minipaged.engine.sampler import SampledToken


class Completion:
    """Takes one sampled token after the other; knows its text, log-probability and end.

    `params.max_tokens` must be what the model's length leaves at most.
    """

    def __init__(self, index: int, params: SamplingParams, tokenizer: Tokenizer) -> None:
        self.index = index
        self.params = params
        self.token_ids: list[int] = []
        self.text = ""
        self.finish_reason: str | None = None
        self._eos: Collection[int] = tokenizer.eos_token_ids
        self._detokenizer = Detokenizer(tokenizer, continues=True)
        self._cumulative_logprob = 0.0
        self._logprobs: list[dict[int, float]] = []

    @property
    def banned(self) -> tuple[int, ...]:
        """Tokens that may not come next, as they would end the text too early."""
        return stopping.banned_tokens(self.params, self._eos, len(self.token_ids))

    @property
    def safe_text(self) -> str:
        """The text that is certain: no half character, no beginning of a stop string."""
        if self.finish_reason is not None:
            return self.text
        return self.text[: stopping.safe_length(self.text, self.params.stop or ())]

    def append(self, token: SampledToken) -> None:
        """Add a token; sets `finish_reason` if it was the last."""
        self.token_ids.append(token.token_id)
        self._cumulative_logprob += token.logprob
        if token.top_logprobs is not None:
            self._logprobs.append(token.top_logprobs)
        seen = len(self.text)
        reason = stopping.finish_reason(self.params, self._eos, self.token_ids)
        if reason != "stop":
            self.text += self._detokenizer.feed([token.token_id])
        if reason is not None:
            self.text += self._detokenizer.flush()
        self.finish_reason = self._cut_at_stop_string(seen) or reason

    def output(self) -> CompletionOutput:
        """Give the sample as it is now."""
        return CompletionOutput(
            index=self.index,
            text=self.text,
            token_ids=list(self.token_ids),
            cumulative_logprob=self._cumulative_logprob,
            logprobs=list(self._logprobs) if self.params.logprobs is not None else None,
            finish_reason=self.finish_reason,
        )

    def _cut_at_stop_string(self, seen: int) -> str | None:
        if not self.params.stop or len(self.token_ids) <= self.params.min_tokens:
            return None
        end = stopping.find_stop_string(self.text, seen, self.params.stop)
        if end is None:
            return None
        self.text = self.text[:end]
        return "stop"
