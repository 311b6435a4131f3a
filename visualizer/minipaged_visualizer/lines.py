"""Small pieces that all views draw with: a line is a rich Text that never wraps."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from rich.text import Text

from minipaged_visualizer import palette


def line(*parts: str | tuple[str, Style] | Text) -> Text:
    """Put parts into one line: plain text, (text, style), or lines made before."""
    return Text.assemble(*parts, no_wrap=True, end="")


def rule(title: str, about: str, width: int) -> Text:
    """Head a section: its title, a few words if they fit, and a rule to the end of the line."""
    shown = f"  {about}" if about and len(title) + len(about) + 4 < width else ""
    dashes = "─" * max(width - len(title) - len(shown) - 1, 0)
    return line((title, palette.BOLD), (shown, palette.DIM), (f" {dashes}", palette.DIM))


def columns(left: Sequence[Text], right: Sequence[Text], left_width: int, gap: int) -> list[Text]:
    """Put two blocks of lines side by side."""
    rows = []
    for number in range(max(len(left), len(right))):
        row = left[number].copy() if number < len(left) else line()
        row.truncate(left_width + gap, pad=True)
        rows.append(row.append_text(right[number]) if number < len(right) else row)
    return rows


def padded(lines: Sequence[Text], rows: int) -> list[Text]:
    """Give exactly `rows` lines: cut, or filled up with empty ones."""
    return [*lines[:rows], *(line() for _ in range(rows - len(lines)))]
