"""What Triton's interpreter needs before it proves anything: a cure, checks, and a place to watch.

With TRITON_INTERPRET=1 in the environment before triton is imported, a kernel runs as plain numpy,
one program after another. Three things keep that from being a proof, and each has its answer here:

- bf16 is silently wrong in Triton 3.6 to 3.9 (a product of matrices gives garbage near 1e10, and
  fp32 is cut to bf16 instead of rounded). `cure_bf16` mends it.
- A 32-bit address that overflows wraps around in silence: `overflow_checked` makes it an error.
- Programs run in order, so one that needs another's result goes unnoticed: `shuffled_programs`.

`watched` reports every load and store; `recorder` makes sense of them. All names that are private
to Triton are used in this file alone.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import os
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, NamedTuple, Protocol

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray
from triton.runtime import interpreter as inner

from minipaged.errors import MinipagedError

Program = tuple[int, int, int]


class KernelError(MinipagedError):
    """A kernel does something that must never happen; the message names the program and line."""


def is_interpreted() -> bool:
    """Tell whether kernels that are defined now will be interpreted."""
    return bool(triton.knobs.runtime.interpret)


# --- bf16 -----------------------------------------------------------------------------------------

_dot = inner.InterpreterBuilder.create_dot
_cast = inner.InterpreterBuilder.cast_impl
_binary = inner.InterpreterBuilder.binary_op
_unary = inner.InterpreterBuilder.unary_op
_run = inner.GridExecutor.__call__


def cure_bf16() -> None:
    """Mend bf16 in the interpreter of this process; a second call changes nothing.

    Products and conversions become exact but for the final rounding, to nearest, ties to even.
    Other arithmetic on bf16 raises KernelError: a kernel widens to fp32 first, as a GPU does.
    """
    inner.InterpreterBuilder.create_dot = _dot_in_fp32
    inner.InterpreterBuilder.cast_impl = _cast_by_bits
    inner.InterpreterBuilder.binary_op = _binary_but_bf16
    inner.InterpreterBuilder.unary_op = _unary_but_bf16


def bf16_to_fp32(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Widen bf16, given as bits: it is the upper half of an fp32.

    >>> bf16_to_fp32(np.array([0x3F80, 0xC000], dtype=np.uint16)).tolist()
    [1.0, -2.0]
    """
    return (bits.astype(np.uint32) << 16).view(np.float32)


def fp32_to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round to the nearest bf16, ties to even, and give its bits. NaN stays NaN.

    >>> [hex(b) for b in fp32_to_bf16(np.array([1, 1 + 2**-8, 1 + 3 * 2**-8], dtype=np.float32))]
    ['0x3f80', '0x3f80', '0x3f82']
    """
    bits = np.ascontiguousarray(values).view(np.uint32).reshape(np.shape(values))
    is_odd = (bits >> 16) & 1
    rounded = (bits.astype(np.uint64) + 0x7FFF + is_odd) >> 16
    quiet_nan = (bits >> 16) | 0x40  # rounding could carry a NaN's bits into infinity
    return np.where(np.isnan(values), quiet_nan, rounded).astype(np.uint16)


def _is_bf16(handle: Any) -> bool:
    return bool(handle.dtype.scalar == tl.bfloat16)


def _widened(handle: Any) -> Any:
    """Give a bf16 operand as fp32, anything else as it is."""
    if not _is_bf16(handle):
        return handle
    return inner.TensorHandle(bf16_to_fp32(handle.data), tl.float32)


def _dot_in_fp32(self: Any, a: Any, b: Any, *rest: Any) -> Any:
    return _dot(self, _widened(a), _widened(b), *rest)


def _cast_by_bits(self: Any, src: Any, dst_type: Any) -> Any:
    if dst_type.scalar != tl.bfloat16:
        return _cast(self, _widened(src), dst_type)
    wide = _cast(self, _widened(src), tl.float32)
    return inner.TensorHandle(fp32_to_bf16(wide.data), tl.bfloat16)


def _binary_but_bf16(self: Any, lhs: Any, rhs: Any, op: Any) -> Any:
    _refuse_bf16(op, lhs, rhs)
    return _binary(self, lhs, rhs, op)


def _unary_but_bf16(self: Any, arg: Any, op: Any) -> Any:
    _refuse_bf16(op, arg)
    return _unary(self, arg, op)


def _refuse_bf16(op: Any, *operands: Any) -> None:
    if any(map(_is_bf16, operands)):
        place = _place(_kernel_frame())
        raise KernelError(f"line {place.line}: {op.__name__} on bf16, widen it to fp32 first")


# --- checks ---------------------------------------------------------------------------------------


@contextmanager
def overflow_checked() -> Iterator[None]:
    """Make integer overflow an error, and `tl.device_assert` work, in launches inside.

    Costs about three times the integer work: for tests of addresses.
    """
    checked = dataclasses.replace(inner.interpreter_builder.options, debug=True)
    with ExitStack() as stack:
        stack.enter_context(_replaced(inner.GridExecutor, __call__=_launch))
        stack.enter_context(_replaced(inner.interpreter_builder, options=checked))
        stack.enter_context(_replaced(inner.InterpreterBuilder, create_assert=_assert_with_place))
        yield


def _assert_with_place(self: Any, condition: Any, message: str) -> None:
    if not np.all(condition.data if hasattr(condition, "data") else condition):
        program, place = self.grid_idx, _place(_kernel_frame())
        raise KernelError(f"program {program}, line {place.line}: {message}")


@contextmanager
def shuffled_programs(seed: int) -> Iterator[None]:
    """Run the programs of each launch inside in a random order: on a GPU there is none."""
    orders: list[list[Program]] = [[]]
    set_dim = inner.InterpreterBuilder.set_grid_dim
    set_idx = inner.InterpreterBuilder.set_grid_idx

    def shuffle(self: Any, *grid: int) -> None:
        order = [(x, y, z) for x, y, z in itertools.product(*map(range, grid))]
        random.Random(seed).shuffle(order)
        orders[-1] = order
        set_dim(self, *grid)

    def take_next(self: Any, *_: int) -> None:
        set_idx(self, *orders[-1].pop())

    with _replaced(inner.InterpreterBuilder, set_grid_dim=shuffle, set_grid_idx=take_next):
        yield


# --- watching -------------------------------------------------------------------------------------


class SourceLine(NamedTuple):
    """A line of a kernel's source."""

    file: str
    line: int


class Access(NamedTuple):
    """One load or store of one program. `addresses` are bytes, only of lanes that are not masked.

    `item_bytes` is the width of one element. `base` is the pointer argument that the addresses were
    computed from; None where that got lost on the way. `values` are the kernel's variables at this
    moment, by name, each as the interpreter holds it.
    """

    program: Program
    is_write: bool
    base: int | None
    addresses: NDArray[np.uint64]
    item_bytes: int
    place: SourceLine
    values: Mapping[str, Any]


class Observer(Protocol):
    """What `watched` reports to. What `accessed` raises comes before memory is touched."""

    def launched(self, kernel: str, arguments: Mapping[str, Any]) -> None:
        """Programs of `kernel` are about to run; arguments by name. Tensors must be on the CPU."""

    def accessed(self, access: Access) -> None:
        """One program is about to load or store."""

    def finished(self) -> None:
        """Every program of the launch has run."""


@contextmanager
def watched(observer: Observer) -> Iterator[None]:
    """Report every launch inside, and every load and store in it, to an observer."""
    builder = inner.InterpreterBuilder
    load, store = builder.create_masked_load, builder.create_masked_store

    def watched_run(self: Any, *args: Any, **kwargs: Any) -> None:
        wanted = inspect.signature(self.fn).parameters
        known = {name: value for name, value in kwargs.items() if name in wanted}
        observer.launched(self.fn.__name__, inspect.getcallargs(self.fn, *args, **known))
        _launch(self, *args, **kwargs)
        observer.finished()

    def watched_load(self: Any, ptrs: Any, mask: Any, *rest: Any) -> Any:
        observer.accessed(_access(self, ptrs, mask, is_write=False))
        return load(self, ptrs, mask, *rest)

    def watched_store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        observer.accessed(_access(self, ptrs, mask, is_write=True))
        return store(self, ptrs, value, mask, *rest)

    with ExitStack() as stack:
        stack.enter_context(_no_other_main_file())
        stack.enter_context(_replaced(inner.GridExecutor, __call__=watched_run))
        stack.enter_context(_bases_kept())
        stack.enter_context(
            _replaced(builder, create_masked_load=watched_load, create_masked_store=watched_store)
        )
        yield


@contextmanager
def _no_other_main_file() -> Iterator[None]:
    """Take back the `__file__` that Triton puts beside a kernel of a notebook's cell.

    It copies its own module's names to where the kernel's are. A notebook is no file; with that
    name multiprocessing takes it for Triton's, runs that, and its processes die at once.
    """
    names = vars(sys.modules["__main__"])
    before = set(names)
    try:
        yield
    finally:
        for name in set(names) - before:
            if name.startswith("__"):
                del names[name]


def _access(builder: Any, ptrs: Any, mask: Any, *, is_write: bool) -> Access:
    item_bytes = max(1, ptrs.get_element_ty().primitive_bitwidth // 8)
    lanes = np.broadcast_to(mask.data, ptrs.data.shape)
    base = ptrs.attr.get(_BASE)
    frame = _kernel_frame()
    place, values = _place(frame), dict(frame.f_locals)
    return Access(builder.grid_idx, is_write, base, ptrs.data[lanes], item_bytes, place, values)


_BASE = "minipaged.base"
_KEEP_BASE = ("addptr", "splat", "unsplat", "broadcast", "expand_dims", "reshape", "trans")


@contextmanager
def _bases_kept() -> Iterator[None]:
    """Let every pointer that is computed inside remember the argument it began as."""
    convert = inner._implicit_cvt
    names = [f"create_{name}" for name in _KEEP_BASE]
    kept = {name: _keeping_base(getattr(inner.InterpreterBuilder, name)) for name in names}

    def convert_and_mark(argument: Any) -> Any:
        value = convert(argument)
        if hasattr(argument, "data_ptr"):
            value.handle.attr[_BASE] = argument.data_ptr()
        return value

    with ExitStack() as stack:
        stack.enter_context(_replaced(inner, _implicit_cvt=convert_and_mark))
        stack.enter_context(_replaced(inner.InterpreterBuilder, **kept))
        yield


def _keeping_base(method: Any) -> Any:
    """Give a method whose result has the base of the operand that has one."""

    def keeping(self: Any, *operands: Any, **options: Any) -> Any:
        result = method(self, *operands, **options)
        for operand in operands:
            if _BASE in getattr(operand, "attr", ()):
                result.attr[_BASE] = operand.attr[_BASE]
        return result

    return keeping


_NOT_A_KERNEL = (os.path.dirname(triton.__file__) + os.sep, __file__)


def _kernel_frame() -> FrameType:
    """Find the kernel that is running: the innermost function outside of Triton and this file."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_NOT_A_KERNEL) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _place(frame: FrameType) -> SourceLine:
    return SourceLine(frame.f_code.co_filename, frame.f_lineno)


def _launch(self: Any, *args: Any, **kwargs: Any) -> None:
    """Launch; raise a KernelError as itself, which the interpreter wraps level by level."""
    try:
        _run(self, *args, **kwargs)
    except inner.InterpreterError as wrapped:
        cause: BaseException | None = wrapped
        while cause is not None and not isinstance(cause, KernelError):
            cause = cause.__cause__
        raise cause or wrapped from None


@contextmanager
def _replaced(owner: Any, **members: Any) -> Iterator[None]:
    """Give `owner` other members inside, and its own back afterwards."""
    originals = {name: getattr(owner, name) for name in members}
    for name, member in members.items():
        setattr(owner, name, member)
    try:
        yield
    finally:
        for name, member in originals.items():
            setattr(owner, name, member)
