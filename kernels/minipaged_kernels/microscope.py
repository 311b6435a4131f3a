"""A kernel under the microscope: each program's loads and stores, and its online softmax.

    with magnify("Decode") as microscope:
        paged_decode(query, layer_cache, block_tables, seq_lens)
    microscope.kernel_recording().save("decode.jsonl")

Nothing is computed a second time. The running values are the kernel's own: the interpreter runs it
as a Python function, and whenever that loads or stores, its variables are looked at. A tile's
update of the softmax is seen at the access that follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from minipaged.memory.kernel_recording import (
    KernelRecording,
    KernelStep,
    Launch,
    ProgramRun,
    SequenceTable,
)
from minipaged_kernels.interpreter import Access, SourceLine, watched
from minipaged_kernels.kernel_source import source_of, statement_at
from minipaged_kernels.recorder import CACHE_AXES, Recording, Touch
from minipaged_kernels.softmax_steps import (
    STATE,
    Tile,
    array,
    integer,
    join_step,
    row_names,
    update_step,
)

MOST_VALUES = 64  # of an integer tensor, that one load tells
_SHAPES = {"key_cache": (0, 1), "cache": (1, None)}  # where num_blocks and block_size stand


@contextmanager
def magnify(
    title: str = "", sequences: Sequence[SequenceTable] = (), block_size: int | None = None
) -> Iterator[Microscope]:
    """Look closely at the kernels launched inside.

    Args:
        title: What the recording is about.
        sequences: Who holds the blocks, for kernels that are given no block tables.
        block_size: For kernels that are given none.
    """
    microscope = Microscope(title, sequences, block_size)
    with watched(microscope):
        yield microscope


class Microscope(Recording):
    """A recording that also keeps values: what was loaded, and the state of the softmax."""

    def __init__(
        self, title: str, sequences: Sequence[SequenceTable], block_size: int | None
    ) -> None:
        super().__init__(CACHE_AXES)
        self._title = title
        self._sequences = tuple(sequences)
        self._block_size = block_size
        self._num_blocks = 0
        self._launches: list[str] = []
        self._tensors: Mapping[str, Tensor] = {}
        self._programs: dict[tuple[int, tuple[int, ...]], _Program] = {}

    def launched(self, kernel: str, arguments: Mapping[str, Any]) -> None:
        """Begin a launch: remember what lies in the tensors that tell of blocks."""
        super().launched(kernel, arguments)
        self._launches.append(kernel)
        self._tensors = {n: value for n, value in arguments.items() if isinstance(value, Tensor)}
        for name, (blocks, slots) in _SHAPES.items():
            if name in self._tensors:
                self._num_blocks = self._tensors[name].shape[blocks]
                if slots is not None:
                    self._block_size = self._tensors[name].shape[slots]
        if "block_tables" in arguments and not self._sequences:
            self._sequences = self._sequences_of(arguments)

    def accessed(self, access: Access) -> None:
        """Take one load or store, and the update of the softmax that came before it, if one did.

        Raises:
            KernelError: It goes outside of a tensor.
        """
        num_touches = len(self.touches)
        super().accessed(access)
        if len(self.touches) == num_touches:
            return
        key = (len(self._launches) - 1, tuple(map(int, access.program)))
        program = self._programs.setdefault(key, _Program())
        touch = self.touches[-1]
        program.take(touch, _values_of(touch, self._tensors[touch.argument.name]), access.values)

    def kernel_recording(self) -> KernelRecording:
        """Give what was seen so far, as a file keeps it, without launches that touched nothing."""
        ran = sorted({launch for launch, _ in self._programs})
        return KernelRecording(
            title=self._title,
            block_size=self._block_size or 1,
            num_blocks=self._num_blocks,
            sequences=self._sequences,
            launches=tuple(map(self._launch, ran)),
            programs=tuple(
                program.run(ran.index(launch), place)
                for (launch, place), program in self._programs.items()
            ),
        )

    def _launch(self, number: int) -> Launch:
        runs = {place: run for (launch, place), run in self._programs.items() if launch == number}
        file = next(iter(runs.values())).file
        grid = tuple(max(axis) + 1 for axis in zip(*runs, strict=True))
        kernel = self._launches[number]
        first, source = source_of(file, kernel)
        return Launch(kernel, Path(file).name, grid, first, tuple(source))

    def _sequences_of(self, arguments: Mapping[str, Any]) -> tuple[SequenceTable, ...]:
        """Give the tables that a kernel was given, without what lies beyond a context."""
        size = self._block_size or 1
        rows = zip(arguments["block_tables"].tolist(), arguments["seq_lens"].tolist(), strict=True)
        return tuple(SequenceTable(n, tuple(row[: -(-n // size)])) for row, n in rows)


class _Program:
    """The steps of one program, as they come."""

    def __init__(self) -> None:
        self.steps: list[KernelStep] = []
        self.file = ""
        self._seq = -1
        self._rows: tuple[str, ...] = ()
        self._largest: Any = None
        self._tile: Tile | None = None
        self._at_parts: SourceLine | None = None  # where the parts of a context were weighed

    def take(self, touch: Touch, values: tuple[int, ...], variables: Mapping[str, Any]) -> None:
        self.file = touch.place.file
        self._look(variables)
        if touch.is_write and self._at_parts is not None:
            self._rows = (f"head {integer(variables, 'head')}",)
            self.steps.append(join_step(self._at_parts, touch.place, variables))
        self.steps.append(_step(touch, values))
        if not touch.is_write:
            self._remember(touch, variables)

    def run(self, launch: int, program: tuple[int, ...]) -> ProgramRun:
        return ProgramRun(launch, program, self._seq, self._rows, tuple(self.steps))

    def _remember(self, touch: Touch, variables: Mapping[str, Any]) -> None:
        """Keep where a tile or the parts were loaded: what follows works on them."""
        if touch.argument.name == "value_cache" and "tokens" in variables:
            self._tile = Tile(touch.place, array(variables["tokens"]))
        elif touch.argument.name == "log_sums" and "head" in variables:
            self._at_parts = touch.place

    def _look(self, variables: Mapping[str, Any]) -> None:
        """Take an update of the softmax, if there was one since the last look."""
        if "seq" in variables:
            self._seq = integer(variables, "seq")
        largest, is_known = variables.get("largest"), variables.keys() >= {*STATE}
        if self._tile is not None and is_known and largest is not self._largest:
            self._rows = row_names(variables)
            self.steps.append(update_step(self._tile, self._largest, variables))
        self._largest = largest


def _step(touch: Touch, values: tuple[int, ...]) -> KernelStep:
    indices = np.unravel_index(touch.elements, touch.argument.shape)
    first, last = statement_at(touch.place)
    return KernelStep(
        kind="store" if touch.is_write else "load",
        line=first,
        last_line=last,
        tensor=touch.argument.name,
        box=tuple((int(index.min()), int(index.max())) for index in indices),
        blocks=touch.blocks,
        slots=touch.slots,
        heads=touch.heads,
        num_bytes=touch.num_bytes,
        values=values,
    )


def _values_of(touch: Touch, tensor: Tensor) -> tuple[int, ...]:
    """Give what a load of integers gives: the entries of tables, lengths, slots."""
    if touch.is_write or tensor.dtype.is_floating_point or touch.elements.size > MOST_VALUES:
        return ()
    if touch.argument.axes:  # integers, but a cache's
        return ()
    return tuple(tensor.reshape(-1)[touch.elements.tolist()].tolist())
