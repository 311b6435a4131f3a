"""All sequences that fit: a table for each, or one focused table among strips, or strips alone."""

from __future__ import annotations

from rich.text import Text

from minipaged.memory.replay import Replay
from minipaged_visualizer import palette
from minipaged_visualizer.captions import letters
from minipaged_visualizer.changes import Changes
from minipaged_visualizer.lines import columns, line
from minipaged_visualizer.sequence_state import SequenceView, choose_sequences, view_sequence
from minipaged_visualizer.sequence_view import draw_heading, draw_strip, draw_table

_MIN_ENTRIES = 2
_COLUMN_WIDTH, _GAP = 56, 3


def draw_sequences(
    state: Replay, changes: Changes, focus: int | None, width: int, rows: int
) -> list[Text]:
    """Draw the sequences in at most `rows` lines; a last line counts those that are not shown."""
    if not state.sequences:
        return [line(("no requests yet", palette.DIM))]
    num_columns = max((width + _GAP) // (_COLUMN_WIDTH + _GAP), 1)
    num_sequences = len(state.sequences)
    limit = rows if num_sequences <= rows else max((rows - 1) * num_columns, 0)
    chosen, left_out = choose_sequences(state, limit)
    note = ", ".join(f"{count} {status}" for status, count in left_out.items())
    last = [line((f"not shown: {note}", palette.DIM))] if note else []
    views = [view_sequence(state, seq, changes.new_tokens[seq]) for seq in chosen]
    return [*_draw(views, focus, width, rows - len(last)), *last][:rows]


def _draw(views: list[SequenceView], focus: int | None, width: int, rows: int) -> list[Text]:
    """Use two columns if one is too short for all tables and there is the width for two."""
    wanted = len(views) + sum(len(view.entries) for view in views)
    if wanted <= rows or width < 2 * _COLUMN_WIDTH + _GAP or len(views) < 2:
        return _draw_column(views, focus, width, rows)
    left = (width - _GAP) // 2
    middle = _middle(views)
    return columns(
        _draw_column(views[:middle], focus, left, rows),
        _draw_column(views[middle:], focus, width - _GAP - left, rows),
        left,
        _GAP,
    )


def _middle(views: list[SequenceView]) -> int:
    """Give where to part the sequences so that both columns have about as many lines."""
    sizes = [1 + len(view.entries) for view in views]
    cuts = range(1, len(views))
    return min(cuts, key=lambda cut: abs(sum(sizes[:cut]) - sum(sizes[cut:])))


def _draw_column(views: list[SequenceView], focus: int | None, width: int, rows: int) -> list[Text]:
    shares = share_out({v.seq: len(v.entries) for v in views}, rows - len(views), focus)
    label_width = max(len(letters(view.seq)) for view in views)
    headings = {view.seq: draw_heading(view, label_width) for view in views}
    if all(shares[view.seq] >= min(_MIN_ENTRIES, len(view.entries)) for view in views):
        return _draw_tables(views, headings, shares, width, rows)
    taken = 1 + shares[focus] if focus is not None and focus in shares else 0
    each = max((rows - taken) // max(len(views) - bool(taken), 1), 1)
    lines = []
    for view in views:
        heading = headings[view.seq]
        if view.seq == focus:
            lines += draw_table(view, heading, shares[view.seq], width)
        else:
            lines += draw_strip(view, heading, width, each)
    return lines[:rows]


def _draw_tables(
    views: list[SequenceView],
    headings: dict[int, Text],
    shares: dict[int, int],
    width: int,
    rows: int,
) -> list[Text]:
    """Draw a table each; rows that are left over part them."""
    spare = rows - len(views) - sum(shares.values())
    lines: list[Text] = []
    for view in views:
        lines += draw_table(view, headings[view.seq], shares[view.seq], width)
        if spare > 0 and view.entries:
            lines.append(line())
            spare -= 1
    return lines


def share_out(wanted: dict[int, int], room: int, focus: int | None) -> dict[int, int]:
    """Give each what it wants, as far as there is room, evenly; the focused one comes first.

    >>> share_out({0: 5, 1: 1, 2: 5}, room=7, focus=None)
    {0: 3, 1: 1, 2: 3}
    """
    shares = dict.fromkeys(wanted, 0)
    if focus is not None and focus in shares:
        shares[focus] = min(wanted[focus], max(room, 0))
        room -= shares[focus]
    while room > 0 and (hungry := [seq for seq in wanted if shares[seq] < wanted[seq]]):
        for seq in hungry[:room]:
            shares[seq] += 1
            room -= 1
    return shares
