"""A moment of a run as one SVG: what happened in words, the focused sequence's table, the pool.

The state is that of every view, and so are words, letters, hatches and colours. The picture stands
alone, and follows the reader's light or dark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from minipaged.errors import TraceError
from minipaged.memory.trace import Trace
from minipaged_visualizer.captions import Caption, captions, letters
from minipaged_visualizer.changes import changes_of
from minipaged_visualizer.focus import focused
from minipaged_visualizer.heat import heat_of
from minipaged_visualizer.numbers_view import count_facts
from minipaged_visualizer.safe_text import safe, wrap
from minipaged_visualizer.sequence_state import Entry, SequenceView, view_sequence
from minipaged_visualizer.svg import CHARACTER, document, letter, owned, rect, text
from minipaged_visualizer.svg_pool import draw_pool, frame
from minipaged_visualizer.timeline import Position, Timeline

_WIDTH, _MARGIN = 1240, 24
_TABLE_WIDTH, _POOL_X, _POOL_WIDTH, _POOL_HEIGHT = 600, 656, 560, 420
_ROW, _MAX_ROWS, _MAX_CAPTIONS = 30, 14, 4
_MAX_SLOTS = 8


def still(
    trace: Trace, step: int | None = None, event: int | None = None, focus: int | None = None
) -> str:
    """Draw a moment: the end of step number `step` (the last one by default).

    With `event`, only so many events of that step have happened. `focus` is the sequence whose
    table is drawn; by default the one that the newest telling event is about.

    Raises:
        TraceError: There is no such step, event or sequence.
    """
    timeline = Timeline(trace.header)
    for each in trace.all_steps():
        timeline.append(each)
        if each.step == step:
            break
    timeline.last()
    _go_to(timeline, step, event)
    if focus is not None and focus not in timeline.state.sequences:
        raise TraceError(f"there is no sequence {focus} at that moment")
    return _Still(timeline, event is not None, focus).draw()


def _go_to(timeline: Timeline, step: int | None, event: int | None) -> None:
    steps = timeline.steps
    if not steps:
        raise TraceError("the trace has no steps: there is nothing to draw")
    if step is not None and steps[-1].step != step:
        raise TraceError(
            f"there is no step {step}: the trace has steps {steps[0].step} to {steps[-1].step}"
        )
    if event is not None:
        count = len(steps[-1].events)
        if not 0 <= event <= count:
            raise TraceError(f"there is no event {event}: step {steps[-1].step} has {count}")
        timeline.go_to(Position(len(steps) - 1, event))


class _Still:
    """One picture in the making; each part tells how low it reaches."""

    def __init__(self, timeline: Timeline, by_event: bool, focus: int | None) -> None:
        self._timeline, self._state = timeline, timeline.state
        self._events = timeline.events[-1:] if by_event else timeline.events
        self._by_event = by_event
        self._focus = focused(timeline) if focus is None else focus
        self._changes = changes_of(self._events)

    def draw(self) -> str:
        head, y = self._head()
        table, table_end = self._table(y)
        pool, pool_end = self._pool(y)
        end = max(table_end, pool_end)
        facts = "   ".join(f"{sign} {words}" for sign, words in self._facts())
        foot = text(_MARGIN, end + 30, facts, "quiet", _WIDTH - 2 * _MARGIN)
        about = f"Step {self._step_number}: {'; '.join(c.text for c in self._told())}"
        return document(_WIDTH, end + 50, [*head, *table, *pool, foot], about)

    @property
    def _step_number(self) -> int:
        return self._timeline.step.step if self._timeline.step else 0

    def _told(self) -> list[Caption]:
        told = captions(self._events)
        told = [c for c in told if not c.routine] or told
        rest = len(told) - _MAX_CAPTIONS
        more = [Caption(" ", f"and {rest} more")] if rest > 0 else []
        return [*told[:_MAX_CAPTIONS], *more]

    def _facts(self) -> list[tuple[str, str]]:
        return count_facts(self._state.snapshot(), self._timeline.header.bytes_per_block)

    def _head(self) -> tuple[list[str], float]:
        """Draw the title, the place, and what happened."""
        header, step = self._timeline.header, self._timeline.step
        name = str(header.model.get("name", "")) or header.title
        place = f"step {self._step_number}"
        if self._by_event and step is not None:
            place += f", event {self._timeline.position.event} of {len(step.events)}"
        parts = [
            text(_MARGIN, 34, f"minipaged  {name}", "bold", _WIDTH - 400),
            text(_WIDTH - _MARGIN, 34, place, "quiet end"),
        ]
        y = 68.0
        for told in self._told():
            for number, words in enumerate(wrap(safe(told.text), 96)):
                parts.append(text(_MARGIN, y, told.sign if not number else "", "big sign"))
                parts.append(text(_MARGIN + 28, y, words, "big"))
                y += 27
        return parts, y + 8

    # --- the table --------------------------------------------------------------------------------

    def _table(self, y: float) -> tuple[list[str], float]:
        if self._focus is None:
            return [text(_MARGIN, y + 20, "no requests yet", "quiet")], y + 30
        view = view_sequence(self._state, self._focus, self._changes.new_tokens[self._focus])
        shown = view.entries[-_MAX_ROWS:]
        hidden = len(view.entries) - len(shown)
        note = f"first {hidden} not shown" if hidden else ""
        about = ", ".join(filter(None, [view.status, view.about, note]))
        parts = [
            owned(_MARGIN, y, 34, 26, view.seq),
            letter(_MARGIN + 17, y + 18, letters(view.seq), view.seq),
            text(_MARGIN + 44, y + 18, about, "", _TABLE_WIDTH - 50),
        ]
        y += 34
        for entry in shown:
            parts += self._row(entry, view, y)
            y += _ROW
        written = _tail([view.output.lstrip(" "), view.pending], _TABLE_WIDTH - 20)
        return [*parts, text(_MARGIN, y + 20, f"“{written}”")], y + 30

    def _row(self, entry: Entry, view: SequenceView, y: float) -> Iterator[str]:
        """Draw `logical → physical`, how full it is, and the tokens that lie in it."""
        filled = f"{len(entry.tokens)}/{len(entry.tokens) + entry.num_empty}"
        x = _MARGIN + 48
        yield text(_MARGIN + 40, y + 19, f"{entry.logical} →", "quiet end")
        yield owned(x, y + 2, 52, 24, view.seq)
        yield letter(x + 26, y + 19, f"{'s' * view.is_swapped}{entry.block}", view.seq)
        count = f"×{entry.ref_count}" if entry.ref_count > 1 else ""
        yield text(x + 60, y + 19, f"{filled} {count}", "quiet")
        width = _TABLE_WIDTH - 140 - (90 if entry.share is not None else 0)
        yield from _slots(entry, view, _MARGIN + 190, y, width - 50)
        if entry.share is not None:
            yield from _share(_MARGIN + _TABLE_WIDTH - 90, y, entry.share)

    # --- the pool ---------------------------------------------------------------------------------

    def _pool(self, y: float) -> tuple[list[str], float]:
        header = self._timeline.header
        place = frame(header.num_blocks, _POOL_X, y + 12, _POOL_WIDTH, _POOL_HEIGHT)
        about = f"Pool: {header.num_blocks} blocks of {header.block_size} tokens"
        if place.blocks_per_cell > 1:
            about += f"; a cell stands for {place.blocks_per_cell}"
        heat = heat_of(self._state, self._focus) if self._focus is not None else {}
        drawn = draw_pool(self._state, place, self._changes.blocks, self._focus, heat)
        return [text(_POOL_X, y, about, "quiet"), *drawn], y + 12 + place.height(header.num_blocks)


def _slots(entry: Entry, view: SequenceView, x: float, y: float, width: float) -> Iterator[str]:
    """Draw a box for each slot; of large blocks one box with the text that is in them."""
    tokens: list[tuple[str, str]] = [(token, "") for token in entry.tokens]
    if view.pending and entry is view.next_entry:
        tokens.append((f"‹{view.pending}›", "pending quiet"))
    size = len(entry.tokens) + entry.num_empty
    if size > _MAX_SLOTS:
        yield rect(x, y + 2, width, 24, "free")
        yield text(x + 4, y + 19, _tail([token for token, _ in tokens], width - 8))
        return
    each = width / size
    for number in range(size):
        yield rect(x + number * each, y + 2, each - 2, 24, "free")
        if number < len(tokens):
            words, look = tokens[number]
            is_new = entry.num_new and number >= len(entry.tokens) - entry.num_new and not look
            look = "bold" if is_new else look
            yield text(x + number * each + 4, y + 19, words, look, each - 8)


def _tail(tokens: Sequence[str], width: float) -> str:
    """Give the end of a block's text, where the newest tokens are."""
    shown = safe("".join(tokens))
    room = int(width / CHARACTER)
    return shown if len(shown) <= room else "…" + shown[-room + 1 :]


def _share(x: float, y: float, share: int) -> Iterator[str]:
    """Draw the share of attention of one block: a bar and a number."""
    yield rect(x, y + 6, 40, 16, "panel")
    yield rect(x, y + 6, max(40 * share / 1000, 0.5), 16, "heat")
    yield text(x + 88, y + 19, f"{share / 10:.0f} %", "end")
