"""A kernel run as a file: what each program read, wrote and kept, in order. JSON lines, version 1.

    {"format": "minipaged-kernel-recording", "version": 1, "title": ..., "launches": [...], ...}
    {"launch": 0, "program": [0, 1, 0], "seq": 0, "rows": ["head 2", "head 3"], "steps": [...]}

The first line tells what holds for the whole run, each further one is a program. Files from other
people are untrusted: every field is checked, and a TraceError says in one line what is wrong where.
A number that is minus infinity, as the largest of no scores is, is null in the file.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from minipaged.errors import TraceError
from minipaged.memory.events import short
from minipaged.memory.json_records import at, read_object, read_record
from minipaged.memory.kernel_recording_checks import (
    MAX_PROGRAMS,
    at_most,
    check_header,
    check_program,
)

FORMAT, VERSION = "minipaged-kernel-recording", 1
MAX_BYTES = 2**24
_FIRST = re.compile(rb'\s*\{\s*"format"\s*:\s*"' + FORMAT.encode() + b'"')


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel; `source` are its lines, the first of which is line `first_line`."""

    kernel: str
    file: str
    grid: tuple[int, ...]
    first_line: int
    source: tuple[str, ...]


@dataclass(frozen=True)
class SequenceTable:
    """A sequence of so many tokens, and the physical blocks that hold them."""

    num_tokens: int
    blocks: tuple[int, ...]


@dataclass(frozen=True)
class RowState:
    """One row's online softmax after a tile: `largest` score m, `total` l, and what led there.

    `rescale` is what the old `total` and `weighted` were multiplied by, `before` the old largest.
    `scores` and `weights` have one number for each token of the tile, `weighted` some of the sums.
    """

    before: float
    largest: float
    rescale: float
    total: float
    scores: tuple[float, ...]
    weights: tuple[float, ...]
    weighted: tuple[float, ...]


@dataclass(frozen=True)
class KernelStep:
    """A load or a store, or what the lines `line` to `last_line` make of the softmax.

    `box` are first and last index in each dimension of `tensor`; `blocks` and `slots` are physical,
    a slot is block * block_size + offset. `values` are those of an integer tensor. An update has
    `tokens`, the positions in the sequence, and the state of each row of the program. A join weighs
    the parts of a context: its `tokens` are their numbers, its `scores` their log-sum-exp.
    """

    kind: str
    line: int
    last_line: int
    tensor: str = ""
    box: tuple[tuple[int, ...], ...] = ()
    blocks: tuple[int, ...] = ()
    slots: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    num_bytes: int = 0
    values: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    state: tuple[RowState, ...] = ()


@dataclass(frozen=True)
class ProgramRun:
    """One program: its place in the grid, whose tokens it attends to (-1: nobody's), its steps."""

    launch: int
    program: tuple[int, ...]
    seq: int
    rows: tuple[str, ...]
    steps: tuple[KernelStep, ...]


@dataclass(frozen=True)
class KernelRecording:
    """A run of one or more kernels on one pool of blocks."""

    title: str
    block_size: int
    num_blocks: int
    sequences: tuple[SequenceTable, ...]
    launches: tuple[Launch, ...]
    programs: tuple[ProgramRun, ...]

    def save(self, path: str | Path) -> None:
        """Write it as a file; it takes the place of an older recording, but of no other file.

        Raises:
            TraceError: The file can't be written, or is no recording.
        """
        try:
            if Path(path).is_file() and Path(path).stat().st_size and not is_recording(path):
                raise TraceError(f"{path}: there is such a file, and no recording: it is kept")
            Path(path).write_text("\n".join(_lines(self)) + "\n", encoding="utf-8", newline="\n")
        except OSError as e:
            raise TraceError(f"{path}: can't be written: {e.strerror or e}") from e

    @classmethod
    def load(cls, path: str | Path) -> KernelRecording:
        """Read a file.

        Raises:
            TraceError: It can't be read, is no recording, of another version, or malformed.
        """
        try:
            with Path(path).open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        except OSError as e:
            raise TraceError(f"{path}: can't be read: {e.strerror or e}") from e
        try:
            return parse(content)
        except ValueError as e:
            raise TraceError(f"{path}: {e}") from None


def is_recording(path: str | Path) -> bool:
    """Tell whether a file begins as a recording of a kernel does; a pipe is not looked into."""
    try:
        if not Path(path).is_file():
            return False
        with Path(path).open("rb") as file:
            return _FIRST.match(file.read(200)) is not None
    except OSError:
        return False


# --- writing --------------------------------------------------------------------------------------


def _lines(recording: KernelRecording) -> list[str]:
    values = to_json(recording)
    programs = values.pop("programs")
    rows = [{"format": FORMAT, "version": VERSION, **values}, *programs]
    return [
        json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False) for row in rows
    ]


def to_json(recording: KernelRecording) -> dict[str, Any]:
    """Give a recording as what JSON can hold; fields of steps that hold nothing are left out."""
    values = asdict(recording)
    for program in values["programs"]:
        program["steps"] = [
            {key: value for key, value in step.items() if value not in ("", (), 0) or key == "line"}
            for step in program["steps"]
        ]
    found = _finite(values)
    assert isinstance(found, dict)
    return found


def _finite(value: Any) -> Any:
    """Give minus infinity as null, and numbers with six digits, in whatever holds them."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    if isinstance(value, float):
        return None if value == -math.inf else float(f"{value:.6g}")
    return value


# --- reading --------------------------------------------------------------------------------------


def parse(content: bytes) -> KernelRecording:
    """Read the content of a file.

    Raises:
        ValueError: It is no recording, or malformed; the message names the line.
    """
    if len(content) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES} bytes")
    first, *others = content.split(b"\n")
    is_cut_off = others.pop() != b"" if others else True
    header: KernelRecording = at("line 1", _parse_header, first)
    if is_cut_off or not others:
        raise ValueError("it is cut off: each line ends, and there is one program at least")
    at_most("programs", len(others), MAX_PROGRAMS)
    programs = (
        at(f"line {number}", partial(_parse_program, header), line)
        for number, line in enumerate(others, 2)
    )
    return replace(header, programs=tuple(programs))


def _parse_header(line: bytes) -> KernelRecording:
    row = read_object(line)
    if row.pop("format", None) != FORMAT:
        raise ValueError(f"not a kernel recording: its first line must have format {FORMAT!r}")
    version = row.pop("version", None)
    if type(version) is not int or version != VERSION:
        raise ValueError(f"version {short(version)}, only {VERSION} can be read")
    header = read_record(KernelRecording, {**row, "programs": []})
    check_header(header)
    return header


def _parse_program(header: KernelRecording, line: bytes) -> ProgramRun:
    program = read_record(ProgramRun, read_object(line))
    check_program(program, header)
    return program
