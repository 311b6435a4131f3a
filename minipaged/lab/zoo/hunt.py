"""Hunting: run the random load until an invariant breaks, and tell which one, where and how."""

from __future__ import annotations

from dataclasses import dataclass

from minipaged.errors import MinipagedError
from minipaged.lab.zoo.catalog import bug
from minipaged.lab.zoo.invariants import BrokenInvariantError, Witness, check_all
from minipaged.lab.zoo.workload import CONFIG, RandomEngine
from minipaged.memory.events import Event
from minipaged.memory.replay import IntegrityError
from minipaged.memory.trace import Trace

OPERATIONS = 200


class NotCaughtError(MinipagedError):
    """A bug did no harm in this run: another seed, or more operations, may show it."""


@dataclass(frozen=True)
class Caught:
    """How a run ended.

    Attributes:
        step: The operation, from 0; the trace's step of the same number holds its events.
        operation: What was done, in words.
        invariant: Which invariant broke: a key of `INVARIANTS`.
        message: How.
        trace: Everything up to the first event that makes no sense; it replays.
    """

    step: int
    operation: str
    invariant: str
    message: str
    trace: Trace


def hunt(name: str, seed: int = 0, operations: int = OPERATIONS) -> Caught:
    """Switch a bug on and let random operations run until it is caught.

    >>> caught = hunt("stale-hash")
    >>> caught.invariant
    'replay'

    Raises:
        ConfigError: There is no such bug.
        NotCaughtError: It does no harm in so many operations.
    """
    with bug(name):
        caught = run(seed, operations, f"bug zoo: {name}")
    if caught is None:
        raise NotCaughtError(f"{name} does no harm in {operations} operations with seed {seed}")
    return caught


def run(seed: int = 0, operations: int = OPERATIONS, title: str = "bug zoo") -> Caught | None:
    """Run random operations on whatever code is in force; None if every invariant holds."""
    trial = _Trial(seed, title)
    for step in range(operations):
        try:
            trial.operate()
        except BrokenInvariantError as e:
            note = f"{trial.engine.operation}; caught ({e.invariant}): {e}"
            trial.record(trial.sound, note)
            return Caught(step, trial.engine.operation, e.invariant, str(e), trial.trace)
    return None


class _Trial:
    """A random engine whose events are replayed, and written down as far as they make sense."""

    def __init__(self, seed: int, title: str) -> None:
        assert CONFIG.num_blocks is not None
        self.engine = RandomEngine(seed, title)
        self.witness = Witness(CONFIG.num_blocks, CONFIG.block_size, CONFIG.num_swap_blocks)
        self.trace = Trace(self.engine.trace.header)
        self.sound: list[Event] = []

    def operate(self) -> None:
        """Do one operation and check everything.

        Raises:
            BrokenInvariantError: Something does not hold; `sound` are the events before it.
        """
        engine: RandomEngine = self.engine
        failure: Exception | None = None
        self.sound = []
        try:
            engine.operate()
        except Exception as e:
            failure = e
        for event in engine.trace.pending():
            self.witness.see(event)
            self.sound.append(event)
        if failure is not None:
            raise _broken(failure) from failure
        state = self.witness.state
        check_all(engine.manager, engine.scheduler, state, engine.kv, engine.texts)
        engine.kv.wipe(engine.manager.snapshot())
        engine.trace.end_step(*engine.tokens)
        self.record(self.sound, engine.operation)

    def record(self, events: list[Event], note: str) -> None:
        """Write down an operation."""
        for event in events:
            self.trace.observe(event)
        self.trace.end_step(*self.engine.tokens, note="" if note == "step" else note)


def _broken(failure: Exception) -> BrokenInvariantError:
    """Tell an error of the engine as what it is: a promise that was not kept."""
    if isinstance(failure, BrokenInvariantError):
        return failure
    if isinstance(failure, IntegrityError):  # the cache's: a slot that there is not
        return BrokenInvariantError("contents", str(failure))
    return BrokenInvariantError("no-error", f"{type(failure).__name__}: {failure}")
