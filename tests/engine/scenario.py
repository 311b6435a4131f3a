"""One way to run requests: block size, company, chunks, prefix hits, samples, and pressure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from random_models import MAX_MODEL_LEN, RandomModel, random_prompt
from watched_engine import WatchedLLM

from minipaged import SamplingParams
from minipaged.memory.block_table import blocks_at_most

MAX_TOKENS = 10
MAX_SEQS = 8  # and the tokens of a step, if prompts are chunked
MAX_INTERRUPTIONS = 12
Request = tuple[list[int], Any]

VARIANT_FACTORS: dict[str, Any] = {
    "family": ["Llama", "Mistral", "Qwen2", "Qwen3"],
    "kv_heads": [4, 2, 1],
    "tied": [False, True],
    "rope": ["default", "linear", "llama3", "yarn"],
    "window": [False, True],
}
MORE_VARIANT_FACTORS: dict[str, Any] = {**VARIANT_FACTORS, "bias": [False, True]}
SHAPE_FACTORS: dict[str, Any] = {
    "length": ["1", "B-1", "B", "B+1", "200"],
    "block_size": [1, 4, 16],
}
MODE_FACTORS: dict[str, Any] = {
    "batched": [False, True],
    "chunked": [False, True],
    "warm": [False, True],
    "pressure": ["none", "recompute", "swap", "small pool", "small pool, swap"],
}
FORBIDDEN: list[Any] = [
    (("length", "B-1"), ("block_size", 1)),  # an empty prompt
    (("family", "Llama"), ("window", True)),
    (("family", "Mistral"), ("bias", True)),
    (("family", "Qwen2"), ("bias", True)),  # it always has them
]


@dataclass(frozen=True)
class Scenario:
    """A row of a table of factors; a request in it, and perhaps others beside it.

    With the pressure "recompute" or "swap" somebody is preempted by hand, in a run for each step;
    in a small pool there is room for the largest request alone.
    """

    length: str = "B+1"
    block_size: int = 4
    batched: bool = False
    chunked: bool = False
    warm: bool = False
    pressure: str = "none"

    @property
    def prompts(self) -> list[list[int]]:
        """The prompt; batched, also others of other lengths, and one with the same beginning."""
        size = self.block_size
        lengths = {"1": 1, "B-1": size - 1, "B": size, "B+1": size + 1, "200": 200}
        prompt = random_prompt(lengths[self.length])
        alike = prompt[: size * 2] + random_prompt(3, seed=1)
        others = [random_prompt(1, seed=2), alike, random_prompt(19, seed=3)]
        return [prompt, *others] if self.batched else [prompt]

    def runs(self, model: RandomModel, params: Callable[[int], Any]) -> Iterator[list[Any]]:
        """Give the outputs of every run, in the order of `prompts`; `params` of the i-th prompt."""
        requests = [(prompt, params(index)) for index, prompt in enumerate(self.prompts)]
        watched = self._start(model, requests)
        if self.warm:
            watched.run(requests[:1])
        outputs = watched.run(requests)
        if self.warm and "small" not in self.pressure and hasattr(outputs[0], "num_cached_tokens"):
            cached = (len(self.prompts[0]) - 1) // self.block_size * self.block_size
            assert outputs[0].num_cached_tokens == cached
        yield outputs
        if self.pressure in ("recompute", "swap"):
            yield from self._interrupted(watched, requests)

    def _start(self, model: RandomModel, requests: list[Request]) -> WatchedLLM:
        needed = [
            blocks_at_most(len(prompt), params.max_tokens, width(params), self.block_size)
            for prompt, params in requests
        ]
        small, swaps = "small" in self.pressure, "swap" in self.pressure
        return WatchedLLM(
            model.folder,
            block_size=self.block_size,
            num_blocks=max(needed) if small else sum(needed),
            num_swap_blocks=(max(needed) // 2 + 1 if small else sum(needed)) if swaps else 0,
            max_num_seqs=MAX_SEQS,
            max_num_batched_tokens=MAX_SEQS if self.chunked else MAX_MODEL_LEN,
            enable_chunked_prefill=self.chunked,
            enable_prefix_caching=self.warm,
            preemption="swap" if swaps else "recompute",
        )

    def _interrupted(self, watched: WatchedLLM, requests: list[Request]) -> Iterator[list[Any]]:
        num_steps, num_preempted = watched.num_steps, 0
        for step in range(1, num_steps, max(1, num_steps // MAX_INTERRUPTIONS)):
            yield watched.run_preempting(requests, at_step=step, victim=step)
            num_preempted += watched.num_preempted
        assert num_preempted


def width(params: Any) -> int:
    """Sequences that live at once."""
    return params.n if isinstance(params, SamplingParams) else params.beam_width


def name_of(row: dict[str, Any]) -> str:
    """The row as the name of a test."""
    words = [name if value is True else str(value) for name, value in row.items()]
    return "-".join(word for word in words if word != "False").replace(" ", "_")
