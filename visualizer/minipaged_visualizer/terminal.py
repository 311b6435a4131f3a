"""The whole picture for a terminal: a pure function of the timeline, the options and the size.

    title         what runs, and where we are
    Pool          every block; how many are used, cached, free, wasted, and saved by sharing
    Sequences     each one's block table with its text | What happened, in plain words
    history       used blocks over time
    keys

Narrow terminals put the events below the sequences; small ones get a few clear lines. Projected,
there is large type and little of it between title and keys (`projector_view`).
"""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.text import Text

from minipaged_visualizer import palette
from minipaged_visualizer.changes import changes_of
from minipaged_visualizer.events_view import draw_events
from minipaged_visualizer.help_view import draw_help
from minipaged_visualizer.lines import columns, line, padded, rule
from minipaged_visualizer.numbers_view import draw_counts, draw_history, draw_keys, draw_title
from minipaged_visualizer.options import Options
from minipaged_visualizer.pool_view import Grid, choose_shape
from minipaged_visualizer.projector_view import draw_projector
from minipaged_visualizer.safe_text import fit
from minipaged_visualizer.sequences_view import draw_sequences
from minipaged_visualizer.timeline import Timeline

MIN_WIDTH, MIN_HEIGHT = 60, 16
_WIDE, _TALL, _ROOMY = 110, 20, 30
_GAP = 3


class Screen:
    """A rich renderable that fills the terminal with the picture."""

    def __init__(self, timeline: Timeline, options: Options) -> None:
        self._timeline = timeline
        self._options = options

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = options.height or console.height
        lines = draw(self._timeline, self._options, options.max_width, height)
        for number, row in enumerate(lines):
            if number:
                yield Segment.line()
            yield from row.render(console)


def draw(timeline: Timeline, options: Options, width: int, height: int) -> list[Text]:
    """Draw exactly `height` lines of at most `width` columns."""
    picture = _Picture(timeline, options, width, height - 2)
    rows = [
        draw_title(timeline, options, width),
        *padded(picture.draw(), max(height - 2, 0)),
        draw_keys(options, width),
    ]
    for row in rows:
        row.truncate(width)
    return rows[: max(height, 1)]


class _Picture:
    """Everything between the title and the keys."""

    def __init__(self, timeline: Timeline, options: Options, width: int, height: int) -> None:
        self._timeline, self._options = timeline, options
        self._width, self._height = width, height
        self._state = timeline.state
        self._changes = changes_of(timeline.events[-1:] if options.by_event else timeline.events)

    def draw(self) -> list[Text]:
        if self._options.show_help:
            return draw_help()
        if self._width < MIN_WIDTH or self._height < MIN_HEIGHT - 2:
            return self._small()
        if self._options.is_projected:
            return draw_projector(self._timeline, self._options, self._width, self._height)
        return self._full()

    def _small(self) -> list[Text]:
        """Tell the most important in a few lines, and that more room shows more."""
        memory = self._state.snapshot()
        free = memory.num_free - memory.num_cached
        numbers = f"{memory.num_used} used, {memory.num_cached} cached, {free} free"
        hint = f"{MIN_WIDTH}x{MIN_HEIGHT} or more shows the blocks"
        return [
            line(fit(numbers, self._width)),
            line((fit(hint, self._width), palette.DIM)),
            *self._events(max(self._width, 12), max(self._height - 2, 1)),
        ]

    def _full(self) -> list[Text]:
        space = [line()] if self._height >= _ROOMY else []
        upper = [*space, *self._memory(), *space]
        history = draw_history(self._timeline, self._width)
        lower = [*space, history] if self._height >= _TALL else []
        room = self._height - len(upper) - len(lower)
        middle = self._beside(room) if self._width >= _WIDE else self._stacked(room)
        return [*upper, *padded(middle, room), *lower]

    # --- memory -----------------------------------------------------------------------------------

    def _memory(self) -> list[Text]:
        """Draw the pool, the swap pool if there is one, and the counts."""
        state, header = self._state, self._timeline.header
        grid = Grid(
            state.tables, state.contents, state.block_size, state.hashes, self._changes.blocks
        )
        rows, most_rows = max(self._height // 5, 3), max(self._height * 3 // 10, 3)
        shape = choose_shape(grid.num_blocks, self._width, rows, most_rows)
        size = f"{header.block_size} token{'s' * (header.block_size > 1)}"
        about = f"{header.num_blocks} blocks of {size}"
        if shape.blocks_per_cell > 1:
            about += f"; a letter stands for {shape.blocks_per_cell} of them (&: mixed)"
        return [
            rule("Pool", about, self._width),
            *grid.draw(shape, self._width, self._options.focus),
            *([self._swap()] if header.num_swap_blocks else []),
            draw_counts(state.snapshot(), header.bytes_per_block, self._width),
        ]

    def _swap(self) -> Text:
        """Draw the swap pool in one line."""
        state, label = self._state, "Swap"
        grid = Grid(
            state.swap_tables, state.swap_contents, state.block_size, {}, self._changes.swap_blocks
        )
        width = self._width - len(label)
        shape = choose_shape(grid.num_blocks, width, rows=1, most_rows=1)
        return line((label, palette.BOLD), *grid.draw(shape, width))

    # --- sequences and events ---------------------------------------------------------------------

    def _beside(self, rows: int) -> list[Text]:
        """Put the events to the right of the sequences."""
        right = min(max(self._width * 2 // 5, 44), 72)
        left = self._width - right - _GAP
        events = [rule("What happened", "", right), *self._events(right, rows - 1)]
        return columns(self._sequences(left, rows), events, left, _GAP)

    def _stacked(self, rows: int) -> list[Text]:
        """Put the events below the sequences, which get three fifths of the lines."""
        sequences = self._sequences(self._width, max(-(-rows * 3 // 5), 3))
        room = rows - len(sequences) - 1
        events = self._events(self._width, room)
        return [*sequences, rule("What happened", "", self._width), *events]

    def _sequences(self, width: int, rows: int) -> list[Text]:
        drawn = draw_sequences(self._state, self._changes, self._options.focus, width, rows - 1)
        return [rule("Sequences", "logical → physical block, and its text", width), *drawn]

    def _events(self, width: int, rows: int) -> list[Text]:
        return draw_events(self._timeline, self._options.by_event, width, rows)
