"""How one block is drawn.

used    the owner's letter on the owner's colour; as wide as it is filled, then low lines
shared  the owners' letters, each on its colour, and the reference count: ABC×3
cached  free, but its content can still be found: a light shade
free    a dot
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from rich.style import Style
from rich.text import Text

from minipaged_visualizer import palette
from minipaged_visualizer.captions import letters
from minipaged_visualizer.lines import line

FREE, CACHED, EMPTY, MIXED = "·", "░", "▁", "&"
EIGHTHS = " ▏▎▍▌▋▊▉"
_QUIET = ("=", "-")


class Cell(NamedTuple):
    """One block as it is drawn; `filled` of its `size` slots hold a token."""

    block: int
    owners: tuple[int, ...]
    filled: int
    size: int
    is_cached: bool
    sign: str


def draw_chip(cell: Cell, width: int) -> Text:
    """Draw what a block holds in exactly `width` columns."""
    if not cell.owners:
        return line((CACHED * width if cell.is_cached else FREE.ljust(width), palette.DIM))
    full, eighths = divmod(cell.filled * width * 8 // cell.size, 8)
    label = _label(cell, width)
    columns = label[:full] + [
        (character, style + palette.PART) for character, style in label[full:]
    ]
    columns += [_filled(cell)] * (full - len(columns))
    if eighths and len(columns) == full:
        columns.append((EIGHTHS[eighths], palette.bar_style(cell.owners[0])))
    columns += [(EMPTY, palette.DIM)] * (width - len(columns))
    runs = groupby(columns, key=itemgetter(1))
    return line(*(("".join(character for character, _ in run), style) for style, run in runs))


def _filled(cell: Cell) -> tuple[str, Style]:
    """Give what a filled column shows that has no part of the label."""
    if len(cell.owners) > 1:
        return " ", palette.PILL
    return palette.hatching(cell.owners[0]), palette.owner_style(cell.owners[0])


def _label(cell: Cell, width: int) -> list[tuple[str, Style]]:
    """Name as many owners as fit, all or one or none, and then how many there are."""
    if len(cell.owners) == 1:
        return _names(cell.owners)[:width]
    count = [(character, palette.PILL) for character in f"×{len(cell.owners)}"]
    for named in (cell.owners, cell.owners[:1], ()):
        label = _names(named) + count
        if len(label) <= width:
            return label
    return [(character, palette.PILL) for character in MIXED * width]


def _names(owners: Iterable[int]) -> list[tuple[str, Style]]:
    return [(letter, palette.owner_style(owner)) for owner in owners for letter in letters(owner)]


def draw_letter(cells: Sequence[Cell]) -> tuple[str, Style]:
    """Draw one block, or several, as one character: a sign, an owner, how many, or a state."""
    sign = next((cell.sign for cell in cells if cell.sign), "")
    owners = {owner for cell in cells for owner in cell.owners}
    if sign:
        return sign, sign_style(sign)
    if not owners:
        return (CACHED if any(cell.is_cached for cell in cells) else FREE), palette.DIM
    if len(owners) == 1:
        owner = owners.pop()
        is_full = all(cell.filled == cell.size for cell in cells)
        style = palette.owner_style(owner)
        return letters(owner)[-1], style if is_full else style + palette.PART
    is_one = len(cells) == 1 and len(owners) < 10
    return (str(len(owners)) if is_one else MIXED), palette.PILL


def sign_style(sign: str) -> Style:
    """Flash what was taken, copied, moved or evicted; sharing and giving back stay quiet."""
    if sign in _QUIET:
        return palette.BOLD
    return palette.EVICTED if sign == "!" else palette.CHANGED
