"""The chapters: paired with their sources, without outputs, and they run from top to bottom."""

from __future__ import annotations

import json
import re
import runpy
import time
from pathlib import Path
from typing import Any

import pytest

from minipaged.exercises.catalog import EXERCISES

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "tutorials"
SOURCES = sorted(TUTORIALS.glob("[0-9]*.py"))
SECONDS = 60
each = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)


def cells(source: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        source.with_suffix(".ipynb").read_text(encoding="utf-8")
    )["cells"]
    return found


def code(source: Path) -> str:
    return "\n".join("".join(c["source"]) for c in cells(source) if c["cell_type"] == "code")


@each
def test_a_notebook_is_as_its_source(source: Path) -> None:
    notebook_of = runpy.run_path(str(ROOT / "docs" / "notebooks.py"))["notebook_of"]
    there = source.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert there == notebook_of(source), "python docs/notebooks.py writes it anew"


@each
def test_a_notebook_holds_no_outputs(source: Path) -> None:
    for cell in cells(source):
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@each
def test_what_reveals_an_answer_is_folded(source: Path) -> None:
    for cell in cells(source):
        reveals = re.search(r"^reveal\(", "".join(cell["source"]), re.MULTILINE)
        assert cell["metadata"] == ({"jupyter": {"source_hidden": True}} if reveals else {})


def test_no_notebook_is_without_a_source() -> None:
    assert [path.stem for path in sorted(TUTORIALS.glob("*.ipynb"))] == [s.stem for s in SOURCES]


@each
def test_a_chapter_has_what_each_has(source: Path) -> None:
    chapter = int(source.stem.partition("_")[0])
    text = source.read_text(encoding="utf-8")
    assert re.search(r"^# # \d+\. ", text, re.MULTILINE), "a title: # 3. Block tables"
    for heading in ("you will", "summary", "source"):
        assert re.search(rf"^# ##+ .*{heading}", text, re.MULTILINE | re.IGNORECASE), heading
    assert re.search(r"MemoryPlayer\(|live\(|LiveSession|SideBySide\(", text), "a player"
    assert len(re.findall(r"^reveal\(", text, re.MULTILINE)) >= 2
    asked = [e for e in EXERCISES if e.chapter == chapter]
    assert asked or chapter == 1
    assert (TUTORIALS / "teaching" / f"{source.stem}.md").is_file()


@each
def test_every_file_that_a_chapter_points_to_is_there(source: Path) -> None:
    text = source.read_text(encoding="utf-8")
    pointed = re.findall(r"`((?:minipaged|kernels|visualizer|docs|tests)/[\w./-]+)`", text)
    assert pointed
    for path in pointed:
        assert (ROOT / path).exists(), path


def test_the_table_of_contents_names_every_chapter() -> None:
    contents = (TUTORIALS / "README.md").read_text(encoding="utf-8")
    for source in SOURCES:
        assert source.with_suffix(".ipynb").name in contents


@pytest.mark.notebook
@each
def test_a_chapter_runs_from_top_to_bottom(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an empty folder, as a student's: nothing of the repository is beside it."""
    import nbformat
    from nbclient import NotebookClient

    for name, folder in (("IPYTHONDIR", "ipython"), ("JUPYTER_RUNTIME_DIR", "runtime")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    notebook = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    start = time.monotonic()
    client.execute()
    assert time.monotonic() - start < SECONDS
    told = [o for c in notebook.cells if c.cell_type == "code" for o in c.outputs]
    assert not [o for o in told if o.output_type == "stream" and o.name == "stderr"], told
