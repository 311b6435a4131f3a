"""The scene that `minipaged watch` plays without a prompt: all there is to see, in a small pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from minipaged.engine.llm_engine import Params
from minipaged.engine.sampling_params import SamplingParams
from minipaged.memory.block_table import blocks_at_most
from minipaged.models.tokenizer import Tokenizer

# What the built-in model knows best; others go on from it, too.
SYSTEM = (
    "You are a storyteller. You tell short stories: somebody has a wish, meets a trouble, finds a "
    "friend and comes to a good end."
)
REQUESTS = (
    "Tell a story about a fox and a kite.",
    "Tell me a story about a mouse and a bell.",
    "Write a short story about a bear.",
    "Please tell a story about a goose and a clock.",
)
OPENINGS = ("Once upon a time there", "Long, long ago", "One spring", "Many years ago there lived")
POOL_SHARE, MIN_POOL = 0.62, 16


@dataclass(frozen=True)
class Arrival:
    """A prompt that comes in before step `step`."""

    step: int
    token_ids: tuple[int, ...]
    prompt: str
    params: Params


def arrive(step: int, prompt: str, params: Params, tokenizer: Tokenizer) -> Arrival:
    """Give a prompt, tokenized, with the step at which it comes in."""
    return Arrival(step, tuple(tokenizer.encode(prompt)) if prompt else (), prompt, params)


def scene(tokenizer: Tokenizer, block_size: int) -> list[Arrival]:
    """Give requests that show all there is to see, given a small pool.

    One alone; then three samples that share the system prompt with it and part by copy-on-write;
    then two more, for which blocks must be evicted and somebody preempted. EOS is ignored, so that
    the lengths, and with them the events, are the same whatever the model writes.
    """
    one = SamplingParams(temperature=0.8, seed=1, max_tokens=30, ignore_eos=True)
    three = replace(one, n=3, seed=2, max_tokens=22)
    fork = next(
        (p for p in _prompts(1) if len(tokenizer.encode(p)) % block_size), _prompts(1)[0]
    )  # a fork on a block boundary copies nothing
    return [
        arrive(0, _prompts(0)[0], one, tokenizer),
        arrive(4, fork, three, tokenizer),
        arrive(10, _prompts(2)[0], replace(one, seed=3), tokenizer),
        arrive(16, _prompts(3)[0], replace(one, seed=4, max_tokens=40), tokenizer),
    ]


def pool_for(arrivals: Sequence[Arrival], block_size: int) -> int:
    """Give a pool that is large enough for each request alone, but too small for all at once."""
    needs = []
    for arrival in arrivals:
        params, length = arrival.params, len(arrival.token_ids)
        width = params.n if isinstance(params, SamplingParams) else params.beam_width
        needs.append(blocks_at_most(length, params.max_tokens, width, block_size))
    columns = zip(*(arrival.token_ids for arrival in arrivals), strict=False)
    num_common = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
    shared = num_common // block_size
    together = sum(needs) - shared * (len(needs) - 1)
    return max(*needs, round(POOL_SHARE * together), MIN_POOL)


def _prompts(index: int) -> list[str]:
    return [f"{SYSTEM}\n\n{REQUESTS[index]}\n\n{opening}" for opening in OPENINGS]
