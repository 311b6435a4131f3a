"""What the scheduler decides for one step: moves of blocks, and the tokens to compute."""

from __future__ import annotations

from dataclasses import dataclass, field

from minipaged.engine.sequence import Request, Sequence
from minipaged.memory.kv_cache_manager import BlockMove


@dataclass(frozen=True)
class Chunk:
    """`num_tokens` tokens of one sequence, from position `start` on, to compute in this step."""

    request: Request
    sequence: Sequence
    start: int
    num_tokens: int

    @property
    def stop(self) -> int:
        """The position behind the last token: the length of the context."""
        return self.start + self.num_tokens

    @property
    def positions(self) -> range:
        """The positions of the tokens in their sequence."""
        return range(self.start, self.stop)

    @property
    def token_ids(self) -> list[int]:
        """The tokens to feed."""
        return self.sequence.token_ids[self.start : self.stop]

    @property
    def needs_logits(self) -> bool:
        """Whether the last token is the last one known, so that the next must be sampled."""
        return self.stop == self.sequence.num_tokens


@dataclass
class SchedulerOutput:
    """One step's work: `num_tokens` tokens, in chunks.

    Moves run before the chunks: swap out, swap in, then copies. Whoever runs them empties each list
    when it is done, so that a step that was interrupted can be run again.
    """

    chunks: list[Chunk] = field(default_factory=list)
    swap_outs: list[BlockMove] = field(default_factory=list)
    swap_ins: list[BlockMove] = field(default_factory=list)
    copies: list[BlockMove] = field(default_factory=list)
    num_tokens: int = 0

    def add(self, chunk: Chunk) -> None:
        """Put a chunk behind the others."""
        self.chunks.append(chunk)
        self.num_tokens += chunk.num_tokens

    def drop(self, request: Request) -> None:
        """Take out a request that ended before the step ran; its moves stay, they harm nobody."""
        self.chunks = [chunk for chunk in self.chunks if chunk.request is not request]
        self.num_tokens = sum(chunk.num_tokens for chunk in self.chunks)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to compute and nothing to move."""
        return not (self.chunks or self.swap_outs or self.swap_ins or self.copies)

    @property
    def num_decode_tokens(self) -> int:
        """Tokens of chunks that only feed the token sampled last."""
        return sum(
            c.num_tokens == 1 and c.needs_logits and c.start >= c.request.num_prompt_tokens
            for c in self.chunks
        )
