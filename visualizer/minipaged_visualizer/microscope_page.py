"""The kernel microscope as a page, and the recordings that come with the package.

The recordings are made by kernels/make_recordings.py; to look at them needs no Triton, no torch and
no notebook.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from minipaged.errors import TraceError
from minipaged.memory.events import short
from minipaged.memory.kernel_recording import KernelRecording, parse, to_json
from minipaged_visualizer.html_page import make_page

ENTRY = "microscope"


def recording_names() -> list[str]:
    """Give the names of the recordings that come with the package.

    >>> "paged_decode" in recording_names()
    True
    """
    paths = (Path(file.name) for file in _folder().iterdir())
    return sorted(path.stem for path in paths if path.suffix == ".jsonl")


def recording_of(source: object) -> KernelRecording:
    """Give the recording that a name, a path or an object stands for.

    Raises:
        TraceError: There is none, it is malformed, or no kernel ran.
    """
    if isinstance(source, str) and source in recording_names():
        return parse(_folder().joinpath(f"{source}.jsonl").read_bytes())
    if isinstance(source, str | Path):
        if not Path(source).exists():
            raise TraceError(
                f"{short(str(source))} is neither a file nor one of {', '.join(recording_names())}"
            )
        return KernelRecording.load(source)
    make = getattr(source, "kernel_recording", None)
    recording = make() if callable(make) else source
    if not isinstance(recording, KernelRecording):
        raise TraceError("nothing to look at: give a recording of a kernel, its file or its name")
    if not recording.programs:
        raise TraceError("nothing to look at: no kernel ran while it was recorded")
    return recording


def microscope_page(recording: KernelRecording) -> str:
    """Give a page that steps through a recording."""
    title = recording.title or "A kernel under the microscope"
    return make_page(title, microscope_payload(recording), ENTRY, (ENTRY,))


def microscope_payload(recording: KernelRecording) -> dict[str, Any]:
    """Give a recording as plain JSON values."""
    return to_json(recording)


def _folder() -> Any:
    return resources.files(__package__).joinpath("recordings")
