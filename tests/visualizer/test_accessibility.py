"""Pages as axe-core sees them, which knows the rules of accessibility: nothing it finds may stay.

MINIPAGED_AXE names a folder in which `npm install axe-core` was run, or the file axe.min.js itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import CHROMIUM, IS_REQUIRED, Chromium
from hostile import hostile_trace
from large_trace import Run
from minipaged_visualizer import export_html
from minipaged_visualizer.charts_page import charts_page
from minipaged_visualizer.microscope_page import microscope_page, recording_of
from minipaged_visualizer.side_by_side_page import side_by_side_html
from scenes import everything

from minipaged.lab.side_by_side import Scene, run_side_by_side
from minipaged.memory.trace import Trace

pytestmark = pytest.mark.browser
VIEWS = {
    "as it opens": (),
    "event by event": ("n",),
    "the prefix tree": ("x",),
    "for the back row": ("x", "b"),
    "as text": ("b", "t"),
    "help": ("t", "?"),
}
FOUND = """axe.run(document, {resultTypes: ["violations"]}).then(({violations}) => violations.map(
    ({id, impact, nodes}) => `${id} (${impact}): ${nodes[0].html.slice(0, 200)}`))"""


def axe_path() -> Path | None:
    named = os.environ.get("MINIPAGED_AXE")
    if not named:
        return None
    path = Path(named)
    return path if path.is_file() else path / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture(scope="module")
def axe() -> str:
    path = axe_path()
    assert path or not IS_REQUIRED, "MINIPAGED_AXE names no folder with axe-core"
    if path is None or CHROMIUM is None:
        pytest.skip("needs Chromium, and MINIPAGED_AXE to name a folder with axe-core")
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as chromium:
        yield chromium


def run_of(num_blocks: int) -> Trace:
    """Give a run that fills half of the pool."""
    run = Run(num_blocks, num_running=max(num_blocks // 128, 1))
    trace = Trace(run.header)
    trace.steps.extend(run.steps(140))
    return trace


TRACES = {
    "small": everything,
    "hostile": hostile_trace,
    "64": lambda: run_of(64),
    "1024": lambda: run_of(1024),
    "16384": lambda: run_of(16_384),
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", TRACES)
def test_axe_finds_nothing(
    axe: str, browser: Chromium, tmp_path: Path, name: str, scheme: str
) -> None:
    path = export_html(TRACES[name](), tmp_path / "page.html")
    browser.emulate(prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
    browser.open("about:blank")
    browser.open(f"{path.as_uri()}#1")
    browser.evaluate(f"{axe}; 0")
    browser.evaluate("document.querySelector('.mp-block-button').click()")
    for view, keys in VIEWS.items():
        browser.press(*keys)
        assert browser.evaluate(FOUND) == [], view


def slabs_beside_pages() -> str:
    runs = run_side_by_side(Scene())
    return side_by_side_html(runs.slabs, runs.paged)


OTHER_PAGES = {
    "side by side": (slabs_beside_pages, ("ArrowRight", "b", "t", "?")),
    "microscope": (lambda: microscope_page(recording_of("paged_decode")), ("n", "t", "?")),
    "charts": (lambda: charts_page(everything()), ()),
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", OTHER_PAGES)
def test_axe_finds_nothing_on_other_pages(
    axe: str, browser: Chromium, tmp_path: Path, name: str, scheme: str
) -> None:
    make, keys = OTHER_PAGES[name]
    path = tmp_path / "page.html"
    path.write_text(make(), encoding="utf-8")
    browser.emulate(prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
    browser.open("about:blank")
    browser.open(path.as_uri())
    browser.evaluate(f"{axe}; 0")
    assert browser.evaluate(FOUND) == []
    for key in keys:
        browser.press(key)
        assert browser.evaluate(FOUND) == [], key


def test_axe_finds_what_is_wrong(axe: str, browser: Chromium, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text("<body style='color:#aaa'>pale <img src='data:,'>", "utf-8")
    browser.open(page.as_uri())
    browser.evaluate(f"{axe}; 0")
    found = " ".join(browser.evaluate(FOUND))
    assert "color-contrast (serious)" in found
    assert "image-alt (critical)" in found
