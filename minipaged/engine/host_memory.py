"""On a CPU, memory that a step frees is kept for the next step.

A step makes the same large tensors as the one before. Left alone, glibc gives each of them back to
the system and gets it again page by page: an eighth of the time of a run (docs/LOG.md).
"""

from __future__ import annotations

import ctypes
import platform

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
_NEVER = 2**31 - 1
_LARGEST = 32 * 2**20  # bytes; glibc takes no more


def keep_freed_memory() -> bool:
    """Let the process keep what it frees; tell whether the system could be asked for it.

    Holds for the whole process and does no more if called again. Tensors above 32 MiB, such as a KV
    cache, still go back to the system when they are freed.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    settings = ((_M_MMAP_THRESHOLD, _LARGEST), (_M_TRIM_THRESHOLD, _NEVER))
    return all(libc.mallopt(name, value) == 1 for name, value in settings)
