"""How long the page takes to draw a step, in a headless Chromium: `python benchmarks/views.py`.

A run fills half of its pool; then the page goes on step by step, and to steps anywhere. Times are
milliseconds, their median and what 95 % stay below: the player's own part of a frame, a move from
the key to the end of its frame, and the time between frames while it steps as fast as it can.
"""

from __future__ import annotations

import runpy
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from minipaged_visualizer import export_html

from minipaged.memory.trace import Trace

SIZES = (64, 1024, 4096, 16_384)
STEPS, MOVES = 700, 120
ROWS = {"draw": "draw", "move": "a step on", "scrub": "to any step", "frame": "frame to frame"}
HERE = Path(__file__).parents[1] / "tests" / "visualizer"
MEASURE = """(async () => {
    const [root, range] = [".minipaged", ".mp-range"].map((name) => document.querySelector(name));
    const real = requestAnimationFrame;
    const times = {draw: [], move: [], scrub: [], frame: []};
    let [began, painted] = [0, null];
    requestAnimationFrame = (draw) => real((now) => {
        const start = performance.now();
        draw(now);
        times.draw.push(performance.now() - start);
        const {port1, port2} = new MessageChannel();
        port1.onmessage = () => painted();
        port2.postMessage(null); // comes after the frame's style, layout and paint
    });
    const timed = (list, move) => new Promise((done) => {
        painted = done;
        began = performance.now();
        move();
    }).then(() => list.push(performance.now() - began));
    const forward = () => root.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight"}));
    const idle = () => new Promise((done) => setTimeout(done, 20));
    for (let i = 0; i < MOVES; i += 1) { await timed(times.move, forward); await idle(); }
    for (let i = 0; i < MOVES; i += 1) {
        await timed(times.scrub, () => {
            range.value = Math.floor(Math.random() * range.max);
            range.dispatchEvent(new Event("input"));
        });
        await idle();
    }
    range.value = Math.floor(range.max / 2);
    range.dispatchEvent(new Event("input"));
    let last = performance.now();
    for (let i = 0; i < MOVES; i += 1) {
        await timed([], forward);
        times.frame.push(performance.now() - last);
        last = performance.now();
    }
    return times;
})()"""


def main() -> None:
    """Measure pools of every size, and write a row for each."""
    sys.stdout.write(f"{'blocks':6}{''.join(f'{what:>22}' for what in ROWS.values())}\n")
    for num_blocks in SIZES:
        times = measure(num_blocks)
        columns = (f"{statistics.median(times[n]):14.1f}{worst(times[n]):8.1f}" for n in ROWS)
        sys.stdout.write(f"{num_blocks:6}{''.join(columns)}\n")
        sys.stdout.flush()


def measure(num_blocks: int) -> dict[str, list[float]]:
    """Play a run on a pool, and give the times."""
    sys.path.insert(0, str(HERE))
    browser = runpy.run_path(str(HERE / "chromium.py"))["Chromium"]
    run = runpy.run_path(str(HERE / "large_trace.py"))["Run"](num_blocks, max(num_blocks // 96, 1))
    trace = Trace(run.header)
    trace.steps.extend(run.steps(STEPS))
    with tempfile.TemporaryDirectory() as folder, browser(1280, 800) as page:
        path = export_html(trace, Path(folder) / "page.html")
        page.open(f"{path.as_uri()}#{STEPS // 2}")
        times: Any = page.evaluate(MEASURE.replace("MOVES", str(MOVES)))
        return dict(times)


def worst(times: list[float]) -> float:
    """Give what 95 % stay below."""
    return sorted(times)[int(0.95 * len(times))]


if __name__ == "__main__":
    main()
