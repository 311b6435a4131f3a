"""Draw docs/watch.svg, README's picture of the terminal view, from one step of a trace.

minipaged watch --trace run.jsonl
python docs/picture.py run.jsonl --step 5
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

from minipaged_visualizer.options import Options
from minipaged_visualizer.terminal import Screen
from minipaged_visualizer.timeline import Position, Timeline
from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME

from minipaged.memory.trace import Trace

# Rich's own format names a font on the web; a picture in a README must not ask for one.
CODE_FORMAT = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">
<style>
.{unique_id}-matrix {{
    font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
    font-size: {char_height}px;
    line-height: {line_height}px;
    white-space: pre;
}}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def draw(trace: Trace, place: Position, options: Options, width: int, height: int) -> str:
    """Give the terminal view of a moment as SVG."""
    timeline = Timeline(trace.header)
    for step in trace.all_steps():
        timeline.append(step)
    timeline.go_to(place)
    console = Console(
        width=width,
        height=height,
        record=True,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
    )
    console.print(Screen(timeline, options))
    return console.export_svg(
        title="minipaged watch",
        theme=SVG_EXPORT_THEME,
        code_format=CODE_FORMAT,
        unique_id="watch",
    )


def main() -> None:
    """Read the arguments and write the picture."""
    parser = argparse.ArgumentParser(description="Draw README's picture from a trace.")
    parser.add_argument("trace", type=Path)
    parser.add_argument("--step", type=int, required=True)
    parser.add_argument("--width", type=int, default=112)
    parser.add_argument("--height", type=int, default=32)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("watch.svg"))
    arguments = parser.parse_args()
    trace = Trace.load(arguments.trace)
    step = min(max(arguments.step, 0), len(trace.steps) - 1)
    place = Position(step, len(trace.steps[step].events))
    picture = draw(trace, place, Options(), arguments.width, arguments.height)
    arguments.output.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
