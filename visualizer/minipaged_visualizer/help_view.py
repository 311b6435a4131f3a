"""The page behind `?`: the keys, and what the signs in the pictures mean."""

from __future__ import annotations

from rich.text import Text

from minipaged_visualizer import palette
from minipaged_visualizer.lines import line

_KEYS = (
    ("space", "pause, or run"),
    ("← →  , .", "one step back, one step forward"),
    ("n  p", "next, previous event inside a step"),
    ("Home End", "to the start, to the newest step"),
    ("+  -", "faster, slower"),
    ("Tab", "show another sequence in full"),
    ("b", "big letters, for the back row"),
    ("?  q", "close this page; quit"),
)
_SIGNS = (
    ("A", "a block of A, coloured as far as it is filled"),
    ("▁", "an empty slot: reserved for the next tokens, or wasted"),
    ("AB×2", "a block that A and B share: nobody writes to it"),
    ("░", "cached: free, but who has the same prefix can share it"),
    ("+ =", "just taken from the free blocks; just shared"),
    ("« »", "copied from and to: copy-on-write"),
    ("! -", "evicted, its prefix is forgotten; given back"),
    ("↓ ↑", "moved out to the swap pool; moved back in"),
    ("3→12", "logical block 3 of a sequence is physical block 12"),
    ("█▌ 31 %", "deep traces: how much the newest token looked at this block"),
    ("‹ so›", "chosen, but not in the cache yet: the next step writes it"),
)


def draw_help() -> list[Text]:
    """Draw keys and signs."""
    lines = [line(("Keys", palette.BOLD))]
    lines += [_row(name, meaning) for name, meaning in _KEYS]
    lines += [line(), line(("Signs", palette.BOLD))]
    return lines + [_row(name, meaning) for name, meaning in _SIGNS]


def _row(name: str, meaning: str) -> Text:
    return line((f"  {name:<10}", palette.BOLD), meaning)
