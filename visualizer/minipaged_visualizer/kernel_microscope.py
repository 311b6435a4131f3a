"""A kernel run to step through, program by program: the microscope, in a notebook or as a page.

    KernelMicroscope("paged_decode")                  # a recording that comes with the package
    KernelMicroscope("mine.jsonl").to_html("mine.html")

Recordings are made where Triton is (`minipaged_kernels.microscope.magnify`); here they are shown.
"""

from __future__ import annotations

from pathlib import Path

import anywidget
import traitlets

from minipaged_visualizer.browser_module import style, widget_module
from minipaged_visualizer.html_page import write_page
from minipaged_visualizer.microscope_page import (
    ENTRY,
    microscope_page,
    microscope_payload,
    recording_of,
)


class KernelMicroscope(anywidget.AnyWidget):
    """Steps through a kernel run in a notebook.

    Args:
        source: The name of a recording that comes with the package, a file, a KernelRecording, or
            what makes one by `kernel_recording()`.

    Raises:
        TraceError: There is no such recording, or the file is malformed.
    """

    _esm = widget_module(ENTRY)
    _css = style(ENTRY)
    _payload = traitlets.Dict().tag(sync=True)

    def __init__(self, source: object) -> None:
        self._recording = recording_of(source)
        super().__init__(_payload=microscope_payload(self._recording))

    def to_html(self, path: str | Path | None = None) -> str:
        """Give the run as a page that stands alone; with a path, write it there, too.

        Raises:
            TraceError: It can't be written.
        """
        text = microscope_page(self._recording)
        if path is not None:
            write_page(path, text)
        return text
