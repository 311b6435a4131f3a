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
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from minipaged.errors import TraceError
from minipaged.memory.events import short
from minipaged.memory.json_records import at, read_object, read_record

FORMAT, VERSION = "minipaged-kernel-recording", 1
KINDS = ("load", "store", "update", "join")
MAX_BYTES = 2**24
MAX_BLOCKS, MAX_BLOCK_SIZE, MAX_PARTS = 2**12, 2**10, 2**10
# What a browser can draw: each slot, program and launch is an element, each token a bar.
MAX_SLOTS, MAX_PROGRAMS, MAX_LAUNCHES, MAX_STEPS, MAX_TOKENS = 2**16, 2**12, 2**6, 2**12, 2**14
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
        """Write it as a file.

        Raises:
            TraceError: The file can't be written.
        """
        try:
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
    _at_most("programs", len(others), MAX_PROGRAMS)
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
    _check_header(header)
    return header


def _parse_program(header: KernelRecording, line: bytes) -> ProgramRun:
    program = read_record(ProgramRun, read_object(line))
    _check_program(program, header)
    return program


# --- what must hold between fields ----------------------------------------------------------------


def _check_header(header: KernelRecording) -> None:
    _within("block_size", header.block_size, 1, MAX_BLOCK_SIZE)
    _within("num_blocks", header.num_blocks, 1, MAX_BLOCKS)
    _at_most("slots", header.num_blocks * header.block_size, MAX_SLOTS)
    _at_most("launches", len(header.launches), MAX_LAUNCHES)
    for index, sequence in enumerate(header.sequences):
        needed = -(-sequence.num_tokens // header.block_size)
        if sequence.num_tokens < 0 or needed != len(sequence.blocks):
            raise ValueError(
                f"sequences: [{index}]: {sequence.num_tokens} tokens can't lie in "
                f"{len(sequence.blocks)} blocks of {header.block_size}"
            )
        _all_within(f"sequences: [{index}]: blocks", sequence.blocks, header.num_blocks)
    for index, launch in enumerate(header.launches):
        if len(launch.grid) != 3 or min(launch.grid) < 1:
            raise ValueError(f"launches: [{index}]: grid must be three sizes, not {launch.grid}")


def _check_program(program: ProgramRun, header: KernelRecording) -> None:
    _within("launch", program.launch, 0, len(header.launches) - 1)
    _within("seq", program.seq, -1, len(header.sequences) - 1)
    launch = header.launches[program.launch]
    if len(program.program) != 3:
        raise ValueError(f"program must be three numbers, not {program.program}")
    for axis, size in zip(program.program, launch.grid, strict=True):
        _within("program", axis, 0, size - 1)
    if not program.steps:
        raise ValueError("steps: there is none")
    _at_most("steps", len(program.steps), MAX_STEPS)
    _at_most("tokens", sum(len(step.tokens) for step in program.steps), MAX_TOKENS)
    for index, step in enumerate(program.steps):
        _check_step(index, step, program, header)


def _check_step(index: int, step: KernelStep, program: ProgramRun, header: KernelRecording) -> None:
    where, launch = f"steps: [{index}]", header.launches[program.launch]
    last = launch.first_line + len(launch.source) - 1
    if step.kind not in KINDS:
        raise ValueError(
            f"{where}: kind must be load, store, update or join, not {short(step.kind)}"
        )
    _within(f"{where}: line", step.line, launch.first_line, last)
    _within(f"{where}: last_line", step.last_line, step.line, last)
    _all_within(f"{where}: blocks", step.blocks, header.num_blocks)
    _all_within(f"{where}: slots", step.slots, header.num_blocks * header.block_size)
    if any(len(pair) != 2 or pair[0] > pair[1] for pair in step.box):
        raise ValueError(f"{where}: box must hold pairs of a first and a last index")
    if step.kind in ("update", "join"):
        _check_update(where, step, program, header)


def _check_update(
    where: str, step: KernelStep, program: ProgramRun, header: KernelRecording
) -> None:
    if program.seq < 0:
        raise ValueError(f"{where}: a program of no sequence has no tokens")
    num_tokens = header.sequences[program.seq].num_tokens
    size = num_tokens if step.kind == "update" else MAX_PARTS
    _all_within(f"{where}: tokens", step.tokens, size)
    if not len(step.state) == len(program.rows) > 0:
        raise ValueError(f"{where}: {len(step.state)} states for {len(program.rows)} rows")
    for row in step.state:
        if not len(row.scores) == len(row.weights) == len(step.tokens):
            raise ValueError(f"{where}: scores and weights must be one for each token")


def _within(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} is {value}; it must be from {least} to {most}")


def _at_most(name: str, number: int, most: int) -> None:
    if number > most:
        raise ValueError(f"{number} {name} are too many to be shown: at most {most}")


def _all_within(name: str, values: Sequence[int], size: int) -> None:
    for value in values:
        _within(name, value, 0, size - 1)
