"""Each sequence: its state, and its block table with the text that lies in the blocks.

With room, a table is drawn as in a textbook, one row an entry:

     A  ► running
      0 →  7   The│ moon│ is│ a       4/4 ×3
      1 → 12   white│ orb│▁│▁         2/4

Without, it is a strip of the same in one line, its newest blocks last. A token in ‹ › was chosen,
but has no keys and values yet: the next step writes them.
"""

from __future__ import annotations

from rich.text import Text

from minipaged_visualizer import palette
from minipaged_visualizer.captions import letters
from minipaged_visualizer.pool_view import EMPTY
from minipaged_visualizer.safe_text import fit, safe, tail
from minipaged_visualizer.sequence_state import STATUSES, Entry, SequenceView, choose

STATUS_SIGNS = {
    "running": "►",
    "waiting": "○",
    "preempted": "‖",
    "swapped": "↓",
    "finished": "■",
}
_MAX_EMPTY_SHOWN = 8
_MIN_TABLE_WIDTH = 44


def draw_sequences(
    views: list[SequenceView], focus: int | None, width: int, rows: int
) -> list[Text]:
    """Draw the sequences in at most `rows` lines; a last line counts those that are not shown."""
    if not views:
        return [Text("no requests yet", palette.DIM)]
    limit = rows if len(views) <= rows else rows - 1
    shown = choose(views, limit)
    left_out = _left_out(views, shown)
    rows -= bool(left_out)
    living = [view for view in shown if view.entries]
    if width >= _MIN_TABLE_WIDTH and rows >= len(shown) + 2 * len(living):
        lines = _draw_tables(shown, focus, width, rows)
    else:
        lines = _draw_strips(shown, width, rows)
    return [*lines[:rows], *left_out]


def _left_out(views: list[SequenceView], shown: list[SequenceView]) -> list[Text]:
    kept = {view.seq for view in shown}
    counts = [
        f"{count} {status}"
        for status in STATUSES
        if (count := sum(v.status == status and v.seq not in kept for v in views))
    ]
    return [Text(f"not shown: {', '.join(counts)}", palette.DIM)] if counts else []


def _heading(view: SequenceView) -> Text:
    """Draw the letter and the state: 15 columns for one letter."""
    sign = STATUS_SIGNS.get(view.status, "?")
    heading = Text(no_wrap=True)
    heading.append(f" {letters(view.seq)} ", palette.owner_style(view.seq))
    style = palette.PLAIN if view.status == "running" else palette.DIM
    return heading.append(f" {sign} {view.status:<10}", style)


def _chip(entry: Entry, view: SequenceView) -> Text:
    """Draw `logical→physical` on the owner's colour, and how many share the block."""
    name = f"s{entry.block}" if view.is_swapped else str(entry.block)
    chip = Text(f"{entry.logical}→{name}", palette.owner_style(view.seq))
    return chip.append(f"×{entry.ref_count}", palette.PILL) if entry.ref_count > 1 else chip


# --- strips ---------------------------------------------------------------------------------------


def _draw_strips(views: list[SequenceView], width: int, rows: int) -> list[Text]:
    """Give each sequence an equal number of lines, one at least."""
    each = max(rows // len(views), 1)
    lines = []
    for view in views:
        heading = _heading(view)
        room = width - heading.cell_len
        strip = _strip(view, room, each)
        for number, part in enumerate(strip):
            start = heading if number == 0 else Text(" " * heading.cell_len)
            lines.append(start.append_text(part))
    return lines


def _strip(view: SequenceView, width: int, rows: int) -> list[Text]:
    """Fill at most `rows` lines with the newest blocks."""
    if not view.entries:
        return [_line_of_text(view, width)]
    lines = [Text(no_wrap=True)]
    pieces = [_piece(entry, view, width) for entry in view.entries]
    _append_pending(pieces[-1], view)
    for index, piece in enumerate(reversed(pieces)):
        space = 1 if lines[0] else 0
        reserved = 2 if len(lines) == rows and index < len(pieces) - 1 else 0
        if lines[0].cell_len + space + piece.cell_len + reserved > width and lines[0]:
            if len(lines) == rows:
                lines[0] = Text("… ", palette.DIM).append_text(lines[0])
                break
            lines.insert(0, Text(no_wrap=True))
            space = 0
        lines[0] = piece.append(" " * space).append_text(lines[0])
    return lines


def _piece(entry: Entry, view: SequenceView, width: int) -> Text:
    """Draw a chip and the text behind it."""
    piece = _chip(entry, view)
    _append_tokens(piece, entry, "")
    if entry.num_empty:
        piece.append(_empty_slots(entry.num_empty, ""), palette.DIM)
    if piece.cell_len > width:
        piece.truncate(width, overflow="ellipsis")
    return piece


def _line_of_text(view: SequenceView, width: int) -> Text:
    about = f"{view.about}  " if view.about else ""
    line = Text(fit(about, width), palette.DIM)
    return line.append(tail(safe(view.text), max(width - line.cell_len, 0)))


# --- tables ---------------------------------------------------------------------------------------


def _draw_tables(views: list[SequenceView], focus: int | None, width: int, rows: int) -> list[Text]:
    """Share the rows out: everyone has a heading; the focused one gets all its entries first."""
    room = rows - len(views)
    wanted = {view.seq: len(view.entries) for view in views}
    shares = _share_out(wanted, room, focus)
    spare = room - sum(shares.values())
    lines: list[Text] = []
    for view in views:
        lines.append(_table_heading(view, shares[view.seq], width))
        shown = view.entries[len(view.entries) - shares[view.seq] :]
        lines.extend(_row(entry, view, width) for entry in shown)
        if spare > 0 and view.entries:
            lines.append(Text())
            spare -= 1
    return lines


def _share_out(wanted: dict[int, int], room: int, focus: int | None) -> dict[int, int]:
    """Give each what it wants, as far as there is room, evenly; the focused one comes first.

    >>> _share_out({0: 5, 1: 1, 2: 5}, room=7, focus=None)
    {0: 3, 1: 1, 2: 3}
    """
    shares = dict.fromkeys(wanted, 0)
    if focus in shares:
        shares[focus] = min(wanted[focus], room)
        room -= shares[focus]
    while room > 0 and (hungry := [seq for seq in wanted if shares[seq] < wanted[seq]]):
        for seq in hungry[:room]:
            shares[seq] += 1
            room -= 1
    return shares


def _table_heading(view: SequenceView, num_shown: int, width: int) -> Text:
    heading = _heading(view)
    hidden = len(view.entries) - num_shown
    if view.about:
        heading.append(f"{view.about}  ", palette.DIM)
    if hidden > 0:
        heading.append(f"{hidden} earlier block{'s' * (hidden > 1)} not shown  ", palette.DIM)
    room = width - heading.cell_len
    if room > 0 and (not view.entries or hidden > 0):
        heading.append(tail(safe(view.text), room), palette.DIM)
    heading.truncate(width)
    return heading


def _row(entry: Entry, view: SequenceView, width: int) -> Text:
    row = Text(f"{entry.logical:>4} → ", palette.DIM, no_wrap=True)
    name = f"s{entry.block}" if view.is_swapped else str(entry.block)
    row.append(f" {name:>3} ", palette.owner_style(view.seq)).append(" ")
    _append_tokens(row, entry, "│")
    is_last = entry is view.entries[-1]
    if is_last:
        _append_pending(row, view)
    if entry.num_empty:
        row.append("│" if entry.tokens else "", palette.DIM)
        row.append(_empty_slots(entry.num_empty, "│"), palette.DIM)
    filled = f"  {len(entry.tokens)}/{len(entry.tokens) + entry.num_empty}"
    count = f"×{entry.ref_count}" if entry.ref_count > 1 else ""
    row.truncate(width - len(filled) - 4, overflow="ellipsis", pad=True)
    row.append(f"{filled} ", palette.DIM)
    return row.append(count, palette.PILL)


# --- tokens ---------------------------------------------------------------------------------------


def _append_tokens(line: Text, entry: Entry, separator: str) -> None:
    first_new = len(entry.tokens) - entry.num_new
    for number, token in enumerate(entry.tokens):
        if number and separator:
            line.append(separator, palette.DIM)
        line.append(safe(token), palette.FRESH if number >= first_new else palette.PLAIN)


def _append_pending(line: Text, view: SequenceView) -> None:
    if view.pending:
        line.append(f"‹{safe(view.pending[-1])}›", palette.PENDING)


def _empty_slots(count: int, separator: str) -> str:
    if count > _MAX_EMPTY_SHOWN:
        return f"{EMPTY * 3} {count} empty"
    return separator.join(EMPTY * count)
