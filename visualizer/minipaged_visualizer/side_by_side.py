"""The notebook widget that plays two traces side by side, with one scrubber.

It takes what `MemoryPlayer` takes: files, Traces, or LLMs with trace=True.

    view = SideBySide("slabs.jsonl", "paged.jsonl")
    view.to_html("why_paging.html")  # the same as a page that opens anywhere
"""

from __future__ import annotations

from pathlib import Path

import anywidget
import traitlets

from minipaged_visualizer.browser_module import style, widget_module
from minipaged_visualizer.given_trace import trace_of
from minipaged_visualizer.html_page import write_page
from minipaged_visualizer.side_by_side_page import (
    ENTRY,
    side_by_side_html,
    side_by_side_payload,
)


class SideBySide(anywidget.AnyWidget):
    """Plays two traces in a notebook, step by step: who runs, who waits, and what is wasted.

    Args:
        left: A path, a Trace, or what has one in its attribute `trace`, as an LLM does.
        right: Another one, of any length and pool.

    Raises:
        TraceError: A file is no trace, malformed or contradicts itself, or an LLM keeps no trace.
    """

    _esm = widget_module(ENTRY)
    _css = style(ENTRY)
    _payload = traitlets.Dict().tag(sync=True)

    def __init__(self, left: object, right: object) -> None:
        self._traces = trace_of(left), trace_of(right)
        super().__init__(_payload=side_by_side_payload(*self._traces))

    def to_html(self, path: str | Path | None = None) -> str:
        """Give both as a page that stands alone; with a path, write it there, too.

        Raises:
            TraceError: It can't be written.
        """
        text = side_by_side_html(*self._traces)
        if path is not None:
            write_page(path, text)
        return text
