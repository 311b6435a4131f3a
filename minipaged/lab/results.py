"""What a simulation tells: when each request got its tokens, and what memory looked like."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil


@dataclass(slots=True)
class RequestTimes:
    """One request's course; times in seconds since the beginning."""

    arrival: float
    num_prompt_tokens: int
    num_new_tokens: int
    width: int = 1
    first_token: float = 0.0
    finish: float = 0.0
    num_preemptions: int = 0
    num_cached_tokens: int = 0

    @property
    def ttft(self) -> float:
        """Time to first token (s): from arrival on."""
        return self.first_token - self.arrival

    @property
    def tpot(self) -> float:
        """Time per output token (s) behind the first one; 0 where there is only one."""
        return (self.finish - self.first_token) / max(self.num_new_tokens - 1, 1)

    @property
    def latency(self) -> float:
        """From arrival to the last token (s)."""
        return self.finish - self.arrival


@dataclass(slots=True)
class Timeline:
    """A row for each step, as columns: seconds at its end, and what was there during it."""

    time: array[float] = field(default_factory=lambda: array("d"))
    num_running: array[int] = field(default_factory=lambda: array("q"))  # requests
    num_waiting: array[int] = field(default_factory=lambda: array("q"))  # requests
    num_tokens: array[int] = field(default_factory=lambda: array("q"))  # computed in the step
    num_used_blocks: array[int] = field(default_factory=lambda: array("q"))


@dataclass
class SimulationResult:
    """How a workload went: requests in the order in which they were done, and who was refused."""

    requests: list[RequestTimes] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    timeline: Timeline = field(default_factory=Timeline)
    num_copied_blocks: int = 0
    num_swapped_blocks: int = 0

    @property
    def seconds(self) -> float:
        """The end of the last step."""
        return self.timeline.time[-1] if self.timeline.time else 0.0

    @property
    def num_steps(self) -> int:
        """Steps of the scheduler."""
        return len(self.timeline.time)

    @property
    def num_preemptions(self) -> int:
        """How often a request gave its blocks up; one may do so several times."""
        return sum(request.num_preemptions for request in self.requests)

    @property
    def requests_per_second(self) -> float:
        """Finished requests by the time that all of them took."""
        return len(self.requests) / self.seconds if self.requests else 0.0

    @property
    def new_tokens_per_second(self) -> float:
        """Generated tokens, of all samples and beams, by the time that all of them took."""
        tokens = sum(request.num_new_tokens * request.width for request in self.requests)
        return tokens / self.seconds if self.requests else 0.0

    @property
    def mean_batch_size(self) -> float:
        """Requests that run at once, averaged over the steps."""
        return _mean(self.timeline.num_running)

    @property
    def mean_ttft(self) -> float:
        """Time to first token (s), averaged over the requests."""
        return _mean([request.ttft for request in self.requests])

    @property
    def mean_tpot(self) -> float:
        """Time per output token (s), averaged over the requests."""
        return _mean([request.tpot for request in self.requests])

    @property
    def mean_normalized_latency(self) -> float:
        """Latency by output tokens (s), averaged over the requests: the paper's measure (6.1)."""
        return _mean([request.latency / request.num_new_tokens for request in self.requests])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def percentile(values: Iterable[float], percent: float) -> float:
    """Give the least value that at least `percent` % of them don't exceed; 0 if there is none.

    >>> percentile([4.0, 1.0, 3.0, 2.0], 50), percentile([4.0, 1.0, 3.0, 2.0], 99)
    (2.0, 4.0)
    """
    ordered = sorted(values)
    rank = max(ceil(percent / 100 * len(ordered)), 1)
    return ordered[min(rank, len(ordered)) - 1] if ordered else 0.0
