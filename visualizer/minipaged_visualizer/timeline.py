"""A trace as something to walk through, step by step or event by event, forward and back.

The timeline grows while the run goes on. It keeps copies of the state; going back starts at the
nearest one before and applies the events from there, so `state` is always what `Replay` makes of
the events up to `position`. A copy is kept every `KEYFRAME_STEPS` steps at first; at
`MAX_KEYFRAMES` every second one is dropped and the distance doubles: memory stays bounded, and the
way to any place short.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from minipaged.memory.events import Event
from minipaged.memory.replay import Replay
from minipaged.memory.trace import TraceHeader, TraceStep

KEYFRAME_STEPS, MAX_KEYFRAMES = 32, 64


class Position(NamedTuple):
    """A place between two events: `event` events of the `number`-th step have happened.

    Before the first step this is (-1, 0).
    """

    number: int
    event: int


START = Position(-1, 0)


class Timeline:
    """The steps so far and one place among them.

    >>> from minipaged.memory.events import BlockAllocated, Requested
    >>> timeline = Timeline(TraceHeader(block_size=4, num_blocks=8))
    >>> timeline.append(TraceStep(0, 1, 0, "", (Requested(0, "", 1), BlockAllocated(0, 0, 5, ""))))
    >>> timeline.forward_step(), timeline.state.tables
    (True, {0: [5]})
    >>> timeline.back_event(), timeline.state.tables
    (True, {})
    """

    def __init__(self, header: TraceHeader) -> None:
        self.header = header
        self.steps: list[TraceStep] = []
        self.used_history: list[int] = []
        self.state = self._empty()
        self._head = self._empty()
        self._keyframes: list[Replay] = []
        self._distance = KEYFRAME_STEPS
        self._preview: TraceStep | None = None
        self._position = START

    # --- growing ----------------------------------------------------------------------------------

    def append(self, step: TraceStep) -> None:
        """Take the next complete step. The position stays where it is.

        Raises:
            IntegrityError: An event contradicts what came before; the steps so far stay usable.
        """
        head = self._head
        if self.steps and len(self.steps) % self._distance == 0:
            self._keep(head.copy())
        for event in step.events:
            head.apply(event)
        self._preview = None
        self.steps.append(step)
        self.used_history.append(head.num_used)

    def preview(self, events: Sequence[Event]) -> None:
        """Show the beginning of a step that is not complete yet, after all complete ones."""
        if events:
            number = self.steps[-1].step + 1 if self.steps else 0
            self._preview = TraceStep(number, 0, 0, "", tuple(events))

    # --- where we are -----------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """The place that `state` shows."""
        return self._position

    @property
    def step(self) -> TraceStep | None:
        """The step we are in or at the end of; None before the first."""
        return None if self._position.number < 0 else self._step_at(self._position.number)

    @property
    def events(self) -> tuple[Event, ...]:
        """The events of this step that have happened."""
        return self.step.events[: self._position.event] if self.step else ()

    @property
    def is_at_end(self) -> bool:
        """Whether there is nothing to go forward to."""
        return self._position == self._end_of(self._num_shown - 1)

    def past(self) -> Iterator[tuple[TraceStep, tuple[Event, ...]]]:
        """Give the steps with their events that have happened, this one first, then backwards."""
        for index in range(self._position.number, -1, -1):
            step = self._step_at(index)
            yield step, self.events if index == self._position.number else step.events

    # --- walking ----------------------------------------------------------------------------------

    def go_to(self, position: Position) -> None:
        """Go to any place; one outside the timeline becomes the nearest inside."""
        index = min(max(position.number, -1), self._num_shown - 1)
        event = min(max(position.event, 0), self._end_of(index).event)
        target = Position(index, event)
        if target < self._position or self._keyframe_before(index) > self._position.number:
            self._restore(index)
        for passed in self._events_between(self._position, target):
            self.state.apply(passed)
        self._position = target

    def go_to_step(self, index: int) -> bool:
        """Go to the end of a step; tell whether that is another place."""
        return self._moved_to(self._end_of(min(max(index, -1), self._num_shown - 1)))

    def forward_step(self) -> bool:
        """Go to the end of this step, or of the next one; False at the end."""
        index, event = self._position
        return self.go_to_step(index if event < self._end_of(index).event else index + 1)

    def back_step(self) -> bool:
        """Go back to the end of the step before; False at the start."""
        return self.go_to_step(self._position.number - 1)

    def forward_event(self) -> bool:
        """Go one event forward, into the next step at the end of one; False at the end."""
        index, event = self._position
        if event < self._end_of(index).event:
            return self._moved_to(Position(index, event + 1))
        return self._moved_to(Position(index + 1, 1)) if index + 1 < self._num_shown else False

    def back_event(self) -> bool:
        """Go one event back, into the step before at the begin of one; False at the start."""
        index, event = self._position
        if event > 1 or index < 0:
            return self._moved_to(Position(index, event - 1))
        return self._moved_to(self._end_of(index - 1))

    def first(self) -> bool:
        """Go to the start, before anything happened."""
        return self._moved_to(START)

    def last(self) -> bool:
        """Go to the newest event."""
        return self._moved_to(self._end_of(self._num_shown - 1))

    # --- inside -----------------------------------------------------------------------------------

    def _keep(self, keyframe: Replay) -> None:
        """Add the next keyframe; of too many, every second one stays."""
        self._keyframes.append(keyframe)
        if len(self._keyframes) == MAX_KEYFRAMES:
            self._keyframes = self._keyframes[1::2]
            self._distance *= 2

    @property
    def _num_shown(self) -> int:
        return len(self.steps) + (self._preview is not None)

    def _empty(self) -> Replay:
        header = self.header
        return Replay(header.num_blocks, header.block_size, header.num_swap_blocks)

    def _step_at(self, index: int) -> TraceStep:
        if index == len(self.steps) and self._preview is not None:
            return self._preview
        return self.steps[index]

    def _end_of(self, index: int) -> Position:
        return Position(index, len(self._step_at(index).events)) if index >= 0 else START

    def _moved_to(self, position: Position) -> bool:
        before = self._position
        self.go_to(position)
        return self._position != before

    def _keyframe_before(self, index: int) -> int:
        """Give the step whose begin the last useful keyframe shows; 0 is the empty state."""
        return min(max(index, 0) // self._distance, len(self._keyframes)) * self._distance

    def _restore(self, index: int) -> None:
        """Start again from the last keyframe that is not after the begin of step `index`."""
        number = self._keyframe_before(index) // self._distance
        self.state = self._keyframes[number - 1].copy() if number else self._empty()
        self._position = self._end_of(number * self._distance - 1)

    def _events_between(self, start: Position, stop: Position) -> Iterator[Event]:
        for index in range(max(start.number, 0), stop.number + 1):
            events = self._step_at(index).events
            first = start.event if index == start.number else 0
            last = stop.event if index == stop.number else len(events)
            yield from events[first:last]
