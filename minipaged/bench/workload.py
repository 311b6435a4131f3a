"""What every contender has to do: prompts of random tokens, and a fixed number of new ones each."""

from __future__ import annotations

import random
from dataclasses import dataclass

from minipaged.errors import ConfigError


@dataclass(frozen=True)
class Workload:
    """`prompts` are token ids; each gets exactly `new_tokens` more, greedily, past any EOS."""

    prompts: tuple[tuple[int, ...], ...]
    new_tokens: int

    @property
    def num_new_tokens(self) -> int:
        """Tokens to generate in all."""
        return len(self.prompts) * self.new_tokens


def make_workload(
    vocab_size: int,
    num_requests: int = 32,
    lengths: tuple[int, int] = (20, 200),
    new_tokens: int = 64,
    seed: int = 0,
) -> Workload:
    """Draw prompts of a length in `lengths` (tokens, both ends included).

    Raises:
        ConfigError: There is nothing to do.

    >>> workload = make_workload(vocab_size=100, num_requests=3)
    >>> len(workload.prompts), workload.num_new_tokens
    (3, 192)
    """
    if num_requests < 1 or new_tokens < 1:
        raise ConfigError(
            f"a benchmark needs requests and new tokens, at least 1: {num_requests}, {new_tokens}"
        )
    draw = random.Random(seed)
    prompts = tuple(
        tuple(draw.randrange(3, vocab_size) for _ in range(draw.randint(*lengths)))
        for _ in range(num_requests)
    )
    return Workload(prompts, new_tokens)
