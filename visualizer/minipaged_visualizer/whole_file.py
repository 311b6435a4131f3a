"""Files that are there in full or not at all, and never take the place of a recorded run.

A file is written beside its place and then moved there: whoever looks sees the old one or the new
one, never half of it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from minipaged.errors import TraceError
from minipaged.memory.kernel_recording import is_recording
from minipaged.memory.trace import is_trace


def write_whole(path: Path, text: str) -> None:
    """Write a text file.

    Raises:
        TraceError: It can't be written, or is a trace or a recording. What was there stays there.
    """
    if is_trace(path) or is_recording(path):
        raise TraceError(f"{path}: this is a recorded run: it is not overwritten")
    try:
        if path.exists() and not path.is_file():  # a device or a pipe; a folder refuses
            path.write_text(text, encoding="utf-8", newline="\n")
        else:
            replace_whole(path.resolve(), text.encode())
    except OSError as e:
        raise TraceError(f"{path}: can't be written: {e.strerror or e}") from e


def replace_whole(path: Path, content: bytes) -> None:
    """Put a file in the place of another, if there is one.

    Raises:
        OSError: It can't be written. What was there stays there.
    """
    beside = path.with_name(f".{path.name[:100]}.{os.getpid()}.part")
    try:
        with beside.open("xb") as file:
            file.write(content)
        beside.replace(path)
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()
