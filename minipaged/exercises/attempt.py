"""Calling what a student wrote: whatever it does, the check goes on.

An error is an answer, too, and so is a loop without an end: both come back as a `Raised`, which is
equal to nothing that could be right.
"""

from __future__ import annotations

import ctypes
import linecache
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

SECONDS = 2.0


@dataclass(frozen=True)
class Raised:
    """What a call came to that gave no value."""

    error: str
    too_slow: bool = False

    def __str__(self) -> str:
        return self.error


class NotSolvedError(BaseException):
    """The attempt is still the starter. Its message is the starter's.

    It ends a search at once: hypothesis would take an Exception for one more failure to shrink.
    """


class TooSlowError(BaseException):
    """Raised inside a call that takes too long, past whatever catches an Exception there."""


def call(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call a function; what goes wrong in it comes back as a `Raised`.

    >>> call(max, 3, 4), str(call(int, "four"))
    (4, "raised ValueError: invalid literal for int() with base 10: 'four'")

    Raises:
        NotSolvedError: It raises NotImplementedError, as the starters do.
    """
    try:
        with time_limit(SECONDS):
            return function(*arguments, **named)
    except TooSlowError:
        return Raised(f"did not end within {SECONDS:.0f} seconds", too_slow=True)
    except NotImplementedError as e:
        raise NotSolvedError(str(e)) from None
    except (Exception, SystemExit) as e:
        return Raised(f"raised {type(e).__name__}: {_one_line(e)}{_place(e)}")


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TooSlowError inside the block, on this thread, when it has taken so many seconds.

    It interrupts Python code only: a call into C, as `time.sleep`, ends first.
    """
    lock, is_over = threading.Lock(), False
    thread = threading.get_ident()

    def interrupt() -> None:
        with lock:
            if not is_over:
                raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
                raise_in(ctypes.c_ulong(thread), ctypes.py_object(TooSlowError))

    timer = threading.Timer(seconds, interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with lock:
            is_over = True


def same(got: Any, expected: Any) -> bool:
    """Whether two values are equal; what can't be compared is not.

    >>> same([1], [1]), same((1,), [1]), same(Raised("oh"), [1])
    (True, True, False)
    """
    if isinstance(expected, list) and isinstance(got, tuple):
        got = list(got)
    try:
        return bool(got == expected)
    except Exception:  # an array has no single truth value
        return False


def shown(value: Any, width: int = 200) -> str:
    """Give a value in one line, cut where it is long."""
    try:
        text = str(value) if isinstance(value, Raised) else repr(value)
    except Exception as e:
        text = f"a {type(value).__name__} that can't be shown ({type(e).__name__})"
    text = " ".join(text.split())
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


def _place(error: BaseException) -> str:
    """Tell the line of the student's that raised it; nothing where that is unknown."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
    if not frames:
        return ""
    line = linecache.getline(frames[-1].filename, frames[-1].lineno or 0).strip()
    return f" (line {frames[-1].lineno}: {line})" if line else f" (line {frames[-1].lineno})"
