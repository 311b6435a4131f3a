"""Draw the pictures of visualizer/README.md, one of each view, from a run that is recorded here.

python docs/pictures.py                             the model that minipaged comes with
python docs/pictures.py --model smollm2             another one
python docs/pictures.py --trace deep.jsonl.gz       a deep trace that is there already
python docs/pictures.py --chromium chromium         also the page and the charts, by a browser
python docs/pictures.py --jupyterlab                also the live session, in a JupyterLab
"""

from __future__ import annotations

import argparse
import base64
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

from minipaged_visualizer.charts_page import charts_page
from minipaged_visualizer.html_page import to_html
from minipaged_visualizer.microscope_page import microscope_page, recording_of
from minipaged_visualizer.options import Options
from minipaged_visualizer.side_by_side_page import side_by_side_html
from minipaged_visualizer.svg_gantt import gantt
from minipaged_visualizer.svg_still import still
from minipaged_visualizer.timeline import Position

from minipaged.lab.side_by_side import Scene, run_side_by_side
from minipaged.memory.events import Attended, BlockCopied, Event
from minipaged.memory.trace import Trace

FOLDER = Path(__file__).parent / "pictures"
terminal = runpy.run_path(str(Path(__file__).with_name("picture.py")))["draw"]
LIVE = """
from minipaged.notebook import live
session = live(num_blocks=24, block_size=4)
session.add()
for _ in range(7):
    session.step()
session
"""
PAGE_SIZE, CHARTS_SIZE, WIDE_SIZE = "1280,900", "1000,1440", "1280,800"


def record(model: str | None) -> Trace:
    """Run a shared prefix, three samples and a late request, and record where they look."""
    from minipaged import LLM, SamplingParams

    story = "Tell a story about a fox and a"
    prompts = [f"{story} {thing}.\n\n" for thing in ("kite", "drum", "bell")]
    arrivals = {0: (prompts[0], 3), 5: (prompts[1], 1), 9: (prompts[2], 1)}
    options = {"block_size": 4, "num_blocks": 48, "max_num_seqs": 6}
    with LLM(*([model] if model else []), trace="deep", **options) as llm:
        for step in range(40):
            if step in arrivals:
                prompt, n = arrivals[step]
                params = SamplingParams(
                    n=n, temperature=0.9, seed=step, max_tokens=20, ignore_eos=True
                )
                llm.add_request(prompt, params)
            llm.step()
    assert llm.trace is not None
    return llm.trace


def find(trace: Trace, kind: type[Event]) -> Position:
    """Give the place behind the first event of a kind: a picture must show what it claims."""
    for number, step in enumerate(trace.steps):
        for index, event in enumerate(step.events):
            if isinstance(event, kind):
                return Position(number, index + 1)
    raise SystemExit(f"the trace has no event of kind {kind.kind!r}")


def svgs(trace: Trace) -> dict[str, str]:
    """Give the pictures that need no browser, by name."""
    copy, attended = find(trace, BlockCopied), find(trace, Attended)
    late = min(attended.number + 12, len(trace.steps) - 1)
    step = trace.steps[late]
    end = Position(late, len(step.events))
    paused = Options(is_paused=True, is_projected=True, by_event=True)
    return {
        "terminal": terminal(trace, end, Options(focus=0), 112, 32),
        "projector": terminal(trace, copy, paused, 96, 26),
        "still": still(trace, trace.steps[copy.number].step, copy.event),
        "attention": still(trace, step.step, focus=0),
        "gantt": gantt(trace),
    }


def photograph(browser: str, html: str, moment: str, size: str, picture: Path) -> None:
    """Let a browser without a window draw a page at a moment, "#step.event"."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(html, encoding="utf-8")
        command = [
            *(browser, "--headless", "--no-sandbox", "--hide-scrollbars", "--disable-gpu"),
            "--force-prefers-reduced-motion",
            *(f"--window-size={size}", f"--screenshot={picture}", page.as_uri() + moment),
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=120)


def photograph_session(picture: Path) -> None:
    """Run a live session in JupyterLab, as the tests do, and draw what its cell shows."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "visualizer"))
    from chromium import Chromium
    from jupyter_lab import JupyterLab, Notebook

    with JupyterLab() as lab, Chromium(1500, 1400) as browser:
        lab.write("live", [LIVE])
        notebook = Notebook(browser, lab, "live")
        notebook.run_all()
        notebook.wait_for_cell(0)
        browser.wait_until("document.querySelector('.minipaged .mp-range')", 60)
        browser.settle()
        place = "document.querySelector('.jp-OutputArea-output').getBoundingClientRect()"
        clip = {name: browser.evaluate(f"{place}.{name}") for name in ("x", "y", "width", "height")}
        drawn = browser.call("Page.captureScreenshot", clip={**clip, "scale": 1})
        picture.write_bytes(base64.b64decode(drawn["data"]))
        notebook.save()


def main() -> None:
    """Read the arguments and write the pictures."""
    parser = argparse.ArgumentParser(description="Draw the pictures of visualizer/README.md.")
    parser.add_argument("--model", help="Whose texts are shown.")
    parser.add_argument("--trace", type=Path, help="A deep trace, instead of a run.")
    parser.add_argument("--chromium", help="A browser for the page and the charts.")
    parser.add_argument("--jupyterlab", action="store_true", help="Draw the live session, too.")
    parser.add_argument("--output", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    trace = Trace.load(arguments.trace) if arguments.trace else record(arguments.model)
    arguments.output.mkdir(exist_ok=True)
    for name, svg in svgs(trace).items():
        (arguments.output / f"{name}.svg").write_text(svg, encoding="utf-8")
    if arguments.chromium:
        copy = find(trace, BlockCopied)
        pages = {
            "page": (to_html(trace), f"#{trace.steps[copy.number].step}.{copy.event}", PAGE_SIZE),
            "charts": (charts_page(trace), "", CHARTS_SIZE),
            "microscope": (microscope_page(recording_of("paged_decode")), "#9", WIDE_SIZE),
            "side_by_side": (side_by_side_html(*run_side_by_side(Scene())), "#4", WIDE_SIZE),
        }
        for name, page in pages.items():
            photograph(arguments.chromium, *page, arguments.output / f"{name}.png")
    if arguments.jupyterlab:
        photograph_session(arguments.output / "live_session.png")


if __name__ == "__main__":
    main()
