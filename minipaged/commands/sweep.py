"""`minipaged sweep`: block sizes side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from minipaged.commands.charts import write_page
from minipaged.commands.progress import counting, num_workers
from minipaged.errors import ConfigError
from minipaged.lab.loads import Load
from minipaged.lab.sweep import SizeResult, Sweep, sweep

_TITLES = ("block", "empty", "for ever", "table", "of all", "copy", "swap", "batch", "tokens/s")


def parse_sizes(text: str) -> list[int]:
    """Read block sizes, with commas between them.

    Raises:
        ConfigError: One is no number.

    >>> parse_sizes("1, 16,64")
    [1, 16, 64]
    """
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"block sizes are numbers like 1,2,4,8,16, not {text!r}") from None


def show_sweep(sizes: Sequence[int], load: Load, as_json: bool, page: Path | None) -> None:
    """Try every size and show what came of it."""
    with counting() as tell:
        found = sweep(sizes, load, num_workers(), tell)
    if page:
        write_page(page, f"Block sizes, {load.name}", [(found.reason, found.charts())])
    if as_json:
        results = [asdict(result) for result in found.results]
        best = {"recommended": found.best and found.best.block_size, "why": found.reason}
        print(json.dumps({"load": asdict(load), "results": results, **best}, indent=2))
        return
    console = Console(highlight=False)
    console.print(_table(found))
    console.print(f"\n{found.reason}")
    console.print(_NOTES, style="dim")


def _table(found: Sweep) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in _TITLES:
        table.add_column(title, justify="right", no_wrap=True)
    for result in found.results:
        table.add_row(*_cells(result), style="bold" if result is found.best else "")
    return table


def _cells(result: SizeResult) -> tuple[str, ...]:
    return (
        str(result.block_size),
        f"{result.empty:.1f} %",
        f"{result.never:.2f} %",
        f"{result.table_entries:.0f}",
        f"{result.table_bytes / 1024:.1f} KiB",
        f"{result.copy_us:.0f} us",
        f"{result.swap_ms:.0f} ms",
        f"{result.batch:.1f}",
        f"{result.tokens_per_second:,.0f}",
    )


_NOTES = """
empty     of what sequences hold, without a token now; for ever: till they end
table     entries of a sequence's block table; of all: bytes of all tables, 4 an entry
copy      one copy-on-write; swap: an average sequence out and in over the bus
OPT-13B on an A100-40GB, by the cost model; reading many small blocks is not slower there."""
