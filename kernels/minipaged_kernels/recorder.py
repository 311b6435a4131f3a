"""What a kernel really touches: which program reads or writes which block, at which line.

    with record() as recording:
        paged_decode(query, layer_cache, block_tables, seq_lens)
    recording.bytes_read("key_cache")

Kernels run in Triton's interpreter, on tensors in host memory. Every address of every load and
store is traced back to a tensor, and, in a cache, to its block, slot and head. Three mistakes that
a GPU would hide are KernelErrors that name program and line:

- an address outside of the tensor it was computed from, before memory is touched;
- two programs that write one address;
- a program that reads what another one writes: on a GPU nobody knows who comes first.

`Recording.events` gives what a trace can keep.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from minipaged.memory.events import KernelAccess
from minipaged_kernels.interpreter import Access, KernelError, Program, SourceLine, watched

Indices = NDArray[np.int64]

# What the dimensions of a kernel's arguments mean, by the arguments' names.
CACHE_AXES = {
    "key_cache": ("block", "slot", "head", "dim"),
    "value_cache": ("block", "slot", "head", "dim"),
    "key_scales": ("block", "slot", "head"),
    "value_scales": ("block", "slot", "head"),
    "cache": ("plane", "block", "element"),
}


class Argument(NamedTuple):
    """A tensor that a kernel was given. `strides` are in elements, `address` in bytes."""

    name: str
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    item_bytes: int
    axes: tuple[str, ...] = ()

    @property
    def end(self) -> int:
        """Give the address behind the last element."""
        spans = zip(self.shape, self.strides, strict=True)
        last = sum((size - 1) * stride for size, stride in spans)
        return self.address + (last + 1) * self.item_bytes if all(self.shape) else self.address

    def elements(self, addresses: NDArray[np.uint64]) -> Indices:
        """Give the row-major number of the element at each address; -1 where there is none."""
        offsets = addresses.astype(np.int64) - self.address
        rest, misaligned = np.divmod(offsets, self.item_bytes)
        valid = (offsets >= 0) & (addresses < self.end) & (misaligned == 0)
        numbers = np.zeros_like(rest)
        for axis in sorted(range(len(self.shape)), key=lambda axis: -self.strides[axis]):
            if self.shape[axis] > 1 and self.strides[axis] > 0:
                index, rest = np.divmod(rest, self.strides[axis])
                valid &= index < self.shape[axis]
                numbers += index * int(np.prod(self.shape[axis + 1 :]))
        return np.where(valid & (rest == 0), numbers, -1)


@dataclass(frozen=True)
class Touch:
    """One load or store of one program, as elements of a tensor (row-major numbers)."""

    kernel: str
    program: Program
    place: SourceLine
    is_write: bool
    argument: Argument
    elements: Indices

    @property
    def code(self) -> str:
        """Give the line of source that did it."""
        return linecache.getline(*self.place).strip()

    @property
    def num_bytes(self) -> int:
        """Give the bytes that were asked for."""
        return self.elements.size * self.argument.item_bytes

    def index(self, axis: str) -> Indices:
        """Give each element's index along a named axis; nothing if the tensor has no such axis."""
        if axis not in self.argument.axes:
            return self.elements[:0]
        position = self.argument.axes.index(axis)
        return np.unravel_index(self.elements, self.argument.shape)[position]

    @property
    def blocks(self) -> tuple[int, ...]:
        """Give the physical blocks, in the order in which they were touched."""
        return tuple(dict.fromkeys(self.index("block").tolist()))

    @property
    def slots(self) -> tuple[int, ...]:
        """Give the slots, sorted: block * block_size + offset."""
        if "slot" not in self.argument.axes:
            return ()
        block_size = self.argument.shape[self.argument.axes.index("slot")]
        return _distinct(self.index("block") * block_size + self.index("slot"))

    @property
    def heads(self) -> tuple[int, ...]:
        """Give the KV heads, sorted."""
        return _distinct(self.index("head"))

    def event(self) -> KernelAccess:
        """Give it as a trace keeps it."""
        return KernelAccess(
            name=self.kernel,
            program=tuple(map(int, self.program)),
            blocks=self.blocks,
            line=self.place.line,
            code=self.code,
            access="store" if self.is_write else "load",
            tensor=self.argument.name,
            slots=self.slots,
            heads=self.heads,
            num_bytes=self.num_bytes,
        )


class Recording:
    """Every load and store since `record` began, in order; those with all lanes masked left out."""

    def __init__(self, axes: Mapping[str, tuple[str, ...]]) -> None:
        self.touches: list[Touch] = []
        self._axes = axes
        self._kernel = ""
        self._arguments: list[Argument] = []
        self._first_of_launch = 0

    def events(self) -> list[KernelAccess]:
        """Give events for a trace, one for each load and store."""
        return [touch.event() for touch in self.touches]

    def bytes_read(self, tensor: str) -> int:
        """Give the bytes that programs asked for of an argument, repetitions included."""
        return sum(touch.num_bytes for touch in self._of(tensor, is_write=False))

    def bytes_written(self, tensor: str) -> int:
        """Give the bytes that programs stored to an argument."""
        return sum(touch.num_bytes for touch in self._of(tensor, is_write=True))

    def distinct_bytes_read(self, tensor: str) -> int:
        """Give the bytes of an argument that were needed at all: the ideal of `bytes_read`."""
        read = self._of(tensor, is_write=False)
        if not read:
            return 0
        elements = np.unique(np.concatenate([touch.elements for touch in read]))
        return elements.size * read[0].argument.item_bytes

    def _of(self, tensor: str, *, is_write: bool) -> list[Touch]:
        return [t for t in self.touches if t.argument.name == tensor and t.is_write == is_write]

    # --- what the interpreter reports ---------------------------------------------------------

    def launched(self, kernel: str, arguments: Mapping[str, Any]) -> None:
        """Remember the tensors that a kernel was given."""
        self._kernel = kernel
        self._first_of_launch = len(self.touches)
        self._arguments = [
            _argument(name, value, self._axes.get(name, ()))
            for name, value in arguments.items()
            if isinstance(value, Tensor)
        ]

    def accessed(self, access: Access) -> None:
        """Trace addresses back to a tensor.

        Raises:
            KernelError: An address lies outside of it.
        """
        if not access.addresses.size:
            return
        based = [a for a in self._arguments if a.address == access.base] or self._arguments
        for argument in based:
            elements = argument.elements(access.addresses)
            if (elements >= 0).all():
                place, is_write = access.place, access.is_write
                self.touches.append(
                    Touch(self._kernel, access.program, place, is_write, argument, elements)
                )
                return
        raise KernelError(_out_of_bounds(self._kernel, based, access))

    def finished(self) -> None:
        """Look for programs that depend on each other.

        Raises:
            KernelError: One writes what another one reads or writes.
        """
        _check_independence(self.touches[self._first_of_launch :])


@contextmanager
def record(axes: Mapping[str, tuple[str, ...]] = CACHE_AXES) -> Iterator[Recording]:
    """Record what the kernels launched inside touch.

    `axes` names the dimensions of arguments that lie in blocks: "block", "slot", "head", others.
    """
    recording = Recording(axes)
    with watched(recording):
        yield recording


def _argument(name: str, tensor: Tensor, axes: tuple[str, ...]) -> Argument:
    shape, strides = tuple(tensor.shape) or (1,), tensor.stride() or (1,)
    return Argument(name, tensor.data_ptr(), shape, strides, tensor.element_size(), axes)


def _distinct(indices: Indices) -> tuple[int, ...]:
    return tuple(np.unique(indices).tolist())


# --- what can be wrong ----------------------------------------------------------------------------


def _out_of_bounds(kernel: str, arguments: list[Argument], access: Access) -> str:
    """Tell which program left which tensor, where, and by how much."""
    found = max(arguments, key=lambda a: int((a.elements(access.addresses) >= 0).sum()))
    outside = access.addresses[found.elements(access.addresses) < 0]
    first = int(outside[0])
    if first < found.address:
        where = f"{found.address - first} bytes before its start"
    elif first >= found.end:
        where = f"{first - found.end} bytes behind its end"
    else:
        where = "between its elements"
    verb = "writes" if access.is_write else "reads"
    return (
        f"{kernel}, program {_name(access.program)}, line {access.place.line} {verb} outside of "
        f"{found.name} {list(found.shape)}: {outside.size} of {access.addresses.size} addresses, "
        f"the first {where}"
    )


def _check_independence(touches: list[Touch]) -> None:
    """Raise KernelError if a program reads or writes an address that another one writes."""
    writes = _Addresses([touch for touch in touches if touch.is_write])
    twice = np.flatnonzero(
        (writes.addresses[1:] == writes.addresses[:-1])
        & (writes.programs[1:] != writes.programs[:-1])
    )
    if twice.size:
        first, second = writes.touch(twice[0]), writes.touch(twice[0] + 1)
        raise KernelError(_conflict("write", writes.addresses[twice[0]], first, second))
    reads = _Addresses([touch for touch in touches if not touch.is_write])
    if not (writes.addresses.size and reads.addresses.size):
        return
    nearest = np.searchsorted(writes.addresses, reads.addresses).clip(max=len(writes.addresses) - 1)
    raced = np.flatnonzero(
        (writes.addresses[nearest] == reads.addresses)
        & (writes.programs[nearest] != reads.programs)
    )
    if raced.size:
        writer, reader = writes.touch(nearest[raced[0]]), reads.touch(raced[0])
        raise KernelError(_conflict("write and read", reads.addresses[raced[0]], writer, reader))


class _Addresses:
    """The addresses of many touches, sorted, and who touched each."""

    def __init__(self, touches: list[Touch]) -> None:
        self._touches = touches
        addresses = np.concatenate([_addresses(t) for t in touches] or [np.empty(0, np.int64)])
        sizes = [touch.elements.size for touch in touches]
        owners = np.repeat(np.arange(len(touches)), sizes)
        programs = [(x << 42) + (y << 21) + z for x, y, z in (touch.program for touch in touches)]
        order = np.argsort(addresses, kind="stable")
        self.addresses = addresses[order]
        self._owners: Indices = owners[order]
        self.programs = np.array(programs, dtype=np.int64)[self._owners]

    def touch(self, position: int) -> Touch:
        """Give the touch behind the address at `position`."""
        return self._touches[int(self._owners[position])]


def _addresses(touch: Touch) -> Indices:
    argument = touch.argument
    indices = np.unravel_index(touch.elements, argument.shape)
    offsets = np.zeros_like(touch.elements)
    for index, stride in zip(indices, argument.strides, strict=True):
        offsets += index * stride
    return argument.address + offsets * argument.item_bytes


def _conflict(verbs: str, address: int, first: Touch, second: Touch) -> str:
    """Tell which two programs meet at which element."""
    argument = first.argument
    element = argument.elements(np.array([address], dtype=np.uint64))[0]
    index = ", ".join(map(str, np.unravel_index(element, argument.shape)))
    return (
        f"{first.kernel}: two programs {verbs} {argument.name}[{index}]: {_name(first.program)} at "
        f"line {first.place.line} and {_name(second.program)} at line {second.place.line}"
    )


def _name(program: Program) -> str:
    return f"({', '.join(map(str, program))})"
