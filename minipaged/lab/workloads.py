"""What the simulator is asked to do: requests that have lengths and arrival times, but no text.

A workload is an iterable of `LabRequest`, sorted by arrival. Everything here is a generator and
draws from a seed: the same call gives the same requests. Where the prefix cache should find
something, a request names its tokens; they are numbers that stand for nothing, and `text` makes
as many as are needed that nobody else has.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isfinite, log
from typing import NamedTuple

from minipaged.errors import ConfigError

MAX_TEXT = 2**20  # tokens

BeamTree = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class LabRequest:
    """A prompt of so many tokens arrives, and so many new ones will be generated.

    Attributes:
        arrival: Seconds since the beginning.
        num_prompt_tokens: Tokens in the prompt.
        num_new_tokens: Tokens that each sample (or beam) generates; the scheduler is told this
            number as the most that it may, a policy like Orca (Max) is not.
        width: Samples of the prompt, or beams.
        token_ids: The tokens of the prompt and, behind them, of the answer, as far as they matter
            to the prefix cache; None: tokens that no other request has.
        beam_parents: How a beam search went, a row for each new token: entry i is the index of the
            beam before that beam i goes on from. The first row has zeros only.
    """

    arrival: float
    num_prompt_tokens: int
    num_new_tokens: int
    width: int = 1
    token_ids: Sequence[int] | None = None
    beam_parents: BeamTree | None = None

    def __post_init__(self) -> None:
        if not (isfinite(self.arrival) and self.arrival >= 0):
            raise ConfigError(f"arrival must be a time of at least 0 s, not {self.arrival}")
        if self.num_prompt_tokens < 1 or self.num_new_tokens < 1 or self.width < 1:
            raise ConfigError(
                f"a request needs prompt tokens, new tokens and a width of at least 1, not "
                f"{self.num_prompt_tokens}, {self.num_new_tokens} and {self.width}"
            )
        if self.num_prompt_tokens + self.num_new_tokens > MAX_TEXT:
            raise ConfigError(
                f"{self.num_prompt_tokens} prompt tokens and {self.num_new_tokens} new ones are "
                f"more than a text may have, {MAX_TEXT}"
            )
        if self.beam_parents is not None and len(self.beam_parents) < self.num_new_tokens:
            raise ConfigError(
                f"beams for {len(self.beam_parents)} tokens, {self.num_new_tokens} are asked for"
            )


def text(owner: int, num_tokens: int) -> range:
    """Give `num_tokens` made-up tokens that no other owner has; owners count from 0.

    >>> text(0, 3), text(2, 3)
    (range(0, 3), range(2097152, 2097155))
    """
    return range(owner * MAX_TEXT, owner * MAX_TEXT + num_tokens)


class LengthStatistics(NamedTuple):
    """Log-normal lengths of prompts and answers: means (tokens), and sigmas of the logarithm."""

    mean_prompt: float
    mean_new: float
    sigma_prompt: float = 1.0
    sigma_new: float = 0.8


# Means: PagedAttention paper, fig. 11. Sigmas: an assumption, the paper prints none.
SHAREGPT = LengthStatistics(161.31, 337.99)
ALPACA = LengthStatistics(19.31, 58.45)


def lengths(
    statistics: LengthStatistics, num_requests: int, *, max_len: int = 2048, seed: int = 0
) -> Iterator[tuple[int, int]]:
    """Draw (prompt tokens, new tokens); together they are at most `max_len`."""
    draw = random.Random(f"lengths {seed}")
    for _ in range(num_requests):
        prompt = _lognormal(draw, statistics.mean_prompt, statistics.sigma_prompt, max_len - 1)
        new = _lognormal(draw, statistics.mean_new, statistics.sigma_new, max_len - prompt)
        yield prompt, new


def _lognormal(draw: random.Random, mean: float, sigma: float, most: int) -> int:
    value = draw.lognormvariate(log(mean) - sigma**2 / 2, sigma)
    return round(min(max(value, 1), most))


def arrivals(rate: float | None, seed: int = 0) -> Iterator[float]:
    """Yield the times (s) of a Poisson process of `rate` a second; None: everybody comes at 0.

    Raises:
        ConfigError: The rate is not above 0.
    """
    if rate is not None and not 0 < rate < float("inf"):
        raise ConfigError(f"a rate of arrivals must be above 0 requests a second, not {rate}")
    draw, now = random.Random(f"arrivals {seed}"), 0.0
    while True:
        if rate is not None:
            now += draw.expovariate(rate)
        yield now


def requests(
    lengths: Iterable[tuple[int, int]],
    *,
    rate: float | None = None,
    width: int = 1,
    seed: int = 0,
) -> Iterator[LabRequest]:
    """Let requests of these lengths arrive.

    >>> [(r.num_prompt_tokens, r.arrival) for r in requests([(5, 9), (7, 1)])]
    [(5, 0.0), (7, 0.0)]
    """
    for (prompt, new), arrival in zip(lengths, arrivals(rate, seed), strict=False):
        yield LabRequest(arrival, prompt, new, width)


def at_rate(workload: Iterable[LabRequest], rate: float, seed: int = 0) -> Iterator[LabRequest]:
    """Give the same requests with other arrival times: those of a Poisson process."""
    for request, arrival in zip(workload, arrivals(rate, seed), strict=False):
        yield replace(request, arrival=arrival)


def with_system_prompt(workload: Iterable[LabRequest], num_tokens: int) -> Iterator[LabRequest]:
    """Put the same `num_tokens` tokens before every prompt of a workload."""
    system = text(0, num_tokens)
    for owner, request in enumerate(workload, 1):
        own = request.token_ids or text(owner, request.num_prompt_tokens)
        yield replace(
            request,
            num_prompt_tokens=num_tokens + request.num_prompt_tokens,
            token_ids=(*system, *own),
        )


def with_beams(workload: Iterable[LabRequest], trees: Sequence[BeamTree]) -> Iterator[LabRequest]:
    """Let every request be a beam search that goes as one of these went, in turn.

    Who asks for more tokens than its search had gets as many as that.
    """
    for number, request in enumerate(workload):
        tree = trees[number % len(trees)]
        new = min(request.num_new_tokens, len(tree))
        yield replace(request, num_new_tokens=new, width=len(tree[0]), beam_parents=tree[:new])


def chat(
    num_conversations: int,
    num_turns: int,
    *,
    statistics: LengthStatistics = SHAREGPT,
    rate: float = 1.0,
    think_seconds: float = 30.0,
    max_len: int = 2048,
    seed: int = 0,
) -> Iterator[LabRequest]:
    """Let people talk: each turn's prompt is all that was said before, and a new question.

    Conversations begin as a Poisson process of `rate` a second; the turns of one follow each other
    after `think_seconds` on average (exponential), whether the answer is there or not. One that
    would outgrow `max_len` ends.
    """
    turns: list[LabRequest] = []
    for owner, begin in zip(range(num_conversations), arrivals(rate, seed), strict=False):
        draw = random.Random(f"chat {seed} {owner}")
        now, said = begin, 0
        for question, answer in lengths(
            statistics, num_turns, max_len=max_len, seed=draw.getrandbits(32)
        ):
            if said + question + answer > max_len:
                break
            whole = text(owner + 1, said + question + answer)  # 0 owns system prompts
            turns.append(LabRequest(now, said + question, answer, token_ids=whole))
            said += question + answer
            now += draw.expovariate(1 / think_seconds)
    yield from sorted(turns, key=lambda turn: turn.arrival)
