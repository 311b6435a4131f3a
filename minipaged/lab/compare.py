"""Two ways to do the same, under the same load: one table and one chart for each question."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from minipaged.errors import ConfigError
from minipaged.lab.figures import Chart
from minipaged.lab.loads import Load
from minipaged.lab.runs import Outcome, Run, measure_all


class Measure(NamedTuple):
    """A column: its title, its unit, and where it comes from."""

    title: str
    unit: str
    of: Callable[[Outcome], float]


_THROUGHPUT = Measure("requests/s", "", lambda o: o.requests_per_second)
_LATENCY = Measure("latency", "ms/token", lambda o: 1000 * o.normalized_latency)
_TTFT = Measure("first token", "s", lambda o: o.ttft)
_TPOT = Measure("next token", "ms", lambda o: 1000 * o.tpot)
_BATCH = Measure("batch", "", lambda o: o.batch)
_TOKENS = Measure("token states", "%", lambda o: 100 * o.waste.share("tokens"))
_CACHED = Measure("prompt cached", "%", lambda o: 100 * o.cached)
_PREEMPTIONS = Measure("preempted", "", lambda o: o.num_preemptions)
_SWAPPED = Measure("blocks moved", "", lambda o: o.num_swapped_blocks)
_SLOW_STEP = Measure("slow step", "ms", lambda o: 1000 * o.slow_step)


@dataclass(frozen=True)
class Question:
    """What is compared, how, and which columns tell.

    Attributes:
        title: The question.
        load: The workload in words.
        runs: Gives a run for each contender, from requests and seed.
        measures: The columns; the chart draws the first.
        lesson: What to look at, and why it comes out so.
    """

    title: str
    load: str
    runs: Callable[[int, int], Mapping[str, Run]]
    measures: tuple[Measure, ...]
    lesson: str


@dataclass(frozen=True)
class Comparison:
    """An answered question: a row of numbers for each contender."""

    question: Question
    outcomes: Mapping[str, Outcome]

    def rows(self) -> Mapping[str, list[float]]:
        """Give each contender's numbers, in the order of the measures."""
        return {
            name: [measure.of(outcome) for measure in self.question.measures]
            for name, outcome in self.outcomes.items()
        }

    def chart(self) -> Chart:
        """Draw the first measure."""
        first = self.question.measures[0]
        values = [row[0] for row in self.rows().values()]
        axis = f"{first.title} ({first.unit})" if first.unit else first.title
        names = list(self.outcomes)
        return Chart(self.question.title, "bars", names, {first.title: values}, y_title=axis)


def _preemption(num_requests: int, seed: int) -> Mapping[str, Run]:
    load = Load("sharegpt", num_requests, seed)
    return {
        f"{how}, blocks of {size}": Run(load, block_size=size, preemption=how)
        for size in (4, 16, 64)
        for how in ("recompute", "swap")
    }


def _eviction(num_requests: int, seed: int) -> Mapping[str, Run]:
    load = Load("chat", num_requests, seed, rate=8.0)
    return {
        "LRU, tail first": Run(load, prefix_caching=True),
        "LRU, head first": Run(load, prefix_caching=True, head_first=True),
        "no cache": Run(load),
    }


def _prefix_cache(num_requests: int, seed: int) -> Mapping[str, Run]:
    loads = {
        "system prompt": Load("sharegpt", num_requests, seed, prefix=341),
        "chat": Load("chat", num_requests, seed, rate=16.0),
        "nothing shared": Load("sharegpt", num_requests, seed),
    }
    return {
        f"{name}, {'on' if cached else 'off'}": Run(load, prefix_caching=cached)
        for name, load in loads.items()
        for cached in (True, False)
    }


def _chunked_prefill(num_requests: int, seed: int) -> Mapping[str, Run]:
    load = Load("documents", num_requests, seed, rate=2.0)
    chunks = {"whole prompts": None, "chunks of 1,024": 1024, "chunks of 512": 512}
    return {name: Run(load, chunk=chunk) for name, chunk in chunks.items()}


def _batching(num_requests: int, seed: int) -> Mapping[str, Run]:
    load = Load("sharegpt", num_requests, seed)
    return {
        f"{batching}, {name}": Run(load, system, batching=batching)
        for system, name in (("orca-max", "slabs of 2,048"), ("paged", "paged"))
        for batching in ("static", "continuous")
    }


QUESTIONS: Mapping[str, Question] = {
    "preemption": Question(
        "Recompute or swap: what to do with a victim",
        "lengths like ShareGPT's, a full queue",
        _preemption,
        (_LATENCY, _THROUGHPUT, _PREEMPTIONS, _SWAPPED),
        "Swap pays a copy for every block, layer, K and V: small blocks are slow to move. "
        "Recompute costs the same for every block size.",
    ),
    "eviction": Question(
        "Which block of a prefix to evict first",
        "chats of up to 8 turns, one a second begins, each prompt is all that was said before",
        _eviction,
        (_CACHED, _TTFT, _LATENCY, _THROUGHPUT),
        "A hit must begin at the first token. Tail first, a prefix gets shorter; head first, it "
        "is lost at once and its other blocks fill the memory for nothing.",
    ),
    "prefix-cache": Question(
        "Prefix cache on or off",
        "ShareGPT's lengths behind 341 equal tokens; chats; ShareGPT's lengths, nothing shared",
        _prefix_cache,
        (_TTFT, _CACHED, _BATCH, _THROUGHPUT),
        "It saves the prefill of what was computed before, and the memory where many hold it at "
        "once. Where nothing is shared, only who was preempted finds blocks of its own again.",
    ),
    "chunked-prefill": Question(
        "Whole prompts or chunks",
        "prompts of 1,000 tokens on average, answers of 150, 2 requests a second",
        _chunked_prefill,
        (_SLOW_STEP, _TPOT, _TTFT, _THROUGHPUT),
        "A whole prompt makes everybody else wait for one long step. Chunks make steps short and "
        "even, and the prompt's own first token later.",
    ),
    "batching": Question(
        "Static or continuous batching",
        "lengths like ShareGPT's, a full queue",
        _batching,
        (_THROUGHPUT, _BATCH, _LATENCY, _TOKENS),
        "In a static batch everybody waits for the longest, and holds memory meanwhile.",
    ),
}


def compare(
    name: str,
    num_requests: int,
    seed: int = 0,
    workers: int = 1,
    tell: Callable[[int, int], object] | None = None,
) -> Comparison:
    """Answer a question.

    Raises:
        ConfigError: There is none of that name.
    """
    if name not in QUESTIONS:
        raise ConfigError(f"compare {', '.join(QUESTIONS)}, not {name!r}")
    runs = QUESTIONS[name].runs(num_requests, seed)
    outcomes = measure_all(runs.values(), workers, tell)
    return Comparison(QUESTIONS[name], {name: outcomes[run] for name, run in runs.items()})
