"""A view as one HTML file that plays anywhere: no network, no server, nothing else beside it.

The page may run one script and use one style sheet, those that are in it: its policy names their
hashes, and forbids everything else. The data lies in it as JSON in which no character can end an
element, and the script shows its texts as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from pathlib import Path
from typing import Any

from minipaged.errors import TraceError
from minipaged.memory.replay import IntegrityError, Replay
from minipaged.memory.trace import Trace
from minipaged_visualizer.browser_module import page_script, style
from minipaged_visualizer.payload import trace_payload
from minipaged_visualizer.safe_text import safe
from minipaged_visualizer.whole_file import write_whole

_PAGE_STYLE = """
html { color-scheme: light dark; background: light-dark(#ffffff, #14161b); }
body { margin: 0; }
main > .minipaged { min-height: 100vh; }
main > .minipaged .mp-bottom { order: 3; position: sticky; bottom: 0; z-index: 3; padding: 8px 0;
  background: var(--mp-page); border-top: 1px solid var(--mp-line); }
"""
MAX_CHARACTERS = 256 * 2**20  # of data; JavaScript has no text of twice as many
_UNSAFE = "<>&\u2028\u2029"
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main><noscript>This page needs its own script: please allow it.</noscript></main>
<script type="application/json" id="payload">{payload}</script>
<script>{script}</script>
</body>
</html>
"""


def export_html(trace: Trace | str | Path, path: str | Path) -> Path:
    """Write a trace, or a trace file, as a page that stands alone; give the page's path.

    Raises:
        TraceError: The trace is malformed or contradicts itself, or the page can't be written.
    """
    text = to_html(trace if isinstance(trace, Trace) else Trace.load(trace))
    return write_page(path, text)


def write_page(path: str | Path, text: str) -> Path:
    """Write a page in full or not at all, and give its path.

    Raises:
        TraceError: It can't be written, or would take the place of a recorded run.
    """
    write_whole(Path(path), text)
    return Path(path)


def to_html(trace: Trace) -> str:
    """Give a page that plays a trace.

    Raises:
        IntegrityError: The trace contradicts itself; the message names the place.
    """
    check(trace)
    payload = trace_payload(trace.header, trace.all_steps())
    return make_page(trace.header.title or "A run of PagedAttention", payload)


def make_page(title: str, payload: Any, entry: str = "page", sheets: tuple[str, ...] = ()) -> str:
    """Give a page whose script is `entry` of `static/`; `payload` is the element of that id.

    Args:
        title: Any text.
        payload: What JSON can hold, of any texts.
        entry: The stem of a module that exports `start(document)`.
        sheets: Stems of style sheets beside the one that all views share.

    Raises:
        TraceError: The page would be larger than what browsers open.
    """
    styles, script = style(*sheets) + _PAGE_STYLE, page_script(entry)
    inert = _inert_json(payload)
    if len(inert) > MAX_CHARACTERS:
        raise TraceError(
            f"the page would have {len(inert) / 2**20:.0f} MiB, and browsers open "
            f"{MAX_CHARACTERS // 2**20}; minipaged watch --replay shows such a trace"
        )
    return _PAGE.format(
        policy=_policy(script, styles),
        title=html.escape(safe(title)),
        style=styles,
        payload=inert,
        script=script,
    )


def check(trace: Trace) -> None:
    """Replay a trace, so that what is wrong with it is said here and not in the browser.

    Raises:
        IntegrityError: The trace contradicts itself; the message names the place.
    """
    header = trace.header
    state = Replay(header.num_blocks, header.block_size, header.num_swap_blocks)
    for step in trace.all_steps():
        for index, event in enumerate(step.events):
            try:
                state.apply(event)
            except IntegrityError as e:
                raise IntegrityError(f"step {step.step}, event {index} ({event.kind}): {e}") from e


def _policy(script: str, styles: str) -> str:
    allowed = {
        "default-src": "'none'",
        "script-src": _source(script),
        "style-src": _source(styles),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{what} {sources}" for what, sources in allowed.items())


def _source(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _inert_json(value: Any) -> str:
    """Give JSON that ends no element, whatever texts are in it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text = text.encode(errors="replace").decode()
    for character in _UNSAFE:
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
