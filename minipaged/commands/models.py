"""`minipaged models`: what there is, where it is, and how to get the rest."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from minipaged.models.catalog import fetch, list_models


def show_models() -> None:
    """Print a table of the catalog."""
    console = Console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("name", "what", "size", "licence", "where"):
        table.add_column(title, overflow="fold")
    for status in list_models():
        where = str(status.folder) if status.folder else f"not here ({status.entry.origin})"
        size = f"{status.size / 1e6:.0f} MB"
        entry = status.entry
        table.add_row(entry.name, entry.summary, size, entry.licence, Text(where))
    console.print(table)
    console.print(
        "minipaged models fetch NAME gets one. Any Llama, Mistral, Qwen2 or Qwen3 works too: "
        "org/name from the hub, a folder with safetensors, or a .gguf file.",
        markup=False,
        highlight=False,
    )


def fetch_model(name: str) -> None:
    """Fetch a model by name and print where it is.

    Raises:
        ModelError: There is none, or it can't be fetched.
    """
    files = fetch(name, lambda line: print(line, file=sys.stderr))
    print(files.folder)
