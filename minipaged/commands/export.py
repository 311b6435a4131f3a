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
    if (step, event) != (None, None) and name != "svg":
        raise ConfigError(f"--step and --event are for --format svg: {name} shows the whole run")
    if event is not None and step is None:
        raise ConfigError("--event counts the events of a step: give --step too")
    if beside is not None and name != "html":
        raise ConfigError(f"--beside is for --format html: {name} shows one trace")
    for path in (source, beside):
        if path is not None and output.exists() and path.exists() and output.samefile(path):
            raise TraceError(f"{output}: this is the trace itself: it is not overwritten")
    draw = _drawing(name, step, event) if beside is None else _drawing_beside(beside)
    for path in (source, beside) if beside is not None else ():
        if _is_kernel(path):
            raise ConfigError(f"--beside is for traces: {path} is a recording of a kernel")
    text = _kernel_page(source, name) or draw(Trace.load(source))
    write_whole(output, text)
    size = len(text.encode())
    print(f"{output}: {name}, {size / 1024:.0f} KiB")
    if name == "html" and size > LARGE_PAGE:
        sys.stderr.write(
            f"minipaged: a browser takes about {size / 15e6:.0f} s to open {size / 1e6:.0f} MB; "
            f"minipaged watch --replay {source} shows the trace at once\n"
        )


def _kernel_page(source: Path, format_name: str) -> str | None:
    """Give the page of a kernel's recording, a file or one that comes with minipaged, if it is one.

    Raises:
        ConfigError: Another format is asked for.
    """
    from minipaged_visualizer.microscope_page import microscope_page, recording_of

    if not _is_kernel(source):
        return None
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


def _drawing_beside(beside: Path) -> Callable[[Trace], str]:
    """Give what draws a trace on the left of another one."""
    from minipaged_visualizer.side_by_side_page import side_by_side_html

    return lambda trace: side_by_side_html(trace, Trace.load(beside))


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
