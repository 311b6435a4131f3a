"""What a browser gets of a trace: its lines as they are, and the words for them.

The captions are made here, so that every view says the same. A step's captions cover its events in
order: `[count, text]` tells `count` events in a row in one line. Where that is more than one,
`[count, text, [text, ...]]` also tells each of them alone, for those who go event by event.

JavaScript's numbers are exact up to 2**53; a trace with larger ones is refused here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any

from minipaged.errors import TraceError
from minipaged.memory.events import Event, Written, to_json
from minipaged.memory.trace import TraceHeader, TraceStep
from minipaged.memory.trace_format import FORMAT, VERSION
from minipaged_visualizer.captions import ROUTINE, SIGNS, caption, captions, groups

_LARGEST = 2**53 - 1


def trace_payload(header: TraceHeader, steps: Iterable[TraceStep]) -> dict[str, Any]:
    """Give a whole trace as plain JSON values.

    Raises:
        TraceError: A number is too large for a browser; the message names the place.
    """
    return {**header_payload(header), "steps": [step_payload(step) for step in steps]}


def header_payload(header: TraceHeader) -> dict[str, Any]:
    """Give what a browser must know before the first step."""
    _check_numbers("the header", [header.bytes_per_block])
    return {
        "header": {"format": FORMAT, "version": VERSION, **asdict(header)},
        "signs": SIGNS,
        "routine": sorted(ROUTINE),
        "write_words": _write_words(),
    }


def _write_words() -> str:
    """Give the caption of a write with places to fill: a block's history names its writer only.

    >>> _write_words()
    '{who} “{text}”: keys and values written'
    """
    return "{who}" + caption(Written((0,), (0,), ("{text}",))).text.removeprefix("A")


def step_payload(step: TraceStep) -> dict[str, Any]:
    """Give one step with its captions."""
    return {**plain_step(step), "captions": step_captions(step.events)}


def plain_step(step: TraceStep) -> dict[str, Any]:
    """Give one step without captions.

    Raises:
        TraceError: A number is too large for a browser; the message names the place.
    """
    place = f"step {step.step}"
    _check_numbers(place, [step.step, step.prefill_tokens, step.decode_tokens])
    events = [to_json(event) for event in step.events]
    for index, (kind, *fields) in enumerate(events):
        _check_numbers(f"{place}, event {index} ({kind})", fields)
    return {
        "step": step.step,
        "prefill_tokens": step.prefill_tokens,
        "decode_tokens": step.decode_tokens,
        "note": step.note,
        "events": events,
    }


def step_captions(events: Sequence[Event]) -> list[list[Any]]:
    """Give `[count, text]` or `[count, text, [text, ...]]` for each run of like events."""
    told = zip(groups(events), captions(events), strict=True)
    return [
        [len(group), line.text]
        if len(group) == 1
        else [len(group), line.text, [caption(event).text for event in group]]
        for group, line in told
    ]


def _check_numbers(place: str, fields: Iterable[Any]) -> None:
    for number in chain.from_iterable(map(_extremes, fields)):
        if abs(number) > _LARGEST:
            raise TraceError(f"{place}: {number} is too large for a browser, which counts to 2**53")


def _extremes(field: Any) -> tuple[int, ...]:
    """Give the integer of a field, or the least and largest of its array."""
    if isinstance(field, int):
        return (field,)
    if isinstance(field, tuple) and field and isinstance(field[0], tuple):
        return _extremes(tuple(chain.from_iterable(field)))
    if isinstance(field, tuple) and field and isinstance(field[0], int):
        return (min(field), max(field))
    return ()
