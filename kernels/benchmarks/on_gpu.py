"""What the kernels do on a GPU, in five minutes: right answers first, then how fast.

    PYTHONPATH=.:kernels python kernels/benchmarks/on_gpu.py --out results

writes results.json and results.md: every kernel against float64; decode over at least 1 GB of keys
and values at Llama-3-8B's shape (GB/s, and the share of what a plain copy moves), by block size,
tile, splits and stages; the same on blocks that lie in order, which is what paging costs; other
projects' kernels beside it in the same run; and a model's decode steps with CUDA graphs and
without. Exit status 1 if an answer is wrong.

`--dry-run` goes the whole way on the CPU with tiny shapes, in Triton's interpreter
(TRITON_INTERPRET=1): its times mean nothing.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import torch
import triton
from cases import LLAMA_3_8B, Context, Heads, context
from correctness import SECTION as CORRECTNESS
from correctness import check_device
from engine_steps import measure_steps
from measuring import Clock, Row, as_json, as_table, measured
from minipaged_kernels import launch
from minipaged_kernels.copy_blocks import copy_blocks
from minipaged_kernels.kv_write import kv_write
from minipaged_kernels.paged_decode import paged_decode
from minipaged_kernels.paged_decode_int8 import paged_decode_int8
from minipaged_kernels.paged_decode_split_kv import paged_decode_split_kv
from minipaged_kernels.paged_prefill import paged_prefill
from rivals import measure_rivals


@dataclass(frozen=True)
class Plan:
    """How much is measured. Workloads are (sequences, tokens of each)."""

    device: torch.device
    dtype: torch.dtype = torch.bfloat16
    heads: Heads = LLAMA_3_8B
    workloads: list[tuple[int, int]] = field(
        default_factory=lambda: [(64, 4096), (256, 1024), (8, 32768), (1, 262144)]
    )
    block_sizes: tuple[int, ...] = (8, 16, 32, 64, 128)
    tiles: tuple[int, ...] = (32, 64, 128)
    splits: tuple[int, ...] = (1, 4, 16, 64)
    stages: tuple[int, ...] = (1, 3, 5, 7)
    checked: tuple[tuple[Heads, int], ...] = ((LLAMA_3_8B, 16), (Heads(9, 3, 80), 8))
    copy_bytes: int = 2**30
    prompt: int = 4096  # tokens
    models: tuple[str, ...] = ("SmolLM2-135M", "Llama-3-8B")
    batches: tuple[int, ...] = (1, 32)
    model_context: int = 1024
    backend: str = "triton"
    clock: Clock | None = None


def dry_plan() -> Plan:
    """Give the smallest plan that goes everywhere, with Triton's interpreter mended."""
    from minipaged_kernels.interpreter import cure_bf16

    cure_bf16()
    return Plan(
        device=torch.device("cpu"),
        clock=Clock(torch.device("cpu"), rounds=1, calls=1, warmups=0),
        dtype=torch.float32,
        heads=Heads(4, 2, 16),
        workloads=[(2, 40)],
        block_sizes=(8, 16),
        tiles=(16,),
        splits=(1, 2),
        stages=(3,),
        checked=((Heads(4, 2, 16), 4),),
        copy_bytes=2**16,
        prompt=20,
        models=("tiny",),
        batches=(2,),
        model_context=20,
        backend="triton-interpret",
    )


class Benchmark:
    """Measures one part after another; `copy_rate` is the GB/s that all shares refer to."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.clock = plan.clock or Clock(plan.device)
        self.copy_rate = 0.0

    def parts(self) -> Iterator[Callable[[], list[Row]]]:
        """Give what is to be done, the most important first."""
        yield lambda: check_device(self.plan.device, list(self.plan.checked))
        yield self.copy
        for workload in self.plan.workloads:
            yield lambda workload=workload: self.decode(*workload)  # type: ignore[misc]
        yield self.by_block_size
        yield self.by_tile_and_splits
        yield self.engine
        yield self.by_stages
        yield self.other_kernels

    def copy(self) -> list[Row]:
        """Measure a plain copy: bytes read and bytes written."""
        source = torch.zeros(self.plan.copy_bytes, dtype=torch.uint8, device=self.plan.device)
        target = torch.empty_like(source)
        moved = 2 * self.plan.copy_bytes
        row = measured(self.clock, "copy", "torch copy_", lambda: target.copy_(source), moved)
        self.copy_rate = row.gb_per_s or 0.0
        return [row]

    def decode(self, num_seqs: int, length: int) -> list[Row]:
        """Measure decode: scattered blocks, blocks in order, and what others make of it."""
        section = f"decode, {num_seqs} sequences of {length} tokens, block 16"
        scattered = self.context(num_seqs, length, 16)
        in_order = self.context(num_seqs, length, 16, scattered=False)
        rows = [
            self.row(section, f"{name}, {order}", call, given)
            for order, given in (("scattered", scattered), ("in order", in_order))
            for name, call in decoders(given).items()
        ]
        rows += [paging_cost(section, rows[i], rows[i + 2]) for i in range(2)]
        del in_order
        return rows + measure_rivals(self.clock, section, scattered, self.copy_rate)

    def by_block_size(self) -> list[Row]:
        """Measure how block sizes matter."""
        return [
            self.row("block size", f"{name}, block {block_size}", call, given)
            for block_size in self.plan.block_sizes
            for given in [self.context(*self.plan.workloads[0], block_size)]
            for name, call in decoders(given).items()
        ]

    def by_tile_and_splits(self) -> list[Row]:
        """Measure the two choices of the split kernel, on the longest contexts."""
        given = self.context(*self.plan.workloads[-1], 16)
        return [
            self.row("tile and splits", f"tile {tile}, {splits} splits", call, given)
            for tile in self.plan.tiles
            for splits in self.plan.splits
            for call in [lambda t=tile, s=splits: split(given, num_splits=s, tile=t)]
        ]

    def by_stages(self) -> list[Row]:
        """Measure how the depth of the pipeline matters."""
        given = self.context(*self.plan.workloads[0], 16)
        rows = []
        for name, call in decoders(given).items():
            module = importlib.import_module(call_module(name))
            for stages in self.plan.stages:
                options = {"num_warps": 4, "num_stages": stages}
                with mock.patch.object(module, "pipeline", lambda _, chosen=options: chosen):
                    label = f"{name}, {stages} stages"
                    rows.append(self.row("stages", label, call, given))
        return rows

    def other_kernels(self) -> list[Row]:
        """Measure int8 decode, prefill, writes and copies."""
        given = self.context(*self.plan.workloads[0], 16)
        cache = given.layer_cache
        integers = torch.zeros(cache.shape, dtype=torch.int8, device=cache.device)
        scales = torch.zeros(cache.shape[:-1], device=cache.device)
        place = given.block_tables, given.seq_lens
        new = cache[:, :-1].flatten(1, 2)[:, : self.plan.prompt].contiguous()
        slots = torch.arange(new.shape[1], device=cache.device)
        pairs = [(2 * i, 2 * i + 1) for i in range((cache.shape[1] - 1) // 4)]
        copied = 2 * len(pairs) * cache[:, 0].numel() * cache.element_size()
        calls: list[tuple[str, Callable[[], object], int]] = [
            (
                "paged_decode_int8",
                lambda: paged_decode_int8(given.query, integers, scales, *place),
                given.kv_bytes // cache.element_size(),
            ),
            ("kv_write", lambda: kv_write(new[0], new[1], cache, slots), 2 * new.nbytes),
            ("copy_blocks", lambda: copy_blocks(cache[None], pairs), copied),
            ("paged_prefill, one prompt", self.prefill(), 0),
        ]
        rate = self.copy_rate
        return [measured(self.clock, "other kernels", *call, reference=rate) for call in calls]

    def prefill(self) -> Callable[[], object]:
        """Give the prefill of one prompt."""
        length = self.plan.prompt
        given = self.context(1, length, 16, query_lens=[length])
        return lambda: paged_prefill(
            given.query,
            given.layer_cache,
            given.block_tables,
            given.seq_lens,
            given.query_start_loc,
            given.max_query_len,
        )

    def engine(self) -> list[Row]:
        """Measure models' decode steps."""
        plan = self.plan
        how = plan.batches, plan.model_context, plan.backend
        return [row for name in plan.models for row in measure_steps(self.clock, name, *how)]

    def context(
        self,
        num_seqs: int,
        length: int,
        block_size: int,
        scattered: bool = True,
        query_lens: list[int] | None = None,
    ) -> Context:
        """Give sequences of one length."""
        plan, lengths = self.plan, [length] * num_seqs
        place = (plan.dtype, plan.device)
        return context(plan.heads, lengths, block_size, *place, query_lens, scattered)

    def row(self, section: str, name: str, call: Callable[[], object], given: Context) -> Row:
        """Measure a call that reads all keys and values."""
        return measured(self.clock, section, name, call, given.kv_bytes, self.copy_rate)


def decoders(given: Context) -> dict[str, Callable[[], object]]:
    """Give the two decode kernels on a batch."""
    arguments = (given.query, given.layer_cache, given.block_tables, given.seq_lens)
    return {
        "paged_decode": lambda: paged_decode(*arguments),
        "split_kv": lambda: split(given),
    }


def split(given: Context, num_splits: int | None = None, tile: int | None = None) -> object:
    """Decode with the split kernel."""
    arguments = (given.query, given.layer_cache, given.block_tables, given.seq_lens)
    return paged_decode_split_kv(*arguments, num_splits=num_splits, tile=tile)


def call_module(name: str) -> str:
    """Give the module that a decoder of that name lives in."""
    return "minipaged_kernels." + {"split_kv": "paged_decode_split_kv"}.get(name, name)


def paging_cost(section: str, scattered: Row, in_order: Row) -> Row:
    """Tell how much longer scattered blocks take; `share` is in percent of blocks in order."""
    name = f"paging costs {scattered.name.split(',')[0]}"
    if not (scattered.milliseconds and in_order.milliseconds):
        return Row(section, name, note="not measured")
    more = 100 * (scattered.milliseconds / in_order.milliseconds - 1)
    return Row(section, name, share=more, note="target: at most 10")


def run(plan: Plan, seconds: float) -> list[Row]:
    """Measure one part after another until time is up."""
    start, rows = time.monotonic(), list[Row]()
    for part in Benchmark(plan).parts():
        if time.monotonic() - start > seconds:
            rows.append(Row("time", "the rest", note=f"left out after {seconds:.0f} s"))
            break
        found = part()
        rows += found
        print(as_table(found), end="", flush=True)
    return rows


def machine(device: torch.device) -> dict[str, str]:
    """Say where this ran."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "device": name,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
    }


def main() -> int:
    """Measure, print, write; 1 if a kernel is wrong."""
    parser = argparse.ArgumentParser(description="What the kernels do on a GPU.")
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.md")
    parser.add_argument("--seconds", type=float, default=240, help="begin nothing after that")
    parser.add_argument("--dry-run", action="store_true", help="tiny shapes on the CPU")
    arguments = parser.parse_args()
    if arguments.dry_run != launch.is_interpreting():
        sys.exit("a dry run needs TRITON_INTERPRET=1, a real one must not have it")
    if not arguments.dry_run and not torch.cuda.is_available():
        sys.exit("torch sees no GPU; --dry-run goes without one")
    plan = dry_plan() if arguments.dry_run else Plan(torch.device("cuda"))
    rows = run(plan, arguments.seconds)
    if arguments.out:
        document = {"machine": machine(plan.device), "rows": as_json(rows)}
        arguments.out.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
        arguments.out.with_suffix(".md").write_text(as_table(rows))
    return 1 if any(row.section == CORRECTNESS and row.note for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
