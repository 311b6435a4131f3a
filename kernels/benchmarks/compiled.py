"""What the compiler makes of each kernel, on a machine without a GPU: docs/COMPILED.md.

    python kernels/benchmarks/compiled.py            a table on standard output
    python kernels/benchmarks/compiled.py --json     the same figures for a program to read
    python kernels/benchmarks/compiled.py --write    replaces docs/COMPILED.md

Triton brings its compilers along, so a kernel can be built for any GPU. Each wrapper is called as
the engine calls it, on small tensors in host memory; what it would launch is caught and compiled,
with the same constants, types and knowledge of alignment. The shape of the tensors is that of
Llama-3-8B: 32 query heads, 8 KV heads, head_dim 128, bf16. That tells how fast a kernel can be
at best, not how fast it is.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import triton
from assembly import cache_lines, key_buffers, measure_amd, measure_nvidia
from minipaged_kernels import launch
from minipaged_kernels.copy_blocks import copy_blocks
from minipaged_kernels.kv_write import kv_write
from minipaged_kernels.kv_write_int8 import kv_write_int8
from minipaged_kernels.paged_decode import paged_decode
from minipaged_kernels.paged_decode_int8 import paged_decode_int8
from minipaged_kernels.paged_decode_split_kv import paged_decode_split_kv
from minipaged_kernels.paged_prefill import paged_prefill
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

DOCUMENT = Path(__file__).parents[2] / "docs" / "COMPILED.md"
TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
NUM_SEQS, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, NUM_BLOCKS = 4, 32, 8, 128, 8


@dataclass(frozen=True)
class Launch:
    """A kernel and what it would be launched with."""

    kernel: Any
    arguments: dict[str, Any]
    options: dict[str, Any]


@dataclass(frozen=True)
class Figures:
    """What was built. `registers` and `spills` are a thread's, `shared_bytes` a program's.

    `spills` are bytes that did not fit into registers, `cache_bits` is the narrowest load or store
    of keys and values, `matrix` the matrix instruction, `buffers` how many tiles of keys shared
    memory has room for.
    """

    kernel: str
    target: str
    registers: int
    spills: int
    shared_bytes: int
    cache_bits: int
    matrix: str
    buffers: int


# --- what is launched -----------------------------------------------------------------------------


@contextmanager
def caught_launches(target: str) -> Iterator[list[Launch]]:
    """Catch what wrappers launch inside, as they would on this GPU, instead of running it."""
    launches: list[Launch] = []

    def catch(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        names = [parameter.name for parameter in self.params]
        arguments = {name: value for name, value in kwargs.items() if name in names}
        options = {name: value for name, value in kwargs.items() if name not in names}
        launches.append(
            Launch(self, {**dict(zip(names, args, strict=False)), **arguments}, options)
        )

    no_gpu_is_asked_for = patch.object(launch, "is_interpreting", lambda: True)
    this_gpu = patch.object(launch, "is_amd", lambda: TARGETS[target].backend == "hip")
    with patch.object(triton.JITFunction, "run", catch), no_gpu_is_asked_for, this_gpu:
        yield launches


def cases() -> dict[str, Callable[[], object]]:
    """Give what is compiled: a name for people, and a call of the wrapper."""
    query = torch.zeros(NUM_SEQS, NUM_HEADS, HEAD_DIM, dtype=torch.bfloat16)
    row = query[:, :NUM_KV_HEADS].contiguous()
    slots, lengths = torch.zeros(2, NUM_SEQS, dtype=torch.int64)
    starts, tables = torch.arange(NUM_SEQS + 1), torch.zeros(NUM_SEQS, 16, dtype=torch.int64)
    small, large, int8 = cache(16), cache(128), cache(16, torch.int8)
    scales = torch.zeros(int8.shape[:-1])
    layers = small[None]
    return {
        "kv_write": lambda: kv_write(row, row, small, slots),
        "paged_decode, block 16": lambda: paged_decode(query, small, tables, lengths),
        "paged_decode, block 128": lambda: paged_decode(query, large, tables, lengths),
        "paged_decode_split_kv, block 16": lambda: paged_decode_split_kv(
            query, small, tables, lengths, num_splits=16
        ),
        "paged_prefill, block 16": lambda: paged_prefill(query, small, tables, lengths, starts, 1),
        "copy_blocks": lambda: copy_blocks(layers, [(0, 1)]),
        "kv_write_int8": lambda: kv_write_int8(row, row, int8, scales, slots),
        "paged_decode_int8, block 16": lambda: paged_decode_int8(
            query, int8, scales, tables, lengths
        ),
    }


def cache(block_size: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Give a layer's cache: [2, num_blocks, block_size, num_kv_heads, head_dim]."""
    return torch.zeros(2, NUM_BLOCKS, block_size, NUM_KV_HEADS, HEAD_DIM, dtype=dtype)


def launches_of(case: Callable[[], object], target: str) -> list[Launch]:
    """Give what a call of a wrapper would launch on a GPU."""
    with caught_launches(target) as launches:
        case()
    return launches


def with_unaligned_stride(caught: Launch) -> Launch:
    """Give a launch on a cache whose blocks are one element further apart: what wrappers refuse."""
    stride = caught.arguments["stride_block"] + 1
    return replace(caught, arguments={**caught.arguments, "stride_block": stride})


# --- what is built --------------------------------------------------------------------------------


def build(name: str, caught: Launch, target: str) -> Figures:
    """Compile a launch for a GPU that need not be there, and measure the result."""
    source = ASTSource(caught.kernel, *specialization(caught))
    built = triton.compile(source, target=TARGETS[target], options=caught.options)
    lines = cache_lines(caught.kernel)
    measure = measure_amd if "amdgcn" in built.asm else measure_nvidia
    return Figures(
        kernel=name,
        target=target,
        shared_bytes=built.metadata.shared,
        buffers=key_buffers(built.asm["ttgir"]),
        **measure(built.asm, lines),
    )


def specialization(caught: Launch) -> tuple[dict[str, str], dict[str, Any], dict[Any, Any]]:
    """Give signature, constants and attributes as Triton derives them from a launch's arguments.

    An address or a number that is a multiple of 16 is compiled as such, 1 as a constant.
    """
    signature, constants, attributes = {}, {}, {}
    for position, parameter in enumerate(caught.kernel.params):
        value = caught.arguments[parameter.name]
        is_one = type(value) is int and value == 1 and not parameter.do_not_specialize
        signature[parameter.name] = "constexpr" if is_one else type_name(parameter, value)
        if signature[parameter.name] == "constexpr":
            constants[parameter.name] = value
        elif not parameter.do_not_specialize and is_multiple_of_16(value):
            attributes[(position,)] = [["tt.divisibility", 16]]
    return signature, constants, attributes


def type_name(parameter: Any, value: Any) -> str:
    """Give an argument's type in Triton's words."""
    if parameter.is_constexpr:
        return "constexpr"
    if isinstance(value, Tensor):
        return "*" + POINTERS[value.dtype]
    if isinstance(value, float):
        return "fp32"
    return "i32" if -(2**31) <= value < 2**31 else "i64"


POINTERS = {
    torch.bfloat16: "bf16",
    torch.float32: "fp32",
    torch.int8: "i8",
    torch.int32: "i32",
    torch.int64: "i64",
}


def is_multiple_of_16(value: Any) -> bool:
    """Tell whether a pointer or an integer is known to be aligned."""
    number = value.data_ptr() if isinstance(value, Tensor) else value
    return type(number) is int and number % 16 == 0


# --- what is shown --------------------------------------------------------------------------------


def all_figures(targets: list[str]) -> list[Figures]:
    """Build every case for every target."""
    figures = []
    for name, case in cases().items():
        for kernel in zip(*(launches_of(case, target) for target in targets), strict=True):
            is_reduce = kernel[0].kernel.fn.__name__ == "reduce_kernel"
            label = name.split(",")[0] + ", reduce" if is_reduce else name
            figures += [build(label, *one) for one in zip(kernel, targets, strict=True)]
    return figures


def unaligned_figures() -> Figures:
    """Build decode on a cache that is not aligned, as no wrapper launches it."""
    (caught,) = launches_of(cases()["paged_decode, block 16"], "sm_90")
    return build("paged_decode, unaligned stride", with_unaligned_stride(caught), "sm_90")


COLUMNS = {
    "kernel": "kernel",
    "target": "GPU",
    "registers": "registers",
    "spills": "spills",
    "shared_bytes": "shared memory",
    "cache_bits": "bits a load",
    "matrix": "matrix instruction",
    "buffers": "tiles in flight",
}


def table(figures: list[Figures]) -> str:
    """Give figures as a table in Markdown."""
    rows = [list(COLUMNS.values()), ["---"] * len(COLUMNS)]
    rows += [[str(getattr(f, name)) or "-" for name in COLUMNS] for f in figures]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def document(figures: list[Figures]) -> str:
    """Give docs/COMPILED.md."""
    return PAGE.format(version=triton.__version__, table=table(figures))


PAGE = """# What the compiler makes of the kernels

Made by [compiled.py](../kernels/benchmarks/compiled.py) with Triton {version}; a test builds every
kernel again and fails where a figure differs. With another Triton only the rules below must hold.
This says how fast a kernel can be at best. How fast it is, only a GPU can say: not measured yet.
Where there is one, `PYTHONPATH=.:kernels python kernels/benchmarks/on_gpu.py --out results` says it
in five minutes. Targets: 70 % of what a plain copy moves; paging costs 10 % more at most.

- *registers* (of a thread): 255 at most on NVIDIA, 512 on an MI300X; what exceeds them *spills* to
  slow memory, which must not happen: the bytes are counted.
- *shared memory* (bytes of a program): an H100 has 227 KiB a processor, an MI300X 64 KiB.
- *bits a load*: the narrowest access to keys and values. 128 is what a GPU moves at once.
- *matrix instruction*: the products run on tensor cores.
- *tiles in flight*: while one tile of keys is used, so many are loaded or used in all. The block
  table's look-up takes stages of the pipeline, so 5 stages make 2 tiles.

The last row is a lesson. One stride of the cache is not a multiple of 16 elements, so the compiler
can't know that 16 bytes lie together: every load shrinks to a single element, and the asynchronous
copies are gone. The wrappers refuse such a cache and copy such a query.

{table}"""


def main() -> None:
    """Print or write the figures."""
    parser = argparse.ArgumentParser(description="What the compiler makes of each kernel.")
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--write", action="store_true", help="replace docs/COMPILED.md")
    arguments = parser.parse_args()
    if launch.is_interpreting():
        sys.exit("kernels can't be compiled where TRITON_INTERPRET is set")
    figures = [*all_figures(arguments.targets), unaligned_figures()]
    if arguments.write:
        DOCUMENT.write_text(document(figures), encoding="utf-8")
    elif arguments.json:
        rows = [asdict(one) for one in figures]
        print(json.dumps({"triton": triton.__version__, "figures": rows}, indent=1))
    else:
        print(table(figures), end="")


if __name__ == "__main__":
    main()
