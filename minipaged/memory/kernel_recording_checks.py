"""What must hold between the fields of a kernel's recording, so that it can be drawn.

`json_records` sees to it that each field is there and of its type; here numbers are compared:
places lie in the grid, blocks in the pool, lines in the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from minipaged.memory.events import short

if TYPE_CHECKING:
    from minipaged.memory.kernel_recording import KernelRecording, KernelStep, ProgramRun

KINDS = ("load", "store", "update", "join")
MAX_BLOCKS, MAX_BLOCK_SIZE, MAX_PARTS = 2**12, 2**10, 2**10
# What a browser can draw: each slot, program and launch is an element, each token a bar.
MAX_SLOTS, MAX_PROGRAMS, MAX_LAUNCHES, MAX_STEPS, MAX_TOKENS = 2**16, 2**12, 2**6, 2**12, 2**14


def check_header(header: KernelRecording) -> None:
    """Check what holds for the whole run: sizes, tables and grids.

    Raises:
        ValueError: It can't be so, or is more than a browser can draw.
    """
    _within("block_size", header.block_size, 1, MAX_BLOCK_SIZE)
    _within("num_blocks", header.num_blocks, 1, MAX_BLOCKS)
    at_most("slots", header.num_blocks * header.block_size, MAX_SLOTS)
    at_most("launches", len(header.launches), MAX_LAUNCHES)
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


def check_program(program: ProgramRun, header: KernelRecording) -> None:
    """Check a program and its steps against the run that they belong to.

    Raises:
        ValueError: It can't be so, or is more than a browser can draw; the message names the step.
    """
    _within("launch", program.launch, 0, len(header.launches) - 1)
    _within("seq", program.seq, -1, len(header.sequences) - 1)
    launch = header.launches[program.launch]
    if len(program.program) != 3:
        raise ValueError(f"program must be three numbers, not {program.program}")
    for axis, size in zip(program.program, launch.grid, strict=True):
        _within("program", axis, 0, size - 1)
    if not program.steps:
        raise ValueError("steps: there is none")
    at_most("steps", len(program.steps), MAX_STEPS)
    at_most("tokens", sum(len(step.tokens) for step in program.steps), MAX_TOKENS)
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


def at_most(name: str, number: int, most: int) -> None:
    """Refuse more things than can be drawn.

    Raises:
        ValueError: There are more.
    """
    if number > most:
        raise ValueError(f"{number} {name} are too many to be shown: at most {most}")


def _all_within(name: str, values: Sequence[int], size: int) -> None:
    for value in values:
        _within(name, value, 0, size - 1)
