"""Views of a trace. They read events and nothing else: no engine, no torch, no model.

`MemoryPlayer` is the notebook widget. It is loaded when it is asked for, so that the terminal and
the pages need no anywidget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minipaged_visualizer.memory_player import MemoryPlayer

__all__ = ["MemoryPlayer", "export_html"]


def __getattr__(name: str) -> Any:
    if name == "MemoryPlayer":
        from minipaged_visualizer.memory_player import MemoryPlayer

        return MemoryPlayer
    if name == "export_html":
        from minipaged_visualizer.html_page import export_html

        return export_html
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
