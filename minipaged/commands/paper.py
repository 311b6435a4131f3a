"""`minipaged paper`: figures of the paper, reported beside simulated."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from minipaged.commands.charts import write_page, write_pictures
from minipaged.commands.progress import counting, num_workers
from minipaged.lab.figures import Figure, Row
from minipaged.lab.paper.catalog import rebuild
from minipaged.lab.paper.study import Scale

ENOUGH = 500
_TOO_FEW = f"Fewer than {ENOUGH} requests don't keep the pool full: take more (--requests)."
_SPREAD = "Seeds differ: by up to 4 points in shares of memory, 10 % in batches, at 1,000 requests."


def show_paper(
    names: Sequence[str], scale: Scale, as_json: bool, page: Path | None, pictures: Path | None
) -> None:
    """Rebuild figures and show them."""
    with counting() as tell:
        figures = rebuild(names, scale, num_workers(), tell)
    if page:
        write_page(page, "PagedAttention, rebuilt", [(_words(f), f.charts) for f in figures])
    if pictures:
        write_pictures(pictures, [chart for figure in figures for chart in figure.charts])
    if as_json:
        print(json.dumps(_document(figures, scale), indent=2))
        return
    console = Console(highlight=False)
    for figure in figures:
        console.print(_rendered(figure))
    num_goals = [row.is_met for figure in figures for row in figure.rows if row.is_met is not None]
    console.print(
        f"{sum(num_goals)} of {len(num_goals)} goals met; {scale.num_requests:,} requests, seed "
        f"{scale.seed}. {_SPREAD if scale.num_requests >= ENOUGH else _TOO_FEW}"
    )


def _rendered(figure: Figure) -> Group:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("", min_width=24)
    for title in ("reported", "simulated", "deviation"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("goal", no_wrap=True)
    for row in figure.rows:
        table.add_row(*_cells(row))
    heading = Text.assemble((f"{figure.name}  ", "bold cyan"), (figure.title, "bold"))
    below = [Padding(Text(f"- {note}"), (0, 0, 0, 2)) for note in figure.notes]
    source = Text(f"reported: {figure.source}\nsimulated: {figure.method}", "dim")
    return Group(heading, source, Padding(table, (1, 0)), *below, Text(""))


def _cells(row: Row) -> tuple[str | Text, ...]:
    reported = row.words or _number(row.reported, row.unit)
    return row.what, reported, _number(row.simulated, row.unit), _deviation(row), _goal(row)


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    digits = 2 if abs(value) < 10 and unit != "%" else 1
    return f"{value:.{digits}f} {unit}".rstrip()


def _deviation(row: Row) -> str:
    if row.deviation is None:
        return "-"
    return f"{row.deviation:+.1f} " + ("pt" if row.unit == "%" else "%")


def _goal(row: Row) -> Text:
    if row.goal is None:
        return Text("")
    limit = f"{row.goal:g} " + ("pt" if row.unit == "%" else "%")
    return Text(f"{limit} met", "green") if row.is_met else Text(f"{limit} missed", "red")


def _words(figure: Figure) -> str:
    lines = (f"{figure.name}: {figure.title}", f"reported: {figure.source}")
    return "\n".join((*lines, f"simulated: {figure.method}", *figure.notes))


def _document(figures: Sequence[Figure], scale: Scale) -> dict[str, Any]:
    return {
        "requests": scale.num_requests,
        "seed": scale.seed,
        "figures": [
            {
                **{name: getattr(f, name) for name in ("name", "title", "source", "method")},
                "rows": [
                    {**asdict(row), "deviation": row.deviation, "is_met": row.is_met}
                    for row in f.rows
                ],
                "notes": f.notes,
            }
            for f in figures
        ],
    }
