"""What a caller gets back. Names follow vLLM."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class CompletionOutput:
    """One of a request's n samples.

    `logprobs` has one dictionary (token id -> log-probability) for each token, if asked for.
    `finish_reason` is "stop", "length" or "abort"; None while it runs.
    """

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float
    logprobs: list[dict[int, float]] | None = None
    finish_reason: str | None = None


@dataclass(frozen=True)
class RequestOutput:
    """A request's samples as they are now. `num_cached_tokens` came from the prefix cache."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    num_cached_tokens: int = 0


@dataclass(frozen=True)
class BeamSearchSequence:
    """One finished beam. `score` is its log-probability over length ** length_penalty."""

    text: str
    token_ids: list[int]
    cumulative_logprob: float
    score: float
    finish_reason: str | None


@dataclass(frozen=True)
class BeamSearchOutput:
    """The beams of one prompt, best first; empty until the search has finished."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    sequences: list[BeamSearchSequence] = field(default_factory=list)
    finished: bool = False
