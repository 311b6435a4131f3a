"""Workloads by name, as values: who asks for what, so many requests of it, from a seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from minipaged.errors import ConfigError
from minipaged.lab.beams import recorded_trees
from minipaged.lab.length_files import read_workload
from minipaged.lab.workloads import (
    ALPACA,
    SHAREGPT,
    LabRequest,
    LengthStatistics,
    at_rate,
    chat,
    lengths,
    requests,
    with_beams,
    with_system_prompt,
)

# WMT16 English to German. An assumption: the paper prints no lengths. Sentences of news have about
# 22 words; a LLaMA token is about 3/4 of an English word, and less of a German one.
TRANSLATION = LengthStatistics(30, 40, 0.6, 0.6)

STATISTICS: Mapping[str, LengthStatistics] = {
    "sharegpt": SHAREGPT,
    "alpaca": ALPACA,
    "translation": TRANSLATION,
}
LONG_PROMPTS = LengthStatistics(1000, 150, 0.5, 0.8)  # documents with a question


@dataclass(frozen=True)
class Load:
    """A workload.

    Attributes:
        name: "sharegpt", "alpaca" or "translation" for lengths like theirs, "documents" for long
            prompts, "chat" for conversations of up to 8 turns, anything else is a file of lengths.
        num_requests: The most requests; of a chat, an eighth as many conversations.
        seed: Of lengths and arrivals.
        rate: Requests a second, Poisson; None: all come at once. A file has times of its own.
        width: Samples or beams of each.
        beams: Whether they are beams, searched as a real model did.
        prefix: Tokens of a system prompt before each prompt.
    """

    name: str = "sharegpt"
    num_requests: int = 1000
    seed: int = 0
    rate: float | None = None
    width: int = 1
    beams: bool = False
    prefix: int = 0

    def __post_init__(self) -> None:
        if self.num_requests < 1:
            raise ConfigError(f"a workload has at least 1 request, not {self.num_requests}")

    def requests(self) -> Iterator[LabRequest]:
        """Yield the requests, in order of arrival."""
        workload: Iterator[LabRequest] = islice(self._plain(), self.num_requests)
        if self.prefix:
            workload = with_system_prompt(workload, self.prefix)
        if self.beams:
            return with_beams(workload, recorded_trees(self.width))
        if self.width > 1:
            return (replace(request, width=self.width) for request in workload)
        return workload

    def _plain(self) -> Iterator[LabRequest]:
        if self.name == "chat":
            rate = (self.rate or 8.0) / 8
            return chat(-(-self.num_requests // 8), 8, rate=rate, seed=self.seed)
        statistics = LONG_PROMPTS if self.name == "documents" else STATISTICS.get(self.name)
        if statistics is None:
            workload = read_workload(self.name)
            return workload if self.rate is None else at_rate(workload, self.rate, self.seed)
        drawn = lengths(statistics, self.num_requests, seed=self.seed)
        return requests(drawn, rate=self.rate, seed=self.seed)
