"""The notebook's widgets in a real JupyterLab, around a real model, moved by keys alone.

Each test opens a notebook of its own. Whatever it does, nothing outside this machine is asked for,
and the browser complains about nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import pytest
from chromium import CHROMIUM, IS_REQUIRED, Chromium
from jupyter_lab import JupyterLab, Notebook
from keyboard_walk import (
    ACTIVE,
    PLACE,
    PLAYER,
    RANGE,
    check_copy_on_write,
    check_explanations,
    check_playing,
    tab_to,
    tab_to_player,
    wait_for_player,
)
from pages import text_of

from minipaged.memory.trace import Trace

NEEDED = ("jupyterlab", "ipywidgets", "anywidget", "plotly")
IS_THERE = CHROMIUM is not None and all(map(find_spec, NEEDED))
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not IS_THERE and not IS_REQUIRED, reason=f"needs Chromium, {NEEDED}"),
]

PREPARE = "import torch\ntorch.set_num_threads(1)"
GENERATE = """
from minipaged import LLM, SamplingParams
from minipaged_visualizer import MemoryPlayer
llm = LLM("storyteller", block_size=4, num_blocks=16, trace=True)
params = SamplingParams(n=3, seed=7, max_tokens=12, ignore_eos=True)
outputs = llm.generate("Once upon a time", params, use_tqdm=False)
llm.trace.save("run.jsonl")
MemoryPlayer(llm)
"""
LIVE = """
from minipaged.notebook import live
session = live(num_blocks=512, block_size=16, sampling={"ignore_eos": True})
session
"""
RUN = "await session.run_async()"


@pytest.fixture(scope="module")
def lab() -> Iterator[JupyterLab]:
    with JupyterLab() as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium(1300, 1400) as chromium:
        yield chromium


@pytest.fixture
def open_notebook(
    lab: JupyterLab, browser: Chromium, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Notebook]]:
    """Open a notebook with these cells; in the end all was quiet."""
    browser.complaints.clear()
    browser.requests.clear()

    opened: list[Notebook] = []

    def build(*cells: str) -> Notebook:
        lab.write(request.node.name, [PREPARE, *cells])
        opened.append(Notebook(browser, lab, request.node.name))
        opened[0].run_cell(0)
        return opened[0]

    yield build
    opened[0].save()
    browser.open("about:blank")  # who leaves stays quiet, too
    assert browser.complaints == []
    own = ("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:", "about:")
    assert [url for url in browser.requests if not url.startswith(own)] == []
    assert any("/api/kernels/" in url for url in browser.requests)  # all of them are seen


def tab_to_button(browser: Chromium, name: str) -> None:
    tab_to(browser, f"element.tagName === 'BUTTON' && element.innerText === {name!r}")


# --- a run that is over ---------------------------------------------------------------------------


def test_a_generation_plays_by_keys_alone(
    lab: JupyterLab, open_notebook: Callable[..., Notebook]
) -> None:
    notebook = open_notebook(GENERATE)
    browser = notebook.browser
    notebook.run_cell(1)
    wait_for_player(browser)
    trace = Trace.load(lab.root / "run.jsonl")
    tab_to_player(browser)
    check_copy_on_write(browser, trace)
    check_playing(browser, trace)
    browser.press("b", "a", "d", "d")  # in the player these are "back row", "arrows" and nothing
    assert notebook.num_cells == 2


def test_a_block_is_explained_as_python_replays_it(
    lab: JupyterLab, open_notebook: Callable[..., Notebook]
) -> None:
    notebook = open_notebook(GENERATE)
    notebook.run_cell(1)
    wait_for_player(notebook.browser)
    trace = Trace.load(lab.root / "run.jsonl")
    tab_to_player(notebook.browser)
    assert check_explanations(notebook.browser, trace, (1, 2, 7)) == 4


def test_a_page_loaded_again_shows_the_run_again(open_notebook: Callable[..., Notebook]) -> None:
    notebook = open_notebook(GENERATE, LIVE, RUN)
    browser = notebook.browser
    notebook.run_cell(1)
    notebook.run_cell(2)
    browser.wait_until(f"document.querySelectorAll('{PLAYER}').length === 2", 60)
    tab_to_button(browser, "add request")
    browser.press("Enter")
    notebook.run_cell(3)
    notebook.wait_for_cell(3)
    lengths = "[...document.querySelectorAll('.mp-range')].map(range => range.max).join()"
    browser.wait_until(f"{lengths} === '12,16'")
    time.sleep(3)  # a run that rests is kept
    notebook.save()
    notebook.open()
    browser.wait_until(f"{lengths} === '12,16'", 60)
    tab_to_player(browser)
    browser.press("Home", "n")
    assert text_of(browser, PLACE).startswith("step 0, event 1 of ")


# --- a run that goes on ---------------------------------------------------------------------------


def test_a_live_run_is_paused_goes_on_and_is_aborted(
    open_notebook: Callable[..., Notebook],
) -> None:
    notebook = open_notebook(LIVE, RUN)
    browser = notebook.browser
    notebook.run_cell(1)
    wait_for_player(browser)
    assert text_of(browser, ".mp-caption").endswith("Each step is shown as soon as it has run.")
    status = "[role=status]"
    tab_to(browser, "element.type === 'text'")
    browser.type("add bad daddy")
    tab_to(browser, "element.type === 'number'")
    browser.type("8")  # samples
    tab_to(browser, "element.type === 'number'")
    browser.type("900")  # tokens each
    tab_to_button(browser, "add request")
    browser.press("d", "d", "b", "a", "x", "Enter")
    browser.wait_until(f"document.querySelector('{status}').innerText === 'request 0 is added'")
    assert notebook.num_cells == 3

    def run_until(act: Callable[[], object]) -> int:
        """Run the last cell, act after a few steps, and give how many there are in the end."""
        before = int(browser.evaluate(f"{RANGE}.max"))
        notebook.run_cell(2)
        browser.wait_until(f"Number({RANGE}.max) > {before + 20}")
        act()
        notebook.wait_for_cell(2)
        num_steps = int(notebook.value("len(session.engine.trace.steps)"))
        assert before + 20 < num_steps < 900
        browser.wait_until(f"Number({RANGE}.max) === {num_steps}")
        return num_steps

    def button(name: str) -> Callable[[], object]:
        """Find a button by Tab alone. A cell that runs takes the focus: give it back, and press."""
        tab_to_button(browser, name)
        browser.evaluate(f"window.button = {ACTIVE}")
        return lambda: browser.evaluate("button.focus()") or browser.press("Enter")

    paused = run_until(button("pause"))
    assert text_of(browser, status) == "paused"
    assert notebook.value("session.engine.has_unfinished_requests()") == "True"
    assert text_of(browser, PLACE).startswith(f"step {paused - 1}")  # the player follows
    first = "session.engine.trace.steps[0].events"
    read = f"''.join(text for e in {first} if e.kind == 'prefill' for text in e.texts)"
    assert notebook.value(read).strip("'") == "add bad daddy"
    interrupted = run_until(notebook.interrupt)
    assert interrupted > paused
    assert text_of(browser, status) == "paused"
    aborted = run_until(button("abort"))
    assert aborted > interrupted
    assert text_of(browser, status) == "all requests are done"
    assert notebook.value("session.engine.has_unfinished_requests()") == "False"
    assert notebook.num_cells == 3


# --- all of them ----------------------------------------------------------------------------------

ALL = """
from minipaged_visualizer import KernelMicroscope, SideBySide, charts
from IPython.display import display
display(SideBySide(llm, "run.jsonl"), KernelMicroscope("paged_decode"))
charts.show(charts.memory_over_time(llm.trace))
"""


def test_all_widgets_share_a_notebook_and_keep_their_keys(
    open_notebook: Callable[..., Notebook],
) -> None:
    notebook = open_notebook(GENERATE, LIVE, ALL)
    browser = notebook.browser
    notebook.run_all()
    notebook.wait_for_cell(3)
    browser.wait_until(f"document.querySelectorAll('{PLAYER}').length === 4", 60)
    browser.wait_until("document.querySelector('.js-plotly-plot .main-svg')", 60)
    names = browser.evaluate("[...document.querySelectorAll('[id]')].map(element => element.id)")
    assert len(names) == len(set(names))
    kinds = ":is(.minipaged, .mp-own-keys) :is(button, select, input, [tabindex='0'])"
    browser.evaluate(f"window.all = [...document.querySelectorAll(`{kinds}`)]")
    count = browser.evaluate("all.length")
    assert count > 40
    for number in range(count):
        browser.evaluate(f"all[{number}].focus({{ preventScroll: true }})")
        if not browser.evaluate(f"all[{number}] === {ACTIVE}"):
            continue  # it is hidden
        browser.press("d", "d")
        what = f"(all[{number}].ariaLabel ?? '') + all[{number}].outerHTML.slice(0, 200)"
        assert notebook.num_cells == 4, browser.evaluate(what)
