"""Writes the notebooks of `tutorials/` from their sources; `--check` only compares them.

A chapter is a .py file in jupytext's percent format. Its notebook is committed beside it, without
outputs, so that it opens by a double click. Cells are numbered, so the same source gives the same
notebook, byte for byte: python docs/notebooks.py [--check]

A cell that reveals an answer is folded, or it would be read before anybody has guessed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import jupytext
import nbformat

TUTORIALS = Path(__file__).parents[1] / "tutorials"
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
_REVEALS = re.compile(r"^reveal\(", re.MULTILINE)
_FOLDED = {"jupyter": {"source_hidden": True}}


def sources() -> list[Path]:
    """Give the chapters' sources, in order."""
    return sorted(TUTORIALS.glob("[0-9]*.py"))


def notebook_of(source: Path) -> str:
    """Give the notebook of a source as text."""
    notebook = jupytext.read(source, fmt="py:percent")
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": _KERNEL, "language_info": {"name": "python"}}
    )
    for number, cell in enumerate(notebook.cells, 1):
        cell.id = f"cell-{number}"
        is_folded = cell.cell_type == "code" and _REVEALS.search(cell.source)
        cell.metadata = nbformat.from_dict(_FOLDED if is_folded else {})
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    nbformat.validate(notebook)
    return nbformat.writes(notebook).rstrip("\n") + "\n"


def main(arguments: list[str]) -> int:
    """Write the notebooks, or compare them."""
    stale = []
    for source in sources():
        text, target = notebook_of(source), source.with_suffix(".ipynb")
        if target.is_file() and target.read_text(encoding="utf-8") == text:
            continue
        stale.append(target.name)
        if "--check" not in arguments:
            target.write_text(text, encoding="utf-8", newline="\n")
    print("\n".join(stale) or "all notebooks are as their sources")  # noqa: T201
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
