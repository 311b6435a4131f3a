"""What a simulation tells: when each request got its tokens, and what memory looked like."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from minipaged.memory.snapshot import MemorySnapshot


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


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Memory behind one step."""

    time: float
    step: int
    snapshot: MemorySnapshot


@dataclass
class SimulationResult:
    """How a workload went.

    `final_tokens` tells for each sequence how many tokens had their KV at its end: what splits
    empty room in a sample into "used later" and "never used".
    """

    requests: list[RequestTimes] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    timeline: Timeline = field(default_factory=Timeline)
    samples: list[MemorySample] = field(default_factory=list)
    final_tokens: dict[int, int] = field(default_factory=dict)
    num_copied_blocks: int = 0
    num_swapped_blocks: int = 0
