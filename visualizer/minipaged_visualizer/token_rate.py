"""Tokens per second: a trace has no clock, so it is measured while steps come in."""

from __future__ import annotations

from collections import deque

from minipaged.memory.events import Sampled
from minipaged_visualizer.ahead import Advanced

_STEPS = 16


class TokenRate:
    """The rate over the last few steps, as far as their durations are known."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, float]] = deque(maxlen=_STEPS)
        self._is_first = True

    def add(self, advanced: Advanced, is_live: bool) -> None:
        """Count a step. The first one of a live source is left out: it may have loaded a model."""
        step, is_first = advanced.step, self._is_first
        self._is_first = False
        if step is None or not (step.us or (is_live and not is_first)):
            return
        tokens = sum(len(event.seqs) for event in step.events if isinstance(event, Sampled))
        self._steps.append((tokens, step.us / 1e6 if step.us else advanced.seconds))

    @property
    def tokens_per_second(self) -> float | None:
        """Give the rate, or None if nothing is known."""
        seconds = sum(duration for _, duration in self._steps)
        return sum(tokens for tokens, _ in self._steps) / seconds if seconds > 0 else None
