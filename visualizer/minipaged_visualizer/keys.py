"""Single key presses from the terminal, as names: "space", "left", "q", ...

On POSIX the terminal is put into cbreak mode and set back whatever happens; on Windows the C
runtime gives keys one by one. Where the input is no terminal, there are no keys.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from types import TracebackType
from typing import Any, Protocol

_NAMES = {
    " ": "space",
    "\t": "tab",
    "\r": "enter",
    "\n": "enter",
    "\x1b": "escape",
    "\x1a": "ctrl-z",
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1bOC": "right",
    "\x1bOD": "left",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1bOH": "home",
    "\x1bOF": "end",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
    "\x1b[7~": "home",
    "\x1b[8~": "end",
    "\x1b[Z": "backtab",
    "\x1b[1;2C": "shift-right",
    "\x1b[1;2D": "shift-left",
}
_WINDOWS_NAMES = {
    "H": "up",
    "P": "down",
    "M": "right",
    "K": "left",
    "G": "home",
    "O": "end",
    "\x0f": "backtab",
}
_WINDOWS_POLL_SECONDS = 0.01


class Keyboard(Protocol):
    """Gives keys while it is open."""

    def __enter__(self) -> Keyboard: ...

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None: ...

    def read(self, timeout: float) -> str | None:
        """Give the next key's name, or None if none comes within `timeout` seconds."""
        ...


class NoKeyboard:
    """For input that is no terminal: waits, and gives no key."""

    def __enter__(self) -> NoKeyboard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        pass

    def read(self, timeout: float) -> str | None:
        """Wait for `timeout` seconds."""
        time.sleep(timeout)
        return None


def split_keys(text: str) -> list[str]:
    r"""Cut what came in at once into names of keys; unknown escape sequences are left out.

    >>> split_keys(" \x1b[Cq"), split_keys("\x1b[1;5Cn"), split_keys("\x1b")
    (['space', 'right', 'q'], ['n'], ['escape'])
    """
    keys = []
    while text:
        length = _sequence_length(text)
        key, text = text[:length], text[length:]
        if key in _NAMES:
            keys.append(_NAMES[key])
        elif len(key) == 1 and key.isprintable():
            keys.append(key)
    return keys


def _sequence_length(text: str) -> int:
    """Give the length of the first key: an escape sequence ends with a letter or a tilde."""
    if text[0] != "\x1b" or len(text) == 1 or text[1] not in "[O":
        return 1
    for index in range(2, len(text)):
        if text[index].isalpha() or text[index] == "~":
            return index + 1
    return len(text)


if sys.platform == "win32":
    import msvcrt

    class WindowsKeyboard:
        """The console of Windows."""

        def __enter__(self) -> WindowsKeyboard:
            return self

        def __exit__(
            self,
            kind: type[BaseException] | None,
            e: BaseException | None,
            tb: TracebackType | None,
        ) -> None:
            pass

        def read(self, timeout: float) -> str | None:
            """Give the next key's name, or None if none comes within `timeout` seconds."""
            end = time.monotonic() + timeout
            while not msvcrt.kbhit():
                if time.monotonic() >= end:
                    return None
                time.sleep(_WINDOWS_POLL_SECONDS)
            character = msvcrt.getwch()
            if character in ("\x00", "\xe0"):
                return _WINDOWS_NAMES.get(msvcrt.getwch())
            if character == "\x03":
                raise KeyboardInterrupt
            return next(iter(split_keys(character)), None)

else:
    import select
    import termios
    import tty

    class PosixKeyboard:
        """A terminal in cbreak mode: keys come at once and unseen; Ctrl-C still interrupts."""

        def __init__(self, fd: int) -> None:
            self._fd = fd
            self._keys: list[str] = []
            self._before: list[Any] | None = None

        def __enter__(self) -> PosixKeyboard:
            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd, termios.TCSADRAIN)  # keys typed before count
            attributes = termios.tcgetattr(self._fd)
            attributes[6][termios.VSUSP] = b"\0"  # Ctrl-Z comes as a key: see `suspend`
            termios.tcsetattr(self._fd, termios.TCSADRAIN, attributes)
            return self

        def __exit__(
            self,
            kind: type[BaseException] | None,
            e: BaseException | None,
            tb: TracebackType | None,
        ) -> None:
            if self._before is not None:
                termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)
                self._before = None

        def read(self, timeout: float) -> str | None:
            """Give the next key's name, or None if none comes within `timeout` seconds."""
            if not self._keys and select.select([self._fd], [], [], timeout)[0]:
                text = os.read(self._fd, 1024).decode(errors="replace")
                self._keys = split_keys(text) if text else ["q"]  # nothing: the terminal is gone
            return self._keys.pop(0) if self._keys else None


def suspend() -> None:
    """Stop this process, as Ctrl-Z does, until the shell continues it."""
    if sys.platform != "win32":
        os.kill(os.getpid(), signal.SIGTSTP)


def open_keyboard() -> Keyboard:
    """Give the keyboard of this process; one without keys if its input is no terminal."""
    if not _is_terminal():
        return NoKeyboard()
    if sys.platform == "win32":
        return WindowsKeyboard()
    else:  # noqa: RET505 (the type checker reads one branch a platform)
        return PosixKeyboard(sys.stdin.fileno())


def _is_terminal() -> bool:
    try:
        return sys.stdin.isatty()
    except (AttributeError, ValueError):  # no standard input at all, or a closed one
        return False
