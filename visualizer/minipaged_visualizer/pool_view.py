"""The pool as a grid: one cell a block, with its owner's letter, its fill and how many share it.

    used    the owner's letter on the owner's colour; as wide as it is filled, then low lines
    shared  the letters and the reference count: ABC×3
    cached  free, but its content can still be found: a light shade
    free    a dot
    changed a sign before the number, which is shown in reverse

The roomiest cells that fit are taken. In a large pool a cell is one letter, then several blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.style import Style
from rich.text import Text

from minipaged_visualizer import palette
from minipaged_visualizer.captions import letters

FREE, CACHED, EMPTY, MIXED = "·", "░", "▁", "&"
_EIGHTHS = " ▏▎▍▌▋▊▉"


class Cell(NamedTuple):
    """One block as it is drawn; `filled` is the number of its slots that hold a token."""

    block: int
    owners: tuple[int, ...]
    filled: int
    is_cached: bool
    sign: str


class Shape(NamedTuple):
    """How cells are drawn: chip width in columns, with the block's number or without it."""

    chip: int
    numbered: bool
    blocks_per_cell: int = 1


_SHAPES = (
    *(Shape(chip, True) for chip in (6, 5, 4, 3)),
    *(Shape(chip, False) for chip in (4, 3, 2, 1)),
    *(Shape(1, False, 2**power) for power in range(1, 23)),
)


def make_cells(
    ref_counts: Sequence[int],
    tables: Mapping[int, Sequence[int]],
    contents: Sequence[Sequence[object]],
    cached: Mapping[int, str],
    signs: Mapping[int, str],
) -> list[Cell]:
    """Gather what is drawn of each block; owners are in order of their tables."""
    owners: dict[int, list[int]] = {}
    for seq, table in tables.items():
        for block in table:
            owners.setdefault(block, []).append(seq)
    return [
        Cell(
            block,
            tuple(sorted(owners.get(block, ()))),
            len(contents[block]) if count else 0,
            count == 0 and block in cached,
            signs.get(block, ""),
        )
        for block, count in enumerate(ref_counts)
    ]


def choose_shape(num_blocks: int, width: int, rows: int) -> Shape:
    """Give the roomiest shape with which the pool fits."""
    return next(
        (s for s in _SHAPES if _rows(s, num_blocks, width) <= rows),
        _SHAPES[-1],
    )


def draw_pool(cells: Sequence[Cell], block_size: int, width: int, rows: int) -> list[Text]:
    """Draw the grid in at most `rows` lines of at most `width` columns."""
    shape = choose_shape(len(cells), width, rows)
    per_row = _per_row(shape, len(cells), width)
    digits = len(str(len(cells) - 1))
    lines = []
    groups = _grouped(cells, shape.blocks_per_cell)
    for start in range(0, len(groups), per_row):
        line = Text(no_wrap=True)
        if not shape.numbered:
            line.append(f"{groups[start][0].block:>{digits}} ", palette.DIM)
        for group in groups[start : start + per_row]:
            _append_cell(line, group, shape, digits, block_size)
        lines.append(line)
    return lines[:rows]


# --- the grid -------------------------------------------------------------------------------------


def _cell_width(shape: Shape, digits: int) -> int:
    if shape.numbered:
        return 1 + digits + 1 + shape.chip + 1
    return shape.chip + (shape.chip > 1)


def _per_row(shape: Shape, num_blocks: int, width: int) -> int:
    """Give the cells in a row: an even number, or a multiple of 8 where only rows have numbers."""
    digits = len(str(num_blocks - 1))
    if shape.numbered:
        most = (width + 1) // _cell_width(shape, digits)
        return max(most // 2 * 2 or most, 1)
    most = (width - digits - 1) // _cell_width(shape, digits)
    return max(most // 8 * 8 or most, 1)


def _rows(shape: Shape, num_blocks: int, width: int) -> int:
    num_cells = -(-num_blocks // shape.blocks_per_cell)
    return -(-num_cells // _per_row(shape, num_blocks, width))


def _grouped(cells: Sequence[Cell], size: int) -> list[Sequence[Cell]]:
    return [cells[start : start + size] for start in range(0, len(cells), size)]


# --- one cell -------------------------------------------------------------------------------------


def _append_cell(
    line: Text, group: Sequence[Cell], shape: Shape, digits: int, block_size: int
) -> None:
    cell = group[0]
    if shape.chip == 1:
        line.append(*_letter(group, block_size))
        return
    if shape.numbered:
        number_style = _change_style(cell.sign) if cell.sign else palette.DIM
        line.append(cell.sign or " ", number_style if cell.sign else palette.PLAIN)
        line.append(f"{cell.block:>{digits}}", number_style)
        line.append(" ")
    line.append_text(chip(cell, shape.chip, block_size))
    line.append(" " if shape.numbered else cell.sign or " ", palette.BOLD)


def chip(cell: Cell, width: int, block_size: int) -> Text:
    """Draw what a block holds in exactly `width` columns."""
    if not cell.owners:
        return Text((CACHED * width) if cell.is_cached else FREE.ljust(width), palette.DIM)
    label = _label(cell, width)
    full, eighths = divmod(cell.filled * width * 8 // block_size, 8)
    text = Text()
    for column in range(width):
        character = label[column : column + 1]
        owner = _owner_at(cell, column)
        if column < full:
            style = palette.PILL if owner is None else palette.owner_style(owner)
            text.append(character or palette.hatching(cell.owners[0]), style)
        elif character:
            text.append(character, palette.FRESH)
        elif column == full and eighths:
            text.append(_EIGHTHS[eighths], palette.bar_style(cell.owners[0]))
        else:
            text.append(EMPTY, palette.DIM)
    return text


def _label(cell: Cell, width: int) -> str:
    """Name the owners, and how many they are if more than one, in at most `width` characters."""
    names = [letters(owner) for owner in cell.owners]
    if len(names) == 1:
        return names[0][:width]
    count = f"×{len(names)}"
    for label in ("".join(names) + count, names[0] + count, count):
        if len(label) <= width:
            return label
    return "×" + "+" * (width - 1)


def _owner_at(cell: Cell, column: int) -> int | None:
    """Give the owner whose letter stands in a column; None where the count of a shared one is."""
    end = 0
    for owner in cell.owners:
        end += len(letters(owner))
        if column < end:
            return owner
    return cell.owners[0] if len(cell.owners) == 1 else None


def _letter(group: Sequence[Cell], block_size: int) -> tuple[str, Style]:
    """Draw one block, or several, as one character."""
    sign = next((cell.sign for cell in group if cell.sign), "")
    owners = {owner for cell in group for owner in cell.owners}
    if sign:
        return sign, _change_style(sign)
    if not owners:
        return (CACHED if any(cell.is_cached for cell in group) else FREE), palette.DIM
    first = min(owners)
    if len(owners) == 1:
        is_full = all(cell.filled == block_size for cell in group)
        return letters(first)[-1], palette.owner_style(first) if is_full else palette.FRESH
    is_one = len(group) == 1 and len(owners) < 10
    return (str(len(owners)) if is_one else MIXED), palette.PILL


def _change_style(sign: str) -> Style:
    return palette.EVICTED if sign == "!" else palette.CHANGED
