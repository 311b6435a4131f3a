"""Where a step's time goes: stopwatches around the linear layers, attention and the sampler.

The engine has no timers of its own. Its parts are objects that are called, so a benchmark can put a
`Stopwatch` in the place of one and take it out again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from minipaged.engine.model_runner import ModelRunner
from minipaged.models.linear import PackedLinear, PlainLinear


@dataclass
class Stopwatch:
    """Calls `inner` and adds up the seconds; `shapes` are those of the tensors it was given."""

    inner: Callable[..., Any]
    seconds: float = 0.0
    shapes: list[tuple[int, ...]] = field(default_factory=list)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Do what `inner` does."""
        if arguments and isinstance(arguments[0], Tensor):
            self.shapes.append(tuple(arguments[0].shape))
        start = time.perf_counter()
        try:
            return self.inner(*arguments, **keywords)
        finally:
            self.seconds += time.perf_counter() - start


@dataclass
class Parts:
    """The stopwatches of one run."""

    linears: list[Stopwatch] = field(default_factory=list)
    attention: list[Stopwatch] = field(default_factory=list)
    sampler: list[Stopwatch] = field(default_factory=list)


@contextmanager
def stopwatches(runner: ModelRunner) -> Iterator[Parts]:
    """Time the parts of a runner while the block lasts."""
    parts = Parts()
    places = [
        (owner, name, parts.linears)
        for owner in _objects(runner.model)
        for name, value in vars(owner).items()
        if isinstance(value, PackedLinear | PlainLinear)
    ]
    attention = runner.model.attention
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    originals += [(runner.model, "attention", attention)]
    for owner, name, watches in places:
        watches.append(Stopwatch(getattr(owner, name)))
        setattr(owner, name, watches[-1])
    runner.model.attention = _TimedBackend(attention, parts.attention)
    parts.sampler.append(Stopwatch(runner.sample))
    runner.sample = parts.sampler[0]  # type: ignore[method-assign]
    try:
        yield parts
    finally:
        del runner.sample
        for owner, name, original in originals:
            setattr(owner, name, original)


def _objects(root: Any) -> Iterator[Any]:
    """Yield an object of ours and all that it is made of."""
    yield root
    for value in vars(root).values():
        for item in value if isinstance(value, list) else [value]:
            if type(item).__module__ == type(root).__module__ and hasattr(item, "__dict__"):
                yield from _objects(item)


class _TimedBackend:
    """A backend whose plans are timed: making them, and calling them in each layer."""

    def __init__(self, backend: Any, watches: list[Stopwatch]) -> None:
        self._backend = backend
        self._watches = watches

    def plan(self, *arguments: Any, **keywords: Any) -> Stopwatch:
        planning = Stopwatch(self._backend.plan)
        plan = Stopwatch(planning(*arguments, **keywords))
        self._watches += [planning, plan]
        return plan
