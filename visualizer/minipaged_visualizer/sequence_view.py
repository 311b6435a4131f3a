"""One sequence: its state, and its block table with the text that lies in the blocks.

With room, the table is drawn as in a textbook, one row an entry:

     A  ► running   The moon is a‹ lantern›
      0 →   7   4/4 ×3   Tell│ me│ of│ the
      1 →  12   3/4      moon│.│ is│‹ a›

In a deep trace a bar tells how much of the newest token's attention each block got.

Without, it is a strip of the same in one line, its newest blocks last. A token in ‹ › was chosen,
but has no keys and values yet: the next step writes them.
"""

from __future__ import annotations

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from minipaged_visualizer import palette
from minipaged_visualizer.block_chip import EIGHTHS, EMPTY
from minipaged_visualizer.captions import letters
from minipaged_visualizer.lines import line
from minipaged_visualizer.safe_text import fit, safe, tail
from minipaged_visualizer.sequence_state import Entry, SequenceView

_SIGNS = {"running": "►", "waiting": "○", "preempted": "‖", "swapped": "↓", "finished": "■"}
_MAX_EMPTY_SHOWN = 8
_SHARE_BAR = 6
_DOTS = "… "


def draw_heading(view: SequenceView, label_width: int) -> Text:
    """Draw the letter and the state."""
    style = palette.PLAIN if view.status == "running" else palette.DIM
    return line(
        (f" {letters(view.seq):<{label_width}} ", palette.owner_style(view.seq)),
        (f" {_SIGNS[view.status]} {view.status:<9} ", style),
    )


# --- a table --------------------------------------------------------------------------------------


def draw_table(view: SequenceView, heading: Text, num_shown: int, width: int) -> list[Text]:
    """Draw the heading with the text so far, and the `num_shown` newest entries of the table."""
    first_shown = _first_shown(view, num_shown)
    hidden = len(view.entries) - num_shown
    which = "first " if first_shown == hidden else ""
    about = f"{view.about}  " if view.about else ""
    note = f"{which}{hidden} block{'s' * (hidden > 1)} not shown  " if hidden > 0 else ""
    pending = f"‹{safe(view.pending)}›" if view.pending else ""
    room = width - heading.cell_len - cell_len(about + note + pending)
    text = tail(safe(view.output.lstrip(" ")), room)
    first = line(heading, (about + note, palette.DIM), text, (pending, palette.PENDING))
    shown = view.entries[first_shown : first_shown + num_shown]
    return [first, *(_row(entry, view, width) for entry in shown)]


def _first_shown(view: SequenceView, num_shown: int) -> int:
    """Give where a window on the table begins: at its end, if no more than one entry is empty.

    In a slab most of it may be: then it ends behind the first entry that has none, or no more room.
    """
    return max(min(_num_written(view) + 1, len(view.entries)) - num_shown, 0)


def _row(entry: Entry, view: SequenceView, width: int) -> Text:
    size = len(entry.tokens) + entry.num_empty
    filled = f"{len(entry.tokens)}/{size}".rjust(2 * len(str(size)) + 1)
    row = line(
        (f"{entry.logical:>4} → ", palette.DIM),
        (f" {_block_name(entry, view):>3} ", palette.owner_style(view.seq)),
        (f"  {filled} ", palette.DIM),
        (f"{_count(entry):<4} ", palette.BOLD),
    )
    if entry.share is not None:
        row.append_text(draw_share(entry.share, _SHARE_BAR)).append(" ")
    slots = _slots(entry, view)
    return row.append_text(_join(_last_slots(slots, "│", width - row.cell_len), "│"))


def draw_share(permille: int, width: int) -> Text:
    """Draw a share of attention as a bar of `width` columns and a number.

    >>> draw_share(500, 4).plain
    '██    50 %'
    """
    full, eighths = divmod(permille * width * 8 // 1000, 8)
    bar = ("█" * full + EIGHTHS[eighths].strip()).ljust(width)
    return line((bar, palette.HEAT), (f" {round(permille / 10):>3} %", palette.DIM))


# --- a strip --------------------------------------------------------------------------------------


def draw_strip(view: SequenceView, heading: Text, width: int, rows: int) -> list[Text]:
    """Draw a sequence in at most `rows` lines: as many of its newest blocks as fit."""
    room = width - heading.cell_len
    parts = _blocks_in_lines(view, room, rows) if view.entries else [_output(view, room)]
    indent = " " * heading.cell_len
    return [line(indent if number else heading, part) for number, part in enumerate(parts)]


def _output(view: SequenceView, width: int) -> Text:
    about = fit(f"{view.about}  " if view.about else "", width)
    return line((about, palette.DIM), tail(safe(view.output.lstrip(" ")), width - len(about)))


def _blocks_in_lines(view: SequenceView, width: int, rows: int) -> list[Text]:
    """Fill lines from the newest block backwards; dots tell that older ones are left out."""
    lines: list[list[Text]] = [[]]
    used, dots = 0, ""
    for entry in reversed(view.entries[: _num_written(view) + 1]):
        piece = _piece(entry, view, width - len(_DOTS))
        is_last_line = len(lines) == rows
        room = width - (len(_DOTS) if is_last_line and entry.logical > 0 else 0)
        if lines[0] and used + 1 + piece.cell_len > room:
            if is_last_line:
                dots = _DOTS
                break
            lines.insert(0, [])
            used = 0
        used += piece.cell_len + bool(lines[0])
        lines[0].insert(0, piece)
    drawn = [line(" ").join(pieces) for pieces in lines]
    return [line((dots, palette.DIM), drawn[0]), *drawn[1:]]


def _piece(entry: Entry, view: SequenceView, width: int) -> Text:
    """Draw `logical→physical` on the owner's colour, and the block's text behind it."""
    chip = line(
        (f"{entry.logical}→{_block_name(entry, view)}", palette.owner_style(view.seq)),
        (_count(entry), palette.BOLD),
    )
    slots = _slots(entry, view)
    if entry is view.entries[-1] and view.next_entry is None and view.pending:
        slots.append((f"‹{safe(view.pending)}›", palette.PENDING))
    if slots and not slots[0][0].startswith(" "):
        chip.append(" ")
    return chip.append_text(_join(_last_slots(slots, "", width - chip.cell_len), ""))


# --- what lies in a block -------------------------------------------------------------------------


def _num_written(view: SequenceView) -> int:
    return sum(bool(entry.tokens) for entry in view.entries)


def _block_name(entry: Entry, view: SequenceView) -> str:
    return f"s{entry.block}" if view.is_swapped else str(entry.block)


def _count(entry: Entry) -> str:
    return f"×{entry.ref_count}" if entry.ref_count > 1 else ""


def _slots(entry: Entry, view: SequenceView) -> list[tuple[str, Style]]:
    """Give a block's slots: its tokens, the one that comes next, and the empty ones."""
    first_new = len(entry.tokens) - entry.num_new
    slots = [
        (safe(token), palette.FRESH if number >= first_new else palette.PLAIN)
        for number, token in enumerate(entry.tokens)
    ]
    num_empty = entry.num_empty
    if view.pending and entry is view.next_entry:
        slots.append((f"‹{safe(view.pending)}›", palette.PENDING))
        num_empty -= 1
    if num_empty > _MAX_EMPTY_SHOWN:
        return [*slots, (f"{EMPTY} {num_empty} empty", palette.DIM)]
    return slots + [(EMPTY, palette.DIM)] * num_empty


def _last_slots(
    slots: list[tuple[str, Style]], separator: str, width: int
) -> list[tuple[str, Style]]:
    """Leave out the first slots, as many as it takes, so that the newest tokens are seen."""
    used = 0
    for number, (text, _) in enumerate(reversed(slots)):
        used += cell_len(text) + len(separator) * (number > 0)
        if used + len("…") * (number + 1 < len(slots)) > width:
            kept = (
                slots[len(slots) - number :] if number else [(fit(text, width - 1), slots[-1][1])]
            )
            return [("…", palette.DIM), *kept]
    return slots


def _join(slots: list[tuple[str, Style]], separator: str) -> Text:
    return line((separator, palette.DIM)).join(line(slot) for slot in slots)
