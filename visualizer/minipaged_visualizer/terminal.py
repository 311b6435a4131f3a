"""The whole picture for a terminal: a pure function of the timeline, the options and the size.

    title            where we are in the run
    Pool             every block, and how many are used, cached, free, empty or saved
    Sequences        each one's block table with its text | What happened, in plain words
    history          used blocks over time
    keys

Narrow terminals stack the sequences and the events; small ones get a few clear lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.text import Text

from minipaged_visualizer import palette
from minipaged_visualizer.changes import Changes, changes_of
from minipaged_visualizer.events_view import draw_events
from minipaged_visualizer.help_view import draw_help
from minipaged_visualizer.pool_view import CACHED, EMPTY, FREE, draw_pool, make_cells
from minipaged_visualizer.safe_text import fit, safe
from minipaged_visualizer.sequence_state import view_sequences
from minipaged_visualizer.sequences_view import draw_sequences
from minipaged_visualizer.timeline import Timeline

MIN_WIDTH, MIN_HEIGHT = 60, 16
_WIDE, _TALL = 110, 20
_KEYS = (
    ("space", "pause"),
    ("←→", "step"),
    ("n p", "event"),
    ("+-", "speed"),
    ("?", "help"),
    ("q", "quit"),
)


@dataclass(frozen=True)
class Options:
    """What the picture tells beside the timeline, and how.

    `status` is one line of text, e.g. that a model is being loaded; `by_event` marks only the last
    event and not the whole step; `focus` is the sequence whose table is shown in full.
    """

    is_paused: bool = False
    steps_per_second: float = 4.0
    tokens_per_second: float | None = None
    status: str = ""
    is_error: bool = False
    by_event: bool = False
    focus: int | None = None
    show_help: bool = False


class Screen:
    """A rich renderable that fills the terminal with the picture."""

    def __init__(self, timeline: Timeline, options: Options) -> None:
        self.timeline = timeline
        self.options = options

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = options.height or console.height
        lines = draw(self.timeline, self.options, options.max_width, height)
        for number, line in enumerate(lines):
            if number:
                yield Segment.line()
            yield from line.render(console)


def draw(timeline: Timeline, options: Options, width: int, height: int) -> list[Text]:
    """Draw exactly `height` lines of at most `width` columns."""
    if options.show_help:
        body = draw_help(width)
    elif width < MIN_WIDTH or height < MIN_HEIGHT:
        body = _draw_small(timeline, options, width)
    else:
        body = _draw_body(timeline, options, width, height - 2)
    lines = [_title(timeline, options, width), *body[: height - 2]]
    lines += [Text()] * (height - 1 - len(lines))
    lines.append(_bottom(options, width))
    lines = lines[:1] if height < 2 else lines
    for line in lines:
        line.truncate(width)
    return lines


# --- the parts ------------------------------------------------------------------------------------


def _draw_body(timeline: Timeline, options: Options, width: int, height: int) -> list[Text]:
    changes = changes_of(timeline.events[-1:] if options.by_event else timeline.events)
    lines = _pool(timeline, changes, width, max(height // 5, 3))
    history = [_history(timeline, width)] if height >= _TALL else []
    room = height - len(lines) - len(history)
    draw_lower = _beside if width >= _WIDE else _stacked
    lower = draw_lower(timeline, options, changes, width, room)
    lower += [Text()] * (room - len(lower))
    return [*lines, *lower[:room], *history]


def _pool(timeline: Timeline, changes: Changes, width: int, rows: int) -> list[Text]:
    state, header = timeline.state, timeline.header
    cells = make_cells(state.ref_counts, state.tables, state.contents, state.hashes, changes.blocks)
    about = f"{header.num_blocks} blocks of {header.block_size} tokens"
    lines = [_rule("Pool", about, width), *draw_pool(cells, header.block_size, width, rows)]
    if header.num_swap_blocks:
        swap = make_cells(
            state.swap_ref_counts,
            state.swap_tables,
            state.swap_contents,
            {},
            changes.swap_blocks,
        )
        lines.append(_rule("Swap", f"{header.num_swap_blocks} blocks outside the pool", width))
        lines += draw_pool(swap, header.block_size, width, max(rows // 3, 1))
    return [*lines, _counts(timeline)]


def _counts(timeline: Timeline) -> Text:
    """Tell how the pool is used; the signs are the legend of the grid."""
    memory = timeline.state.snapshot()
    line = Text(no_wrap=True)
    used_slots = memory.num_used * memory.block_size
    percent = round(100 * memory.num_empty_slots / used_slots) if used_slots else 0
    free = memory.num_free - memory.num_cached
    line.append("A", palette.PILL).append(f" used {memory.num_used}   ")
    line.append(CACHED, palette.DIM).append(f" cached {memory.num_cached}   ")
    line.append(FREE, palette.DIM).append(f" free {free}   ")
    line.append(EMPTY, palette.DIM).append(
        f" {memory.num_empty_slots} empty slots ({percent} % wasted)   "
    )
    saved = memory.num_blocks_saved
    return line.append("×n", palette.PILL).append(f" sharing saves {saved}")


def _beside(
    timeline: Timeline, options: Options, changes: Changes, width: int, rows: int
) -> list[Text]:
    """Put the events to the right of the sequences."""
    right = min(max(width * 2 // 5, 44), 72)
    left = width - right - 2
    return _columns(
        _sequences(timeline, options, changes, left, rows),
        _events(timeline, options, right, rows),
        left,
    )


def _stacked(
    timeline: Timeline, options: Options, changes: Changes, width: int, rows: int
) -> list[Text]:
    """Put the events below the sequences, which get three fifths of the lines."""
    upper = max(rows * 3 // 5, 3)
    sequences = _sequences(timeline, options, changes, width, upper)
    return [*sequences, *_events(timeline, options, width, rows - len(sequences))]


def _sequences(
    timeline: Timeline, options: Options, changes: Changes, width: int, rows: int
) -> list[Text]:
    views = view_sequences(timeline.state, changes)
    drawn = draw_sequences(views, options.focus, width, rows - 1)
    return [_rule("Sequences", "logical → physical block, and the text in it", width), *drawn]


def _events(timeline: Timeline, options: Options, width: int, rows: int) -> list[Text]:
    drawn = draw_events(timeline, options.by_event, width, rows - 1)
    return [_rule("What happened", "", width), *drawn]


def _history(timeline: Timeline, width: int) -> Text:
    """Draw the used blocks over time; the place where we are is reversed."""
    label = "used over time "
    room = width - len(label)
    used, index = timeline.used_history, timeline.position.number
    per_column = max(-(-len(used) // room), 1)
    line = Text(label, palette.DIM, no_wrap=True)
    for start in range(0, len(used), per_column):
        highest = max(used[start : start + per_column])
        level = -(-highest * 8 // timeline.header.num_blocks)
        is_here = start <= index < start + per_column
        line.append(" ▁▂▃▄▅▆▇█"[level], palette.PILL if is_here else palette.DIM)
    return line


def _draw_small(timeline: Timeline, options: Options, width: int) -> list[Text]:
    """Tell the most important in a few lines, and that more room shows more."""
    memory = timeline.state.snapshot()
    free = memory.num_free - memory.num_cached
    numbers = f"{memory.num_used} used, {memory.num_cached} cached, {free} free"
    hint = f"{MIN_WIDTH}x{MIN_HEIGHT} shows the blocks"
    happened = draw_events(timeline, options.by_event, max(width, 12), 99)
    return [Text(fit(numbers, width)), Text(fit(hint, width), palette.DIM), *happened]


# --- lines ----------------------------------------------------------------------------------------


def _title(timeline: Timeline, options: Options, width: int) -> Text:
    header = timeline.header
    title = Text(no_wrap=True).append("minipaged", palette.TITLE)
    name = str(header.model.get("name", "")) or header.title
    place = _place(timeline, options)
    room = width - title.cell_len - len(place) - 4
    if name and room > 3:
        title.append(f"  {fit(safe(name), room)}", palette.DIM)
    gap = max(width - title.cell_len - len(place), 1)
    return title.append(" " * gap).append(place)


def _place(timeline: Timeline, options: Options) -> str:
    step, total = timeline.step, len(timeline.steps)
    words = []
    if options.tokens_per_second is not None:
        words.append(f"{options.tokens_per_second:.0f} tokens/s")
    words.append("‖ paused" if options.is_paused else f"► {options.steps_per_second:g} steps/s")
    words.append(f"step {step.step if step else '-'} of {total}")
    if options.by_event and step:
        words.append(f"event {timeline.position.event} of {len(step.events)}")
    return " · ".join(words)


def _bottom(options: Options, width: int) -> Text:
    """Draw the status on the left, and as many keys as fit on the right."""
    status = fit(safe(options.status), width)
    line = Text(status, palette.ALERT if options.is_error else palette.BOLD, no_wrap=True)
    for key, meaning in _KEYS:
        space = "  " if line else ""
        if line.cell_len + len(space) + len(key) + 1 + len(meaning) <= width:
            line.append(space).append(key, palette.BOLD).append(f" {meaning}", palette.DIM)
    return line


def _rule(title: str, about: str, width: int) -> Text:
    line = Text(title, palette.BOLD, no_wrap=True)
    if about and len(title) + len(about) + 4 < width:
        line.append(f"  {about}", palette.DIM)
    return line.append(" " + "─" * max(width - line.cell_len - 1, 0), palette.DIM)


def _columns(left: Sequence[Text], right: Sequence[Text], width: int) -> list[Text]:
    """Put two blocks of lines side by side; the left one is `width` columns wide."""
    lines = []
    for number in range(max(len(left), len(right))):
        line = left[number] if number < len(left) else Text(no_wrap=True)
        line.truncate(width, pad=True)
        line.append("  ")
        lines.append(line.append_text(right[number]) if number < len(right) else line)
    return lines
