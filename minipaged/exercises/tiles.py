"""The language of kernels for the exercises: Triton's, or a few of its words in plain torch.

    @jit
    def double(numbers, HOW_MANY): ...          # written with `tl`, as every kernel in kernels/

Where Triton is installed `jit` and `tl` are Triton's own, and kernels run in its interpreter. Where
it is not, does not work, or works for a GPU in this process, `torch_tiles` stands in. Either way
`run` tells which memory was touched, and an address outside of a tensor is an error.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from types import TracebackType
from typing import Any

import torch

from minipaged.exercises import torch_tiles
from minipaged.exercises.torch_tiles import OutOfBoundsError
from minipaged.memory.events import KernelAccess


def _uses_triton() -> bool:
    """Tell whether Triton interprets kernels here. It asks the environment once: at its import."""
    if importlib.util.find_spec("triton") is None:
        return False
    if "triton" not in sys.modules:
        os.environ.setdefault("TRITON_INTERPRET", "1")
    try:
        return _interprets()
    except Exception:  # an interpreter of another age than its numpy, or than our recorder
        return False


def _interprets() -> bool:
    """Run the engine's own kernel once, watched."""
    from minipaged_kernels.launch import is_interpreting
    from minipaged_kernels.paged_decode import paged_decode
    from minipaged_kernels.recorder import record

    if not is_interpreting():
        return False
    cache, one = torch.ones(2, 1, 1, 1, 16), torch.ones(1, dtype=torch.int64)
    with record():
        return bool((paged_decode(cache[0, 0], cache, one[None] - 1, one) == 1).all())


def _plain(function: Any) -> Any:
    """Take the place of `triton.jit`: without Triton a kernel is a function as any other."""
    return function


jit: Any
tl: Any
if USES_TRITON := _uses_triton():
    import triton
    from triton import language

    jit, tl = triton.jit, language
else:
    jit, tl = _plain, torch_tiles.language


def run(kernel: Any, attempt: Any, arguments: dict[str, Any], touched: list[KernelAccess]) -> None:
    """Run one program of a kernel that calls an attempt; fill `touched` as far as it comes.

    Raises:
        OutOfBoundsError: It touches memory outside of a tensor.
        Exception: Whatever the attempt raised, as if it had been called directly.
    """
    try:
        if USES_TRITON:
            _run_triton(kernel, arguments, touched)
        else:
            torch_tiles.run_kernel(kernel, arguments, touched)
    except Exception as wrapped:
        cause = _innermost(wrapped)
        _end_at(cause, getattr(attempt, "fn", attempt))
        raise cause from None


def _run_triton(kernel: Any, arguments: dict[str, Any], touched: list[KernelAccess]) -> None:
    from minipaged_kernels.recorder import record

    with record() as recording, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NaN is part of the lesson
        try:
            kernel[(1,)](**arguments)
        finally:
            touched += recording.events()


def _innermost(error: BaseException) -> BaseException:
    """Give what was raised at first: the interpreter wraps it level by level."""
    while type(error).__name__ == "InterpreterError" and error.__context__ is not None:
        error = error.__context__
    if type(error).__name__ == "KernelError":
        return OutOfBoundsError(str(error)).with_traceback(error.__traceback__)
    return error


def _end_at(error: BaseException, function: Any) -> None:
    """Cut off what a traceback has behind the last line of the student's."""
    code, place, last = getattr(function, "__code__", None), error.__traceback__, None
    while place is not None:
        if code is not None and place.tb_frame.f_code.co_filename == code.co_filename:
            last = place
        place = place.tb_next
    if last is not None:
        error.__traceback__ = TracebackType(None, last.tb_frame, last.tb_lasti, last.tb_lineno)
