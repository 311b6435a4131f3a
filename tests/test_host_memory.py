"""What a step frees stays with the process, for the next step."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys, torch
from minipaged.engine.host_memory import keep_freed_memory

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() // 2**20

if sys.argv[1] == "keep":
    assert keep_freed_memory()
    assert keep_freed_memory()
before = resident()
tensors = [torch.ones(2**20) for _ in range(16)]
assert resident() - before >= 64
del tensors
print(resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be asked")
def test_the_memory_of_freed_tensors_stays() -> None:
    def kept(how: str) -> int:
        command = [sys.executable, "-c", SCRIPT, how]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        return int(done.stdout)

    assert kept("leave") < 16 < 48 < kept("keep")  # MiB, of 64


def test_elsewhere_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from minipaged.engine import host_memory

    monkeypatch.setattr(host_memory.platform, "libc_ver", lambda: ("", ""))
    assert not host_memory.keep_freed_memory()
