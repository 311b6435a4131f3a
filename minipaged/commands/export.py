"""`minipaged export`: a trace as a page, a picture, charts, or a timeline for Perfetto.

A recording of a kernel becomes a page, too; those that come with minipaged are known by name.
The file is there in full or not at all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from minipaged_visualizer.whole_file import write_whole

from minipaged.errors import ConfigError, TraceError
from minipaged.memory.events import short
from minipaged.memory.kernel_recording import is_recording
from minipaged.memory.trace import Trace

FORMATS = ("html", "perfetto", "svg", "gantt", "charts")
LARGE_PAGE = 45_000_000  # bytes: what a browser opens in about 3 s
_BY_ENDING = {".html": "html", ".htm": "html", ".json": "perfetto", ".svg": "svg"}


def export(
    source: Path,
    output: Path,
    format_name: str | None = None,
    step: int | None = None,
    event: int | None = None,
    beside: Path | None = None,
) -> None:
    """Draw a trace or a recording into `output`; without a format its ending tells which.

    Raises:
        ConfigError: There is no such format, or a moment is given for what shows the whole run, or
            a second trace for what shows one.
        TraceError: The trace can't be read, or the output can't be written.
    """
    name = _choose_format(output, format_name)
    _check_options(name, step, event, beside)
    for path in filter(None, (source, beside)):
        if output.exists() and path.exists() and output.samefile(path):
            raise TraceError(f"{output}: this is the trace itself: it is not overwritten")
    text = _draw(source, name, step, event) if beside is None else _draw_beside(source, beside)
    write_whole(output, text)
    size = len(text.encode())
    print(f"{output}: {name}, {size / 1024:.0f} KiB")
    if name == "html" and size > LARGE_PAGE:
        sys.stderr.write(
            f"minipaged: a browser takes about {size / 15e6:.0f} s to open {size / 1e6:.0f} MB; "
            f"minipaged watch --replay {source} shows the trace at once\n"
        )


def _check_options(name: str, step: int | None, event: int | None, beside: Path | None) -> None:
    if (step, event) != (None, None) and name != "svg":
        raise ConfigError(f"--step and --event are for --format svg: {name} shows the whole run")
    if event is not None and step is None:
        raise ConfigError("--event counts the events of a step: give --step too")
    if beside is not None and name != "html":
        raise ConfigError(f"--beside is for --format html: {name} shows one trace")


def _draw(source: Path, name: str, step: int | None, event: int | None) -> str:
    if _is_kernel(source):
        return _kernel_page(source, name)
    return _drawing(name, step, event)(Trace.load(source))


def _draw_beside(left: Path, right: Path) -> str:
    from minipaged_visualizer.side_by_side_page import side_by_side_html

    for path in (left, right):
        if _is_kernel(path):
            raise ConfigError(f"--beside is for traces: {path} is a recording of a kernel")
    return side_by_side_html(Trace.load(left), Trace.load(right))


def _kernel_page(source: Path, format_name: str) -> str:
    """Give the page of a kernel's recording, a file or one that comes with minipaged."""
    from minipaged_visualizer.microscope_page import microscope_page, recording_of

    if format_name != "html":
        raise ConfigError(f"a recording of a kernel becomes html, not {format_name}")
    return microscope_page(recording_of(source if source.exists() else str(source)))


def _is_kernel(source: Path) -> bool:
    """Tell whether this is a recording of a kernel; a file goes before one that is built in."""
    from minipaged_visualizer.microscope_page import recording_names

    return is_recording(source) if source.exists() else str(source) in recording_names()


def _choose_format(output: Path, name: str | None) -> str:
    if name is None:
        name = _BY_ENDING.get(output.suffix.lower())
        if name is None:
            raise ConfigError(
                f"{output}: its ending tells no format; give --format {_one_of(FORMATS)}"
            )
    if name not in FORMATS:
        raise ConfigError(f"format is {_one_of(FORMATS)}, not {short(name)}")
    return name


def _one_of(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _drawing(name: str, step: int | None, event: int | None) -> Callable[[Trace], str]:
    """Give what draws a format; each is imported alone, as some are large."""
    if name == "html":
        from minipaged_visualizer.html_page import to_html

        return to_html
    if name == "perfetto":
        from minipaged_visualizer.perfetto import to_perfetto

        return to_perfetto
    if name == "gantt":
        from minipaged_visualizer.svg_gantt import gantt

        return gantt
    if name == "charts":
        from minipaged_visualizer.charts_page import charts_page

        return charts_page
    from minipaged_visualizer.svg_still import still

    return lambda trace: still(trace, step, event)
