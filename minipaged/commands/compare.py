"""`minipaged compare`: two ways to do the same, one table and one chart."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from minipaged.commands.charts import write_page
from minipaged.commands.progress import counting, num_workers
from minipaged.lab.compare import Comparison, Measure, compare

_BAR = 20
_WIDE = 100  # columns of a terminal with room for bars


def show_comparison(
    name: str, num_requests: int, seed: int, as_json: bool, page: Path | None
) -> None:
    """Answer a question and show the answer."""
    with counting() as tell:
        found = compare(name, num_requests, seed, num_workers(), tell)
    question = found.question
    if page:
        words = f"{question.load}\n{question.lesson}"
        write_page(page, question.title, [(words, [found.chart()])])
    if as_json:
        print(json.dumps(_document(found, num_requests, seed), indent=2))
        return
    console = Console(highlight=False)
    console.print(Text(question.title, "bold"))
    console.print(Text(f"{question.load}; {num_requests:,} requests, seed {seed}\n", "dim"))
    console.print(_table(found, bars=console.width >= _WIDE))
    console.print(f"\n{question.lesson}")


def _table(found: Comparison, bars: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    for measure in found.question.measures:
        table.add_column(measure.title.replace(" ", "\n"), justify="right", no_wrap=True)
    if bars:
        table.add_column("", no_wrap=True)
    rows = found.rows()
    most = max(row[0] for row in rows.values()) or 1
    for name, row in rows.items():
        cells = map(_cell, found.question.measures, row)
        bar = [Text("█" * round(_BAR * row[0] / most), "cyan")] if bars else []
        table.add_row(name, *cells, *bar)
    return table


def _cell(measure: Measure, value: float) -> str:
    digits = 0 if isinstance(value, int) else 2 if abs(value) < 10 else 1
    return f"{value:,.{digits}f} {measure.unit}".rstrip()


def _document(found: Comparison, num_requests: int, seed: int) -> dict[str, object]:
    titles = [
        f"{measure.title} ({measure.unit})" if measure.unit else measure.title
        for measure in found.question.measures
    ]
    return {
        "title": found.question.title,
        "load": found.question.load,
        "requests": num_requests,
        "seed": seed,
        "results": {
            name: dict(zip(titles, row, strict=True)) for name, row in found.rows().items()
        },
        "lesson": found.question.lesson,
    }
