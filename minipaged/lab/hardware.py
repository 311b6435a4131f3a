"""Well-known GPUs, as far as memory and time depend on them.

Every number has its source beside it. Vendors write GB for memory where the chips hold GiB: it is
taken as GiB. Bandwidths and operations are decimal, without sparsity.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from minipaged.errors import ConfigError

GIB = 2**30

# Bytes a second in one direction, 16 lanes: 8, 16 and 32 GT/s a lane in 128b/130b code (PCI-SIG).
_PCIE_3, _PCIE_4, _PCIE_5 = 15.75e9, 31.5e9, 63.0e9
_NVLINK_C2C = 450e9  # NVIDIA GH200 data sheet: 900 GB/s, both directions together


@dataclass(frozen=True)
class Gpu:
    """What a GPU can hold and do.

    Attributes:
        name: What users type.
        memory: Bytes.
        bandwidth: Bytes a second, of its own memory.
        flops: fp16 operations a second on tensor cores, summed in fp32.
        bus: Bytes a second to the CPU's memory, in one direction.
        source: Where these numbers stand.
    """

    name: str
    memory: int
    bandwidth: float
    flops: float
    bus: float
    source: str


def _gpu(name: str, gib: int, gb_s: float, tflops: float, bus: float, source: str) -> Gpu:
    return Gpu(name, gib * GIB, gb_s * 1e9, tflops * 1e12, bus, source)


GPUS: Mapping[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        _gpu("t4", 16, 320, 65, _PCIE_3, "NVIDIA T4 data sheet"),
        _gpu("v100-32g", 32, 900, 125, _PCIE_3, "NVIDIA V100 data sheet, SXM2"),
        _gpu("a10", 24, 600, 125, _PCIE_4, "NVIDIA A10 data sheet"),
        _gpu("l4", 24, 300, 121, _PCIE_4, "NVIDIA L4 data sheet (242 with sparsity)"),
        _gpu("l40s", 48, 864, 362, _PCIE_4, "NVIDIA L40S data sheet"),
        _gpu("rtx-3090", 24, 936, 71, _PCIE_4, "NVIDIA GA102 white paper, fp16 with fp32 sums"),
        _gpu("rtx-4090", 24, 1008, 165, _PCIE_4, "NVIDIA Ada white paper, fp16 with fp32 sums"),
        _gpu("a100-40g", 40, 1555, 312, _PCIE_4, "NVIDIA A100 data sheet, SXM 40 GB"),
        _gpu("a100-80g", 80, 2039, 312, _PCIE_4, "NVIDIA A100 data sheet, SXM 80 GB"),
        _gpu("h100", 80, 3350, 989, _PCIE_5, "NVIDIA H100 data sheet, SXM (1,979 with sparsity)"),
        _gpu("h200", 141, 4800, 989, _PCIE_5, "NVIDIA H200 data sheet, SXM (1,979 with sparsity)"),
        _gpu("gh200", 96, 4000, 989, _NVLINK_C2C, "NVIDIA GH200 data sheet, HBM3"),
        _gpu("mi300x", 192, 5300, 1307, _PCIE_5, "AMD Instinct MI300X data sheet"),
    )
}


def find_gpu(name: str) -> Gpu:
    """Give a GPU by its name, however it is capitalised.

    Raises:
        ConfigError: There is none; the message names similar ones, or all.

    >>> find_gpu("A100_80GB").memory == 80 * GIB
    True
    """
    plain = normal(name).removesuffix("b") if normal(name).endswith("gb") else normal(name)
    if plain not in GPUS:
        raise ConfigError(f"no GPU {name!r:.80} is known: {suggestion(plain, GPUS)}")
    return GPUS[plain]


def normal(name: str) -> str:
    """Give a name as the catalogues write it.

    >>> normal(" Llama_2 13B ")
    'llama-2-13b'
    """
    return "-".join(name.lower().replace("_", " ").replace("-", " ").split())


def suggestion(name: str, known: Iterable[str]) -> str:
    """Say which of the known names may be meant, or all of them.

    >>> suggestion("a100", ["a100-40g", "a100-80g", "t4"])
    'did you mean a100-40g or a100-80g?'
    """
    names = list(known)
    close = [one for one in names if name and one.startswith(name)]
    close = close or difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"choose one of {', '.join(names)}"
