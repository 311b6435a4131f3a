"""Two traces on one page with one scrubber: what the widget `SideBySide` shows, in one file."""

from __future__ import annotations

from typing import Any

from minipaged.errors import TraceError
from minipaged.memory.trace import Trace
from minipaged_visualizer.html_page import check, make_page
from minipaged_visualizer.payload import header_payload, plain_step

ENTRY = "side_by_side"


def side_by_side_html(left: Trace, right: Trace) -> str:
    """Give a page that plays both.

    Raises:
        IntegrityError: One of them contradicts itself; the message names it and the place.
        TraceError: One of them has a number that is too large for a browser.
    """
    payload = side_by_side_payload(left, right)
    title = payload["title"] or "Two runs, side by side"
    return make_page(title, payload, ENTRY, (ENTRY,))


def side_by_side_payload(left: Trace, right: Trace) -> dict[str, Any]:
    """Give what a browser needs of both, as plain JSON values.

    Raises:
        IntegrityError: One of them contradicts itself; the message names it and the place.
        TraceError: One of them has a number that is too large for a browser.
    """
    title = left.header.title if left.header.title == right.header.title else ""
    payload: dict[str, Any] = {"title": title}
    for name, trace in {"left": left, "right": right}.items():
        try:
            check(trace)
            payload[name] = _payload(trace)
        except TraceError as e:
            raise type(e)(f"the {name} one: {e}") from e
    return payload


def _payload(trace: Trace) -> dict[str, Any]:
    """Give a trace without captions: this view has words of its own."""
    rows = [plain_step(step) for step in trace.all_steps()]
    return {"header": header_payload(trace.header)["header"], "steps": rows}
