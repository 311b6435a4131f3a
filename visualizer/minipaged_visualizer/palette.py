"""Which colour and hatching stand for which sequence, on dark and light terminals.

The hues are those of Okabe and Ito, which most colour-blind people can tell apart. A filled cell is
reversed video in the owner's colour: without colours it stays reversed, and its letter tells the
owner. After seven sequences the hues begin again with another hatching.
"""

from __future__ import annotations

from rich.style import Style

_BLACK, _WHITE = "#000000", "#ffffff"
_HUES = (
    ("#e69f00", _BLACK),  # orange
    ("#56b4e9", _BLACK),  # sky blue
    ("#009e73", _BLACK),  # bluish green
    ("#f0e442", _BLACK),  # yellow
    ("#cc79a7", _BLACK),  # reddish purple
    ("#0072b2", _WHITE),  # blue
    ("#d55e00", _BLACK),  # vermillion
)
_OWNERS = tuple(Style(color=hue, bgcolor=ink, reverse=True) for hue, ink in _HUES)
_BARS = tuple(Style(color=hue) for hue, _ in _HUES)
_HATCHINGS = (" ", "╱", "╲", "╳")

PLAIN = Style()
DIM = Style(dim=True)
BOLD = Style(bold=True)
PILL = Style(color="#a8a8a8", bgcolor=_BLACK, reverse=True)
FOCUS = Style(bold=True, underline=True)
CHANGED = Style(reverse=True, bold=True)
EVICTED = Style(color="#d55e00", bgcolor=_BLACK, reverse=True, bold=True)
PENDING = Style(italic=True, dim=True)
FRESH = Style(bold=True, underline=True)
PART = Style(underline=True)
HEAT = Style(color="#d55e00")
ALERT = Style(color="#d55e00", bold=True)


def owner_style(seq: int) -> Style:
    """Give the style of what a sequence holds: text on the owner's colour."""
    return _OWNERS[seq % len(_OWNERS)]


def hue(seq: int) -> tuple[str, str]:
    """Give the owner's colour, and that of text on it, as #rrggbb."""
    return _HUES[seq % len(_HUES)]


def hatch_number(seq: int) -> int:
    """Give which hatching a sequence has: 0 is none."""
    return seq // len(_HUES) % len(_HATCHINGS)


def bar_style(seq: int) -> Style:
    """Give the owner's colour as a foreground, for bars that continue a filled cell."""
    return _BARS[seq % len(_BARS)]


def hatching(seq: int) -> str:
    """Give the character that fills the cells of a sequence beside its letter."""
    return _HATCHINGS[hatch_number(seq)]
