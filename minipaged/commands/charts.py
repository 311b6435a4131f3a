"""Charts as a page that works offline, or as pictures, drawn by plotly where it is installed."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minipaged_visualizer.whole_file import write_whole

from minipaged.errors import ConfigError
from minipaged.lab.figures import Chart

_COLOURS = ("#4c78a8", "#f2a541", "#e45756", "#9d9da1", "#59a14f")
_LAYOUT = {"template": "plotly_white", "width": 860, "height": 460, "colorway": _COLOURS}


def write_page(path: Path, title: str, sections: Sequence[tuple[str, Sequence[Chart]]]) -> None:
    """Write one page with every chart; `sections` are (words above, charts).

    Raises:
        ConfigError: plotly is not installed.
        TraceError: The page can't be written, or would take the place of a recorded run.
    """
    parts = [f"<!doctype html><meta charset=utf-8><title>{html.escape(title)}</title>"]
    parts.append("<style>body{font:16px system-ui;margin:2em auto;max-width:54em}</style>")
    parts.append(f"<h1>{html.escape(title)}</h1>")
    has_plotly = False
    for words, charts in sections:
        parts += [f"<p>{html.escape(line)}</p>" for line in words.splitlines()]
        for chart in charts:
            drawn = _draw(chart)
            parts.append(drawn.to_html(full_html=False, include_plotlyjs=not has_plotly))
            has_plotly = True
    write_whole(path, "\n".join(parts))


def write_pictures(folder: Path, charts: Sequence[Chart]) -> list[Path]:
    """Write a PNG of each chart into a folder.

    Raises:
        ConfigError: plotly or kaleido is not installed.
    """
    _load_plotly()
    try:
        import kaleido  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
    except ImportError:
        raise ConfigError(
            "PNG needs kaleido, which is not installed: pip install kaleido, or take --html"
        ) from None
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, chart in enumerate(charts, 1):
        name = re.sub(r"[^a-z0-9]+", "-", chart.title.lower()).strip("-")
        paths.append(folder / f"{number:02}-{name}.png")
        _draw(chart).write_image(paths[-1])
    return paths


def _draw(chart: Chart) -> Any:
    graph = _load_plotly()
    figure = graph.Figure(layout=_LAYOUT)
    names = [str(x) for x in chart.x]
    for name, values in chart.series.items():
        if chart.kind == "lines":
            figure.add_scatter(x=names, y=list(values), name=name, mode="lines+markers")
        else:
            figure.add_bar(x=names, y=list(values), name=name)
    figure.update_layout(
        title=chart.title,
        barmode="stack" if chart.kind == "stacked" else "group",
        showlegend=True,
        xaxis={"title": chart.x_title, "type": "category"},
        yaxis={"title": chart.y_title, "rangemode": "tozero"},
    )
    return figure


def _load_plotly() -> Any:
    try:
        import plotly.graph_objects  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise ConfigError(
            'charts need plotly, which is not installed: pip install "minipaged[notebook]"'
        ) from None
    return plotly.graph_objects
