"""How long the page takes to draw a step, in a headless Chromium: `python benchmarks/views.py`.

A run fills two thirds of its pool; then the page goes on step by step, and to steps anywhere. All
times are milliseconds. "processor" is what a step costs the page's main thread, whatever else the
machine does; of the others the median and what 95 % stay below: the player's own part of a frame, a
move from the key to the end of its frame, and frames while it steps as fast as it can.
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
WALL_TIMES = {
    "draw": "draw",
    "next": "a step on",
    "anywhere": "to any step",
    "frames": "frame to frame",
}
HERE = Path(__file__).parents[1] / "tests" / "visualizer"
SETUP = """
const [root, range] = [".minipaged", ".mp-range"].map((name) => document.querySelector(name));
const real = requestAnimationFrame;
globalThis.draws = [];
let painted = null;
globalThis.requestAnimationFrame = (draw) => real((now) => {
    const start = performance.now();
    draw(now);
    draws.push(performance.now() - start);
    const {port1, port2} = new MessageChannel();
    port1.onmessage = () => painted();
    port2.postMessage(null); // comes after the frame's style, layout and paint
});
const go = (number) => {
    range.value = number;
    range.dispatchEvent(new Event("input"));
};
globalThis.moves = {
    next: () => root.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight"})),
    anywhere: () => go(Math.floor(Math.random() * range.max)),
    middle: () => go(range.max / 2),
};
globalThis.timed = async (move, count, rest) => {
    const times = [];
    for (let i = 0; i < count; i += 1) {
        const began = performance.now();
        await new Promise((done) => { painted = done; moves[move](); });
        times.push(performance.now() - began);
        if (rest) await new Promise((done) => setTimeout(done, rest));
    }
    return times;
};
"""


def main() -> None:
    """Measure pools of every size, and write a row for each."""
    heads = "".join(f"{head:>20}" for head in WALL_TIMES.values())
    sys.stdout.write(f"{'blocks':6}{'processor':>12}{heads}\n")
    for num_blocks in SIZES:
        processor, times = measure(num_blocks)
        columns = "".join(f"{middle(times[n]):12.1f}{worst(times[n]):8.1f}" for n in WALL_TIMES)
        sys.stdout.write(f"{num_blocks:6}{processor:12.1f}{columns}\n")
        sys.stdout.flush()


def measure(num_blocks: int) -> tuple[float, dict[str, list[float]]]:
    """Play a run on a pool; give the processor time of a step, and the times of each kind."""
    sys.path.insert(0, str(HERE))
    browser = runpy.run_path(str(HERE / "chromium.py"))["Chromium"]
    run = runpy.run_path(str(HERE / "large_trace.py"))["Run"](num_blocks, max(num_blocks // 64, 1))
    trace = Trace(run.header)
    trace.steps.extend(run.steps(STEPS))
    with tempfile.TemporaryDirectory() as folder, browser(1280, 800) as page:
        path = export_html(trace, Path(folder) / "page.html")
        page.open(f"{path.as_uri()}#{STEPS // 2}")
        page.call("Performance.enable", timeDomain="threadTicks")
        page.evaluate(f"{{{SETUP}}}")
        before = main_thread(page)
        times = {"next": page.evaluate(f"timed('next', {MOVES}, 20)")}
        processor = (main_thread(page) - before) / MOVES
        times["draw"] = page.evaluate("draws")
        times["anywhere"] = page.evaluate(f"timed('anywhere', {MOVES}, 20)")
        page.evaluate("timed('middle', 1, 100)")
        times["frames"] = page.evaluate(f"timed('next', {MOVES}, 0)")
    return processor, times


def main_thread(page: Any) -> float:
    """Give the processor time that the page's main thread has used, in milliseconds."""
    metrics = page.call("Performance.getMetrics")["metrics"]
    return 1000 * float(next(m["value"] for m in metrics if m["name"] == "TaskDuration"))


def middle(times: list[float]) -> float:
    """Give the median."""
    return statistics.median(times)


def worst(times: list[float]) -> float:
    """Give what 95 % stay below."""
    return sorted(times)[int(0.95 * len(times))]


if __name__ == "__main__":
    main()
