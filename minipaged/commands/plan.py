"""`minipaged plan`: what a GPU's memory holds, as a table or as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from minipaged.lab.hardware import GIB
from minipaged.lab.planner import UTILIZATION, AllocatorPlan, Plan

_TITLES = {
    "orca-max": "Orca (Max)",
    "orca-pow2": "Orca (Pow2)",
    "orca-oracle": "Orca (Oracle)",
    "paged": "paged",
}
_KINDS = (
    ("token_states", "tokens", "█", "green"),
    ("reserved", "reserved", "▓", "yellow"),
    ("internal", "internal", "▒", "red"),
    ("external", "external", "░", "bright_black"),
)
_BAR = 60


def show_plan(plan: Plan, as_json: bool) -> None:
    """Print a plan."""
    if as_json:
        print(json.dumps(_document(plan), indent=2))
        return
    console = Console(highlight=False)
    parts = (_sizes(plan), _table(plan), _bars(plan), _notes(plan))
    for part in parts[:-1]:
        console.print(part)
        console.print()
    console.print(parts[-1])


def _sizes(plan: Plan) -> Table:
    model, usable = plan.model, UTILIZATION * plan.num_gpus * plan.gpu.memory / GIB
    gpus = f"{plan.num_gpus} x {plan.gpu.name}" if plan.num_gpus > 1 else plan.gpu.name
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_row(Text(f"{model.name} on {gpus}, fp16", "bold"))
    rows = {
        "texts": f"up to {plan.max_len:,} tokens; {plan.mean_len:,} on average: "
        f"{plan.num_prompt_tokens:,} prompt + {plan.num_new_tokens:,} new",
        "a token": f"{plan.bytes_per_token:,} bytes: K and V x {model.num_layers} layers x "
        f"{model.num_kv_heads} heads x {model.head_dim} x 2 bytes",
        "KV memory": f"{plan.kv_bytes / GIB:.1f} GiB: {UTILIZATION:.0%} of the memory is "
        f"{usable:.1f}, weights take {plan.weight_bytes / GIB:.1f}",
        "pool": f"{plan.num_slots:,} tokens, or {plan.num_blocks:,} blocks of {plan.block_size} "
        f"({plan.bytes_per_block / 2**20:.2f} MiB each)",
    }
    for name, value in rows.items():
        table.add_row(f"{name:<11}{value}")
    return table


def _table(plan: Plan) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    titles = ("requests", "slots", "unused", *(title for _, title, _, _ in _KINDS))
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    for row in plan.allocators:
        shares = (row.unused, *(getattr(row, kind) for kind, *_ in _KINDS))
        table.add_row(
            _TITLES[row.allocator],
            f"{row.num_requests:,}",
            f"{row.slots_per_request:,}",
            *(f"{percent:.1f} %" for percent in shares),
            style="bold" if row.allocator == "paged" else "",
        )
    return table


def _bars(plan: Plan) -> Text:
    """Draw the KV memory, a bar for each allocator."""
    lines = [_bar(row) for row in plan.allocators]
    legend = Text(" " * 15)
    for _, title, sign, style in _KINDS:
        legend.append(sign, style).append(f" {title}   ")
    return Text("\n").join([*lines, legend])


def _bar(row: AllocatorPlan) -> Text:
    bar = Text(f"{_TITLES[row.allocator]:<15}")
    drawn, percent = 0, 0.0
    for kind, _, sign, style in _KINDS:
        percent += getattr(row, kind)
        upto = round(_BAR * percent / 100)
        bar.append(sign * (upto - drawn), style)
        drawn = upto
    return bar


def _notes(plan: Plan) -> Text:
    slabs, paged = plan.allocators[0], plan.allocators[-1]
    notes = [
        "requests   that run at once, each anywhere in its life",
        "slots      that one has when it ends; unused: the part that it never touched",
        "reserved   will hold tokens later; internal never will; external is nobody's",
        "Orca       slabs: for the longest text (Max), up to twice (Pow2), exact (Oracle)",
    ]
    if slabs.num_requests:
        ratio = paged.num_requests / slabs.num_requests
        notes.append(
            f"Paging runs {ratio:.1f} x as many requests as slabs of {slabs.slots_per_request:,}; "
            f"{paged.num_at_end:,} can come to their end at once."
        )
    return Text("\n".join(notes))


def _document(plan: Plan) -> dict[str, Any]:
    return {**asdict(plan), "mean_len": plan.mean_len, "bytes_per_block": plan.bytes_per_block}
