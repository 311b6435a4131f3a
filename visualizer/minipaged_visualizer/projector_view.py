"""The picture for the back row: a headline in large type, and a few blocks as large as they can be.

    A COPIES 3 TO 5                           what happened, several cells a letter
    A copies block 3 to block 5: ...          the same caption as in every view
    [0 ABC] [1 ABC] [2 ABC] [5 A]             the table of the sequence that it is about
    7 of 16 blocks used                       the pool, in one line; then the text so far

Event by event a copy-on-write is shown alone: the block before, an arrow, the copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import NamedTuple

from rich.style import Style
from rich.text import Text

from minipaged.memory.events import BlockCopied, Event
from minipaged_visualizer import palette
from minipaged_visualizer.big_letters import ROWS, big, columns_of, wrapped
from minipaged_visualizer.block_chip import CACHED, EMPTY, FREE, Cell
from minipaged_visualizer.captions import caption, letters
from minipaged_visualizer.changes import changes_of
from minipaged_visualizer.focus import focused
from minipaged_visualizer.headlines import headline, telling
from minipaged_visualizer.lines import line
from minipaged_visualizer.options import Options
from minipaged_visualizer.pool_view import Grid
from minipaged_visualizer.safe_text import safe, tail, wrap
from minipaged_visualizer.timeline import Timeline

_INDENT, _GAP = 2, 2
_MAX_BOXES, _ROOMY = 8, 18


class _Size(NamedTuple):
    """How large a block is drawn: columns of the box, and the size of the letters in it."""

    box: int
    letter: int

    @property
    def rows(self) -> int:
        """Number, a line above the letters, they, a line below, and how full it is."""
        return ROWS[self.letter] + 4


_SIZES = (_Size(28, 3), _Size(20, 2), _Size(13, 1), _Size(9, 1))


def draw_projector(timeline: Timeline, options: Options, width: int, height: int) -> list[Text]:
    """Draw at most `height` lines of at most `width` columns."""
    events = timeline.events[-1:] if options.by_event else timeline.events
    event = telling(events)
    upper = _headline(event, width - 2 * _INDENT, height // 2)
    upper = [line(), *upper] if height > _ROOMY else upper
    size = _fitting(width, height - len(upper) - 4)
    boxes = _Boxes(timeline, events, width - _INDENT, size)
    focus = focused(timeline) if options.focus is None else options.focus
    is_alone = options.by_event and isinstance(event, BlockCopied)
    drawn = boxes.close_up(event) if is_alone else boxes.table(focus)  # type: ignore[arg-type]
    parts = [*upper, line(), *drawn, line(), _pool(timeline), *_text(timeline, focus, width - 8)]
    return [line(" " * _INDENT, part) if part.plain else part for part in parts][:height]


def _headline(event: Event | None, width: int, rows: int) -> list[Text]:
    """Say what happened in the largest letters that fit, and below them in a sentence."""
    if event is None:
        return [line(("nothing has happened yet", palette.BOLD))]
    sentence = [line((words, palette.BOLD)) for words in wrap(safe(caption(event).text), width)[:3]]
    words = headline(event)
    for size, most in ((3, 2), (2, 2), (1, 2)):
        lines = wrapped(words, width, size, most)
        if lines and len(lines) * (ROWS[size] + 1) + len(sentence) <= rows:
            large = [row for each in lines for row in (*big(each, size), "")]
            return [*(line((row, palette.BOLD)) for row in large), *sentence]
    return [line((words, palette.BOLD)), *sentence]


def _fitting(width: int, rows: int) -> _Size:
    """Give the largest size of which four boxes fit side by side, and one below the headline."""
    for size in _SIZES:
        if 4 * (size.box + _GAP) <= width and size.rows <= rows:
            return size
    return _SIZES[-1]


def _pool(timeline: Timeline) -> Text:
    memory = timeline.state.snapshot()
    cached = f", {memory.num_cached} cached" if memory.num_cached else ""
    saved = f", sharing saves {memory.num_blocks_saved}" if memory.num_blocks_saved else ""
    words = f"{memory.num_used} of {memory.num_blocks} blocks used{cached}{saved}"
    return line((words, palette.BOLD))


def _text(timeline: Timeline, seq: int | None, width: int) -> list[Text]:
    """Give the end of what a sequence has written."""
    written = timeline.state.sequences[seq].output if seq is not None else []
    text = tail(safe("".join(token.text for token in written)).strip(), width)
    return [line(f"“{text}”")] if text else []


class _Boxes:
    """Blocks as boxes side by side."""

    def __init__(
        self, timeline: Timeline, events: Sequence[Event], width: int, size: _Size
    ) -> None:
        state = timeline.state
        self._state, self._size, self._width = state, size, width
        signs = changes_of(events).blocks
        self._grid = Grid(state.tables, state.contents, state.block_size, state.hashes, signs)
        self._most = min(max((width + _GAP) // (size.box + _GAP), 1), _MAX_BOXES)

    def table(self, seq: int | None) -> list[Text]:
        """Draw the newest blocks of a sequence's table, with their logical numbers."""
        table = self._state.tables.get(seq, []) if seq is not None else []
        if seq is None or not table:
            return [line(("no blocks", palette.DIM))]
        first = max(len(table) - self._most, 0)
        hidden = f"   (the last {self._most} of {len(table)})" if first else ""
        title = line(
            (f" {letters(seq)} ", palette.owner_style(seq)), (f" its blocks{hidden}", palette.BOLD)
        )
        boxes = [
            self._box(block, f"{first + place} → ") for place, block in enumerate(table[first:])
        ]
        return [title, *_beside(boxes, " " * _GAP)]

    def close_up(self, event: BlockCopied) -> list[Text]:
        """Draw a copy-on-write: the shared block, and the copy that may be written to."""
        boxes = [self._box(event.source, "shared "), self._box(event.target, "copy ")]
        above = [line()] * (self._size.rows // 2)
        middle = [*above, line(("━" * (self._size.box // 3) + "►", palette.BOLD))]
        return _beside([boxes[0], middle, boxes[1]], " " * 3)

    def _box(self, block: int, before: str) -> list[Text]:
        """Draw one block in `size.box` columns: number, owners, how full."""
        cell, width = self._grid.cell(block), self._size.box
        number = f"{before}{block}"
        sign = f" {cell.sign}" if cell.sign else ""
        if len(number) + len(sign) > width:
            number = str(block)
        head = line((number, palette.BOLD), (sign, palette.ALERT))
        blank = self._fill(cell, "")
        middle = [self._fill(cell, row) for row in self._letters(cell)]
        count = f"  ×{len(cell.owners)}" if len(cell.owners) > 1 else ""
        foot = line(f"{cell.filled}/{cell.size} full", (count, palette.BOLD))
        return [padded_to(part, width) for part in (head, blank, *middle, blank, foot)]

    def _letters(self, cell: Cell) -> list[str]:
        """Give the rows of the owners' letters, as large as all of them fit, else of the first."""
        full = cell.filled * self._size.box // cell.size
        all_names = "".join(map(letters, cell.owners))
        for names in (all_names, letters(cell.owners[0]) if cell.owners else ""):
            for size in range(self._size.letter, 0, -1):
                for room in (full, self._size.box):
                    margin = (room - columns_of(names, size)) // 2
                    if names and margin > 0:
                        return self._centred([" " * margin + row for row in big(names, size)])
        return self._centred([])

    def _centred(self, rows: list[str]) -> list[str]:
        """Put rows into the middle of a box."""
        height = ROWS[self._size.letter]
        above = (height - len(rows)) // 2
        return [*[""] * above, *rows, *[""] * (height - len(rows) - above)]

    def _fill(self, cell: Cell, row: str) -> Text:
        """Draw one row of a box: each owner has its stripe, empty slots are low lines."""
        width = self._size.box
        if not cell.owners:
            return line(((CACHED if cell.is_cached else FREE) * width, palette.DIM))
        columns = [_column(cell, *each, width) for each in enumerate(row.ljust(width))]
        runs = groupby(columns, key=itemgetter(1))
        return line(*(("".join(character for character, _ in run), style) for style, run in runs))


def _column(cell: Cell, column: int, character: str, width: int) -> tuple[str, Style]:
    """Give one column of a box: on its owner's stripe, or behind what is filled."""
    full = cell.filled * width // cell.size
    if column >= full:
        return EMPTY if character == " " else character, palette.bar_style(cell.owners[0])
    owner = cell.owners[column * len(cell.owners) // full]
    return palette.hatching(owner) if character == " " else character, palette.owner_style(owner)


def padded_to(part: Text, width: int) -> Text:
    """Give a line in exactly `width` columns."""
    part = part.copy()
    part.truncate(width, pad=True)
    return part


def _beside(blocks: Sequence[Sequence[Text]], gap: str) -> list[Text]:
    """Put blocks of lines side by side; each is as wide as its widest line."""
    widths = [max(row.cell_len for row in block) for block in blocks]
    rows = []
    for row in zip_longest(*blocks, fillvalue=line()):
        parts = [padded_to(part, width) for part, width in zip(row, widths, strict=True)]
        rows.append(line(gap).join(parts))
    return rows
