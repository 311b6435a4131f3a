"""The lines of a trace: one header, then one line a step, as JSON. Version 1.

    {"format": "minipaged-trace", "version": 1, "block_size": 4, "num_blocks": 64, ...}
    {"step": 0, "prefill_tokens": 5, "decode_tokens": 0, "note": "", "events": [["alloc", ...]]}

Field order is the format. Lines from other people are untrusted: every field is checked, and a
ValueError says in one line what is wrong. Events whose name begins with `x-` are skipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from minipaged.memory.events import Event, from_json, short, to_json

FORMAT, VERSION = "minipaged-trace", 1
MAX_BLOCKS, MAX_BLOCK_SIZE = 2**22, 2**16


@dataclass(frozen=True)
class TraceHeader:
    """What a reader must know before the first step. `model` names a model, never a path.

    The settings in `model` and `scheduler` are integers, strings, booleans, null, or arrays of
    these; ValueError tells of any other.
    """

    block_size: int
    num_blocks: int
    num_swap_blocks: int = 0
    bytes_per_block: int = 0
    allocator: str = "paged"
    model: dict[str, Any] = field(default_factory=dict)
    scheduler: dict[str, Any] = field(default_factory=dict)
    title: str = ""

    def __post_init__(self) -> None:
        for name, setting in [*self.model.items(), *self.scheduler.items()]:
            values = setting if isinstance(setting, list) else [setting]
            if not all(value is None or isinstance(value, int | str) for value in values):
                raise ValueError(f"setting {short(name)} can't be {short(setting)}")


@dataclass(frozen=True)
class TraceStep:
    """One step of the engine and everything that happened since the step before.

    `us` is the step's duration in microseconds, if somebody asked for it; equality ignores it.
    """

    step: int
    prefill_tokens: int
    decode_tokens: int
    note: str
    events: tuple[Event, ...]
    us: int | None = field(default=None, compare=False)


def header_line(header: TraceHeader) -> bytes:
    """Give the first line of a trace."""
    return _encode({"format": FORMAT, "version": VERSION, **asdict(header)})


def step_line(step: TraceStep) -> bytes:
    """Give the line of one step."""
    row: dict[str, Any] = {
        "step": step.step,
        "prefill_tokens": step.prefill_tokens,
        "decode_tokens": step.decode_tokens,
        "note": step.note,
        "events": [to_json(event) for event in step.events],
    }
    if step.us is not None:
        row["us"] = step.us
    return _encode(row)


def parse_header(line: bytes) -> TraceHeader:
    """Read the first line of a trace.

    Raises:
        ValueError: It is none, or of another version.
    """
    row = _decode_object(line)
    if row.get("format") != FORMAT:
        raise ValueError(f"not a trace: its first line must have format {FORMAT!r}")
    version = row.get("version")
    if type(version) is not int or version != VERSION:
        raise ValueError(f"trace version {short(version)}, only {VERSION} can be read")
    return TraceHeader(
        block_size=_int(row, "block_size", 1, MAX_BLOCK_SIZE),
        num_blocks=_int(row, "num_blocks", 1, MAX_BLOCKS),
        num_swap_blocks=_int(row, "num_swap_blocks", 0, MAX_BLOCKS, default=0),
        bytes_per_block=_int(row, "bytes_per_block", 0, 2**62, default=0),
        allocator=_typed(row, "allocator", str, "paged"),
        model=_typed(row, "model", dict, {}),
        scheduler=_typed(row, "scheduler", dict, {}),
        title=_typed(row, "title", str, ""),
    )


def parse_step(line: bytes, first: int) -> TraceStep:
    """Read the line of a step whose number must be `first` at least.

    Raises:
        ValueError: It is none; the message names the field or the event.
    """
    row = _decode_object(line)
    return TraceStep(
        step=_int(row, "step", first, 2**62),
        prefill_tokens=_int(row, "prefill_tokens", 0, 2**62, default=0),
        decode_tokens=_int(row, "decode_tokens", 0, 2**62, default=0),
        note=_typed(row, "note", str, ""),
        events=tuple(_parse_events(_typed(row, "events", list, []))),
        us=_int(row, "us", 0, 2**62) if "us" in row else None,
    )


def _parse_events(rows: list[Any]) -> Iterator[Event]:
    for index, row in enumerate(rows):
        try:
            event = from_json(row)
        except ValueError as e:
            raise ValueError(f"event {index}: {e}") from e
        if event is not None:
            yield event


def _int(row: dict[str, Any], key: str, least: int, most: int, default: int | None = None) -> int:
    value = row.get(key, default)
    if type(value) is not int or not least <= value <= most:
        found = "is missing" if value is None else f"is {short(value)}"
        raise ValueError(f"{key!r} {found}; it must be an integer from {least} to {most}")
    return value


def _typed(row: dict[str, Any], key: str, wanted: type, default: Any) -> Any:
    value = row.get(key, default)
    if not isinstance(value, wanted):
        raise ValueError(f"{key!r} must be {_WORDS[wanted.__name__]}, not {short(value)}")
    return value


_WORDS = {"str": "a string", "list": "an array", "dict": "an object"}


def _encode(row: dict[str, Any]) -> bytes:
    """Give a row as UTF-8; half a surrogate pair, which is no character, becomes a `?`."""
    text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="replace") + b"\n"


def _decode_object(line: bytes) -> dict[str, Any]:
    """Read strict JSON: UTF-8, no NaN, no lone surrogates, an object outside."""
    try:
        text = line.decode()
        row = _DECODER.decode(text)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(row, ensure_ascii=False).encode()  # refuses what no terminal could print
    except (ValueError, RecursionError) as e:
        raise ValueError(f"not JSON ({e!s:.100})") from e
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    return row


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
