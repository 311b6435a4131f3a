"""Views of a trace. They read events and nothing else: no engine, no torch, no model.

`MemoryPlayer` is the notebook widget, `LiveSession` one around a running engine. They are loaded
when they are asked for, so that the terminal and the pages need no anywidget.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minipaged_visualizer.html_page import export_html
    from minipaged_visualizer.kernel_microscope import KernelMicroscope
    from minipaged_visualizer.live_session import LiveSession
    from minipaged_visualizer.memory_player import MemoryPlayer
    from minipaged_visualizer.side_by_side import SideBySide

__all__ = ["KernelMicroscope", "LiveSession", "MemoryPlayer", "SideBySide", "export_html"]
_HOMES = {
    "KernelMicroscope": "kernel_microscope",
    "LiveSession": "live_session",
    "MemoryPlayer": "memory_player",
    "SideBySide": "side_by_side",
    "export_html": "html_page",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
