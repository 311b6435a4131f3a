"""What each sequence did when: waiting, prefill, decode or preempted, as spans of steps.

A span goes from the begin of step `start` to the begin of step `stop`. What a step computed belongs
to it whole: a prompt that is read in step 3 is prefill in [3, 4) and decode from 4 on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from minipaged.memory import events as ev
from minipaged.memory.trace import TraceStep

PHASES = ("waiting", "prefill", "decode", "preempted")


class Span(NamedTuple):
    """One sequence in one phase, over the steps `[start, stop)`."""

    seq: int
    name: str
    phase: str
    start: int
    stop: int


@dataclass
class _Life:
    """A sequence that has not ended: what it does, since when, and where it last got a token."""

    name: str
    phase: str
    since: int
    sampled_in: int = -1


def request_spans(steps: Iterable[TraceStep]) -> list[Span]:
    """Give every span, in the order of sequences and then of time; steps count from 0 here.

    >>> step = TraceStep(0, 1, 0, "", (ev.Requested(0, "moon", 1),))
    >>> request_spans([step])
    [Span(seq=0, name='moon', phase='waiting', start=0, stop=1)]
    """
    lives: dict[int, _Life] = {}
    spans: list[Span] = []
    number = -1
    for number, step in enumerate(steps):
        for event in step.events:
            spans += _live(lives, event, number)
    for seq in list(lives):
        spans += _end(lives, seq, number + 1)
    return sorted(spans, key=lambda span: (span.seq, span.start))


def _live(lives: dict[int, _Life], event: ev.Event, now: int) -> Iterator[Span]:
    """Take one event into account; give the spans that it ends."""
    if isinstance(event, ev.Requested):
        lives[event.seq] = _Life(event.name, "waiting", now)
    elif isinstance(event, ev.Forked):
        name = lives[event.parent].name if event.parent in lives else ""
        lives.setdefault(event.child, _Life(name, "decode", now + 1))
        yield from _enter(lives, event.child, "decode", now + 1)
    elif isinstance(event, ev.Sampled):
        for seq in filter(lives.__contains__, event.seqs):
            lives[seq].sampled_in = now
            yield from _enter(lives, seq, "decode", now + 1)
    elif isinstance(event, ev.Finished):
        if event.seq in lives:
            is_in_this_step = lives[event.seq].sampled_in == now
            yield from _end(lives, event.seq, now + is_in_this_step)
    elif isinstance(event, ev.Preempted | ev.SwappedOut):
        yield from _enter(lives, event.seq, "preempted", now)
    elif isinstance(event, ev.SwappedIn):
        yield from _enter(lives, event.seq, "decode", now)
    elif isinstance(event, ev.PrefixHit | ev.BlockAllocated | ev.SlabReserved):
        yield from _start(lives, event.seq, now)


def _start(lives: dict[int, _Life], seq: int, now: int) -> Iterator[Span]:
    """Take the first blocks as the begin of a prefill."""
    if seq in lives and lives[seq].phase in ("waiting", "preempted"):
        yield from _enter(lives, seq, "prefill", now)


def _enter(lives: dict[int, _Life], seq: int, phase: str, at: int) -> Iterator[Span]:
    life = lives.get(seq)
    if life is None or life.phase == phase:
        return
    if life.since < at:
        yield Span(seq, life.name, life.phase, life.since, at)
    life.phase, life.since = phase, at


def _end(lives: dict[int, _Life], seq: int, at: int) -> Iterator[Span]:
    life = lives.pop(seq, None)
    if life is not None and life.since < at:
        yield Span(seq, life.name, life.phase, life.since, at)
