"""A trace whose every text is hostile: it must be shown as text, and do nothing."""

from __future__ import annotations

from scenes import Script

from minipaged.memory.trace import Trace

TOKENS = [
    "</script><script>alert(1)</script>",
    "<b>bold</b>",
    '" onload="alert(2)',
    "'&amp;\"",
    "🌊🏴‍☠️",
    "\u202eevil",
    "مرحبا",
    "\x1b[31m\x00\x07",
    "]]>",
    "$x$ %{y}",
    "<img src=x onerror=alert(3)>",
    "{{7*7}}",
]


def hostile_trace() -> Trace:
    """Give a run with a copy-on-write whose words, names, notes and title are `TOKENS`."""
    script = Script(num_blocks=16)
    object.__setattr__(script.trace.header, "title", TOKENS[0])
    script.trace.header.model["name"] = TOKENS[10]
    script.request(0, TOKENS[:6], TOKENS[0], samples=2)
    script.admit(0)
    script.step(TOKENS[1])
    script.request(2, TOKENS[6:], TOKENS[5])
    script.admit(2)
    for note in TOKENS[:3]:
        script.step(note)
    script.finish(0, TOKENS[0])
    script.step()
    return script.trace
