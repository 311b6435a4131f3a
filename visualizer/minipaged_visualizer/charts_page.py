"""The charts of a run as one HTML file. Plotly's code is in it: 5 MB, and nothing from outside."""

from __future__ import annotations

import html

from minipaged.memory.trace import Trace
from minipaged_visualizer.charts import memory_over_time, requests_gantt, sharing_saved
from minipaged_visualizer.safe_text import safe

# Plotly sets styles while it draws and makes images of charts; nothing may be loaded.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
html {{ background: #ffffff; color: #16181d; }}
h1 {{ font: 600 20px system-ui, sans-serif; margin: 16px 56px 0; }}
@media (prefers-color-scheme: dark) {{ html {{ filter: invert(0.92) hue-rotate(180deg); }} }}
</style>
</head>
<body>
<main>
<h1>{title}</h1>
{charts}
</main>
</body>
</html>
"""


def charts_page(trace: Trace) -> str:
    """Give a page with memory over time, what sharing saved, and the requests.

    Raises:
        MinipagedError: Plotly is not installed, or the trace contradicts itself.
    """
    figures = [memory_over_time(trace), sharing_saved(trace), requests_gantt(trace)]
    charts = [
        figure.to_html(full_html=False, include_plotlyjs=number == 0, div_id=f"chart{number}")
        for number, figure in enumerate(figures)
    ]
    title = html.escape(safe(trace.header.title or "Charts of a run"))
    return _PAGE.format(policy=_POLICY, title=title, charts="\n".join(charts))
