"""The page behind `?`: the keys, and what the signs in the pictures mean."""

from __future__ import annotations

from rich.text import Text

from minipaged_visualizer import palette

_KEYS = (
    ("space", "pause, or run"),
    ("→  .", "one step forward"),
    ("←  ,", "one step back"),
    ("n  p", "next, previous event inside a step"),
    ("Home End", "to the start, to the newest step"),
    ("+  -", "faster, slower"),
    ("Tab", "show another sequence in full"),
    ("?", "close this page"),
    ("q", "quit"),
)
_SIGNS = (
    ("A··", "a block of sequence A, filled as far as it is coloured; ▁ are empty slots"),
    ("AB×2", "a block that A and B share: nobody writes to it"),
    ("░", "free, but its tokens can still be found: a prompt that begins so shares it"),
    ("+ =", "just taken, just shared"),
    ("« »", "copied from, copied to: copy-on-write"),
    ("! -", "evicted: its tokens can't be found any more; given back"),
    ("↓ ↑", "moved out to the swap pool, moved back in"),
    ("‹ so›", "chosen, but not in the cache yet: the next step writes it"),
)


def draw_help(width: int) -> list[Text]:
    """Draw keys and signs."""
    lines = [Text("Keys", palette.BOLD)]
    lines += [_row(name, meaning) for name, meaning in _KEYS]
    lines += [Text(), Text("Signs", palette.BOLD)]
    return lines + [_row(name, meaning) for name, meaning in _SIGNS]


def _row(name: str, meaning: str) -> Text:
    return Text(f"  {name:<10}", palette.BOLD).append(meaning, palette.PLAIN)
