"""Reading what a compiler made of a kernel: registers, spills, and how wide its loads are.

Assembly tells for each instruction which line of the kernel it comes from, so the loads and stores
of keys and values can be told from others.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import triton


def cache_lines(kernel: Any) -> set[int]:
    """Give the lines of source that load or store keys and values."""
    source = Path(kernel.fn.__code__.co_filename).read_text(encoding="utf-8").splitlines()
    touch = re.compile(r"tl\.(load|store)\((key_cache|value_cache|here)\b")
    return {number for number, line in enumerate(source, 1) if touch.search(line)}


def measure_nvidia(asm: dict[str, Any], lines: set[int]) -> dict[str, Any]:
    """Read PTX for the instructions, and the binary for registers and spills."""
    widths = []
    for line, instruction in located(asm["ptx"]):
        if line in lines and (bits := nvidia_bits(instruction)):
            widths.append(bits)
    usage = resource_usage(asm["cubin"])
    return {
        "registers": usage["REG"],
        "spills": usage["STACK"] + usage["LOCAL"],
        "cache_bits": min(widths, default=0),
        "matrix": matrix_instruction(asm["ptx"]),
    }


def nvidia_bits(instruction: str) -> int:
    """Give the width of an access to global memory.

    >>> nvidia_bits("@%p1 ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd16 + 0 ];")
    128
    >>> nvidia_bits("cp.async.cg.shared.global [ %r10 + 0 ], [ %rd21 + 0 ], 0x10, %r51;")
    128
    >>> nvidia_bits("add.s64 %rd1, %rd2, %rd3;")
    0
    """
    if copied := re.search(r"cp\.async\.c[ag]\.shared\.global .*, (0x[0-9a-f]+|\d+)", instruction):
        return 8 * int(copied[1], 0)
    found = re.search(r"\b(?:ld|st)\.global\S*?(?:\.v(\d))?\.[busf](\d+)\b", instruction)
    return int(found[1] or 1) * int(found[2]) if found else 0


def measure_amd(asm: dict[str, Any], lines: set[int]) -> dict[str, Any]:
    """Read the assembly, which ends with registers and spills."""
    widths = []
    for line, instruction in located(asm["amdgcn"]):
        if line in lines and (bits := amd_bits(instruction)):
            widths.append(bits)
    counts = dict(re.findall(r"\.(vgpr_count|private_segment_fixed_size):\s+(\d+)", asm["amdgcn"]))
    return {
        "registers": int(counts["vgpr_count"]),
        "spills": int(counts["private_segment_fixed_size"]),
        "cache_bits": min(widths, default=0),
        "matrix": matrix_instruction(asm["amdgcn"]),
    }


def amd_bits(instruction: str) -> int:
    """Give the width of an access to global memory.

    >>> amd_bits("global_load_dwordx4 v[2:5], v[2:3], off"), amd_bits("buffer_store_short v1, v2")
    (128, 16)
    """
    found = re.search(r"(?:global|buffer|flat)_(?:load|store)_(\w+)", instruction)
    if not found:
        return 0
    words = re.fullmatch(r"dword(?:x(\d))?", found[1])
    return 32 * int(words[1] or 1) if words else 16 if "short" in found[1] else 8


def located(assembly: str) -> Iterator[tuple[int, str]]:
    """Give each line of assembly with the line of the kernel's file that it comes from."""
    line = 0
    for text in assembly.splitlines():
        if place := re.match(r"\s*\.loc\s+(\d+)\s+(\d+)", text):
            line = int(place[2]) if place[1] == "1" else 0
        else:
            yield line, text


def matrix_instruction(assembly: str) -> str:
    """Name the matrix instruction of an assembly, if it has one."""
    found = re.search(r"\b(tcgen05\.mma|wgmma\.mma_async|mma\.sync|v_mfma)", assembly)
    return found[1] if found else ""


def key_buffers(ttgir: str) -> int:
    """Give how many tiles of keys shared memory has room for; 0 if they don't pass through it."""
    found = re.search(r"%k\w* = ttg\.local_alloc : \(\) -> !ttg\.memdesc<(\d+)x", ttgir)
    return int(found[1]) if found else 0


def resource_usage(cubin: bytes) -> dict[str, int]:
    """Give registers (REG) and bytes of stack and local memory (STACK, LOCAL) of a binary."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(path)]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name: int(count) for name, count in re.findall(r"\b([A-Z]+):(\d+)", shown)}
