"""The pool in an SVG: a cell a block, as large as fits; of a huge pool several blocks share one.

A cell tells by letter, hatch and colour whose block it is, by stripes and a pill that it is shared,
by its pale part what is empty. Cells too small for a letter become one path for each owner.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from minipaged.memory.replay import Replay
from minipaged_visualizer import palette
from minipaged_visualizer.captions import letters
from minipaged_visualizer.svg import letter, owned, rect, text

MAX_CELLS = 2**14
_LETTER_SIZE, _NUMBER_SIZE, _MAX_SIZE = 18, 34, 56
_MAX_STRIPES = 4


class Frame(NamedTuple):
    """Where the pool is drawn: its corner, and how many blocks stand in a cell of `size` pixels."""

    x: float
    y: float
    per_row: int
    size: int
    blocks_per_cell: int

    def place(self, block: int) -> tuple[float, float]:
        """Give the corner of a block's cell."""
        row, column = divmod(block // self.blocks_per_cell, self.per_row)
        return self.x + column * self.size, self.y + row * self.size

    def height(self, num_blocks: int) -> int:
        """Give the height of the whole pool in pixels."""
        cells = -(-num_blocks // self.blocks_per_cell)
        return -(-cells // self.per_row) * self.size


def frame(num_blocks: int, x: float, y: float, width: int, height: int) -> Frame:
    """Give the largest cells that fit.

    >>> frame(64, 0, 0, 560, 420)
    Frame(x=0, y=0, per_row=10, size=56, blocks_per_cell=1)
    >>> frame(16, 0, 0, 560, 420).per_row
    8
    >>> frame(2**22, 0, 0, 560, 420).blocks_per_cell
    256
    """
    together = 1
    while -(-num_blocks // together) > MAX_CELLS:
        together *= 2
    cells = -(-num_blocks // together)
    for size in range(_MAX_SIZE, 1, -1):
        per_row = max(width // size, 1)
        if -(-cells // per_row) * size <= height:
            break
    rows = -(-cells // per_row)
    return Frame(x, y, -(-cells // rows), size, together)


def draw_pool(
    state: Replay,
    place: Frame,
    signs: Mapping[int, str],
    focus: int | None,
    heat: Mapping[int, int],
) -> list[str]:
    """Draw every block; those of `focus` have an outline, and `heat` is their share of attention.

    Changed ones have their sign. Of small cells those that are free are left to the panel.
    """
    owners: dict[int, list[int]] = defaultdict(list)
    for seq in sorted(state.tables):
        for block in state.tables[seq]:
            owners[block].append(seq)
    if place.size < _LETTER_SIZE:
        drawn = [_panel(state, place), *_dots(state, place, owners)]
    else:
        drawn = [
            part
            for block in range(len(state.ref_counts))
            for part in _cell(state, place, block, owners[block])
        ]
    mine = state.tables.get(focus, []) if focus is not None else []
    drawn += [_outline(place, block, "focus") for block in mine]
    drawn += [part for block, share in heat.items() for part in _heat(place, block, share)]
    return drawn + [part for block, sign in signs.items() for part in _sign(place, block, sign)]


def _panel(state: Replay, place: Frame) -> str:
    height = place.height(len(state.ref_counts))
    return rect(place.x, place.y, place.per_row * place.size, height, "panel")


def _dots(state: Replay, place: Frame, owners: Mapping[int, Sequence[int]]) -> Iterator[str]:
    """Draw small cells, a path for each colour: the owners', that of shared, that of cached."""
    cells: dict[str, dict[tuple[float, float], None]] = defaultdict(dict)
    for block in state.hashes:
        if not owners.get(block):
            cells['class="cached"'][place.place(block)] = None
    for block, seqs in owners.items():
        if seqs:
            paint = 'class="pill"' if len(seqs) > 1 else f'fill="{palette.hue(seqs[0])[0]}"'
            cells[paint][place.place(block)] = None
    side = place.size - (0.5 if place.size > 3 else 0)
    for paint, corners in cells.items():
        path = "".join(f"M{x:g} {y:g}h{side:g}v{side:g}h-{side:g}z" for x, y in corners)
        yield f'<path d="{path}" {paint} stroke="none"/>'


def _cell(state: Replay, place: Frame, block: int, seqs: Sequence[int]) -> Iterator[str]:
    x, y = place.place(block)
    side = place.size - 4
    is_cached = block in state.hashes and not seqs
    yield rect(x + 2, y + 2, side, side, "cached" if is_cached else "free")
    if seqs:
        yield from _stripes(x + 2, y + 2, side, seqs)
        full = side * len(state.contents[block]) / state.block_size
        if full < side:
            yield rect(x + 2 + full, y + 2, side - full, side, "empty")
        yield from _names(x + place.size / 2, y + place.size / 2, place.size, seqs)
    if place.size >= _NUMBER_SIZE:
        yield _number(x, y, block, seqs)


def _number(x: float, y: float, block: int, seqs: Sequence[int]) -> str:
    if not seqs:
        return text(x + 4, y + 13, str(block), "small")
    return letter(x + 5 + 3 * len(str(block)), y + 13, str(block), seqs[0], 11)


def _stripes(x: float, y: float, side: float, seqs: Sequence[int]) -> Iterator[str]:
    shown = seqs[:_MAX_STRIPES]
    height = side / len(shown)
    for number, seq in enumerate(shown):
        yield owned(x, y + number * height, side, height, seq)


def _names(x: float, y: float, size: int, seqs: Sequence[int]) -> Iterator[str]:
    """Name the owners, and how many they are."""
    named = "".join(map(letters, seqs[: 3 if size >= _NUMBER_SIZE else 1]))
    if len(seqs) == 1 or size >= _NUMBER_SIZE:
        yield letter(x, y + 5, named, seqs[0])
    if len(seqs) > 1:
        width = 9 * len(str(len(seqs))) + 12
        down = y + (size / 2 - 17 if size >= _NUMBER_SIZE else -7)
        yield rect(x - width / 2, down, width, 14, "pill", 7)
        yield text(x, down + 11, f"×{len(seqs)}", "small bold middle on-pill")


def _outline(place: Frame, block: int, look: str) -> str:
    x, y = place.place(block)
    inset = 1 if place.size >= _LETTER_SIZE else 0
    side = max(place.size - 2 * inset, 2)
    return rect(x + inset, y + inset, side, side, look)


def _heat(place: Frame, block: int, share: int) -> Iterator[str]:
    """Draw a disc whose area is the share of attention that the block got."""
    x, y = place.place(block)
    if share > 0 and place.size >= _LETTER_SIZE:
        radius = max(place.size * 0.24 * (share / 1000) ** 0.5, 1.5)
        yield f'<circle cx="{x + place.size - 9:g}" cy="{y + 9:g}" r="{radius:g}" class="heat"/>'


def _sign(place: Frame, block: int, sign: str) -> Iterator[str]:
    yield _outline(place, block, "changed")
    if place.size >= _LETTER_SIZE:
        x, y = place.place(block)
        yield text(x + place.size - 4, y + place.size - 5, sign, "sign bold end")
