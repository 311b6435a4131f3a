"""Calling what a student wrote: whatever it does, the check goes on.

An error is an answer, too, and so is a loop without an end: both come back as a `Raised`, which is
equal to nothing that could be right. What comes back is plain: an object of a class of its own,
whose methods could do anything, stays out of the judges' hands.
"""

from __future__ import annotations

import ctypes
import linecache
import reprlib
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

SECONDS = 2.0
_AGAIN = 0.01  # seconds until an attempt that catches everything is interrupted once more
_MOST_NESTED = 6
_PLAIN = (int, float, bool, complex, str, bytes, dict, set, frozenset, range, type(None))
_ARRAYS = ("torch", "numpy")


@dataclass(frozen=True)
class Raised:
    """What a call came to that gave no value."""

    error: str
    too_slow: bool = False

    def __str__(self) -> str:
        return self.error


@dataclass(frozen=True)
class Odd:
    """An object that no judge expects, as text."""

    text: str

    def __repr__(self) -> str:
        return self.text


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
            result = function(*arguments, **named)
            return result if isinstance(function, type) else plain(result)
    except KeyboardInterrupt:
        raise
    except TooSlowError:
        return Raised(f"did not end within {SECONDS:.0f} seconds", too_slow=True)
    except NotImplementedError as e:
        raise NotSolvedError(told(e)) from None
    except BaseException as e:  # it may raise GeneratorExit, or what it likes
        return Raised(f"raised {type(e).__name__}: {told(e)}{_place(e)}")


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TooSlowError inside the block, on this thread, when it has taken so many seconds.

    It interrupts Python code only: a call into C, as `time.sleep`, ends first. Code that catches
    everything is interrupted again and again, until that hits it where it catches nothing.
    """
    lock, is_over = threading.Lock(), threading.Event()
    thread, here = threading.get_ident(), sys._getframe().f_code

    def interrupt() -> None:
        wait = seconds
        while not is_over.wait(wait):
            with lock:
                if not is_over.is_set() and not _is_inside(thread, here):
                    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
                    raise_in(ctypes.c_ulong(thread), ctypes.py_object(TooSlowError))
            wait = _AGAIN

    def end() -> None:
        with lock:
            is_over.set()

    threading.Thread(target=interrupt, name="time-limit", daemon=True).start()
    try:
        yield
    finally:
        try:
            end()
        except TooSlowError:  # it was on its way; no other comes in here
            end()
            raise


def _is_inside(thread: int, code: CodeType) -> bool:
    """Whether a thread runs a certain function, or what that calls."""
    frame = sys._current_frames().get(thread)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


def plain(value: Any, depth: int = 0) -> Any:
    """Give a value that is safe to look at: numbers, texts, arrays, and lists of these.

    A class of a student's own may derive from `int` or `list`: what is in it counts. Any other
    object becomes an `Odd`.

    >>> plain([1, (2, "three")]), plain([object]), plain(iter([])).__class__.__name__
    ([1, (2, 'three')], [<class 'object'>], 'Odd')
    """
    kind = type(value)
    if kind in _PLAIN or kind.__module__.partition(".")[0] in _ARRAYS:
        return value
    if issubclass(kind, list) and depth < _MOST_NESTED:
        return [plain(each, depth + 1) for each in list.__iter__(value)]
    if issubclass(kind, tuple) and depth < _MOST_NESTED:
        return tuple(plain(each, depth + 1) for each in tuple.__iter__(value))
    if issubclass(kind, int):
        return int.__index__(value)
    if issubclass(kind, float):
        return float.__float__(value)
    return Odd(shown(value))


def same(got: Any, expected: Any) -> bool:
    """Whether two values are equal; what can't be compared is not.

    >>> same([1], [1]), same((1,), [1]), same(Raised("oh"), [1])
    (True, True, False)
    """
    try:
        got = plain(got)
        if isinstance(expected, list) and isinstance(got, tuple):
            got = list(got)
        return bool(got == expected)
    except Exception:  # an array has no single truth value
        return False


def shown(value: Any, width: int = 200) -> str:
    """Give a value in one line, cut where it is long."""
    try:
        text = str(value) if type(value) is Raised else _Representer(width).repr(value)
    except (KeyboardInterrupt, TooSlowError):
        raise
    except BaseException as e:
        text = f"a {type(value).__name__} that can't be shown ({type(e).__name__})"
    text = one_line(text)
    return text if len(text) <= width else f"{text[: width - 1]}…"


def told(error: BaseException) -> str:
    """Give an error's message in one line, even where it has none that can be had."""
    try:
        return one_line(str(error))[:200]
    except (KeyboardInterrupt, TooSlowError):
        raise
    except BaseException as e:
        return f"its message can't be shown ({type(e).__name__})"


def one_line(text: str) -> str:
    r"""Give text in which nothing breaks the line or acts on a terminal.

    >>> one_line("two\nlines \x1b[31m")
    'two lines ?[31m'
    """
    return _printable(" ".join(text.split()))


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


class _Representer(reprlib.Repr):
    """Makes a `repr` that is no longer than can be shown, however long the value is."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdict = width
        self.maxstring = self.maxlong = 4 * width

    def repr_instance(self, x: Any, level: int) -> str:
        """Ask the object itself; what goes wrong is the caller's to tell."""
        return repr(x)


def _place(error: BaseException) -> str:
    """Tell the line of the student's that raised it; nothing where that is unknown."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if Path(f.filename).parent != Path(__file__).parent]
    if not theirs:
        return ""
    frame = [f for f in theirs if f.filename == theirs[0].filename][-1]  # not inside a library
    line = linecache.getline(frame.filename, frame.lineno or 0).strip()
    text = f": {_printable(line)}" if line else ""
    return f" (line {frame.lineno}{text})"
