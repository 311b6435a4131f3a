"""What the scheduler knows of a request: its sequences, and how far each one is.

A request is a group: the `n` samples of one prompt, or the beams of one search. The first live
sequence computes the prompt; the others are forked from it afterwards. A sequence knows nothing of
blocks, and the whole of scheduling follows from two numbers: how many tokens it knows, and for how
many the KV exists.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field


@dataclass(eq=False)
class Sequence:
    """One text: prompt and what was generated so far. `num_computed_tokens` have their KV."""

    seq_id: int
    index: int
    token_ids: list[int]
    num_computed_tokens: int = 0
    finish_reason: str | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens known: prompt and generated."""
        return len(self.token_ids)


@dataclass(eq=False)
class Request:
    """The sequences of one prompt, and what they may ask of memory in the worst case.

    `width` is the most sequences that live at once (n samples, or beams), `max_tokens` the most
    tokens that each generates. `is_forked` tells whether the prompt is behind: from then on every
    live sequence computes its own tokens.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    width: int
    max_tokens: int
    arrival: int
    sequences: list[Sequence] = field(default_factory=list)
    is_forked: bool = False
    num_cached_tokens: int | None = None

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens in the prompt."""
        return len(self.prompt_token_ids)

    @property
    def live(self) -> list[Sequence]:
        """Sequences that have not ended, in order of their index."""
        return [s for s in self.sequences if s.finish_reason is None]

    @property
    def computing(self) -> list[Sequence]:
        """Sequences that compute something next: the first live one alone until the fork."""
        return self.live if self.is_forked else self.live[:1]

    def num_tokens_to_compute(self, sequence: Sequence) -> int:
        """Give the tokens between computed and known; before the fork only shared tokens count."""
        return self._target(sequence) - sequence.num_computed_tokens

    def prefix(self) -> SequenceOf[int]:
        """Give the tokens to compute before the fork: all, if only one sequence lives."""
        leader = self.live[0]
        return leader.token_ids[: self._target(leader)]

    def _target(self, sequence: Sequence) -> int:
        alone = self.is_forked or len(self.live) == 1
        return sequence.num_tokens if alone else self.num_prompt_tokens
