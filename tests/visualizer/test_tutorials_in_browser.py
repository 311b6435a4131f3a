"""Every chapter in a real JupyterLab: all cells run, every widget is drawn, all is quiet."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import CHROMIUM, IS_REQUIRED, Chromium
from jupyter_lab import PANEL, JupyterLab, Notebook

TUTORIALS = Path(__file__).parents[2] / "tutorials"
CHAPTERS = sorted(TUTORIALS.glob("[0-9]*.ipynb"))
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None and not IS_REQUIRED, reason="needs Chromium"),
]
WIDGET, CHART = "application/vnd.jupyter.widget-view+json", "application/vnd.plotly.v1+json"
# What is drawn, by kind of output. A player that can't show its trace has the class mp-error.
DRAWN = {
    WIDGET: ".minipaged:not(.mp-error)",
    CHART: ".js-plotly-plot .main-svg",
}


@pytest.fixture(scope="module")
def lab() -> Iterator[JupyterLab]:
    with JupyterLab() as server:
        for path in CHAPTERS:
            shutil.copy(path, server.root)
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium(1300, 1400) as chromium:
        yield chromium


def outputs_of(notebook: Notebook, cell: int) -> list[dict[str, Any]]:
    """The outputs of a cell as they are in the notebook's file format."""
    model = f"{PANEL}.content.widgets[{cell}].model"
    shown = notebook.browser.evaluate(
        f"JSON.stringify({model}.type === 'code' ? {model}.outputs.toJSON() : [])"
    )
    found: list[dict[str, Any]] = json.loads(shown)
    return found


def wait_until_drawn(notebook: Notebook, cell: int, selector: str, number: int) -> None:
    """Scroll to a cell: what is out of sight is not drawn."""
    node = f"{PANEL}.content.widgets[{cell}].node"
    notebook.browser.evaluate(f"void {PANEL}.content.scrollToItem({cell})")
    notebook.browser.wait_until(
        f"{node}.querySelectorAll({json.dumps(selector)}).length >= {number}", 30
    )
    assert notebook.browser.evaluate(f"{node}.querySelector('.mp-error')") is None


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_all_of_a_chapter_is_drawn(path: Path, lab: JupyterLab, browser: Chromium) -> None:
    browser.complaints.clear()
    browser.requests.clear()
    notebook = Notebook(browser, lab, path.stem)
    notebook.run_all()
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [number for number, cell in enumerate(cells) if cell["cell_type"] == "code"]
    notebook.wait_for_cell(code[-1], 120)
    num_drawn = 0
    for cell in code:
        outputs = outputs_of(notebook, cell)
        assert not [o for o in outputs if o["output_type"] == "error"], cell
        for kind, selector in DRAWN.items():
            number = sum(kind in output.get("data", {}) for output in outputs)
            if number:
                wait_until_drawn(notebook, cell, selector, number)
                num_drawn += number
    assert num_drawn >= 1
    notebook.save()  # a browser complains of leaving what is not
    browser.open("about:blank")
    assert browser.complaints == []
    own = ("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:", "about:")
    assert [url for url in browser.requests if not url.startswith(own)] == []
