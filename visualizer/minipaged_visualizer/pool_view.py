"""The pool as a grid: one cell a block, a sign before those that changed.

The roomiest cells that fit are taken: a number and a wide chip; a chip in rows that are numbered;
a letter; at last a letter for 2, 4, 8, ... blocks, so that the largest pool is seen as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.text import Text

from minipaged_visualizer import palette
from minipaged_visualizer.block_chip import Cell, draw_chip, draw_letter, sign_style
from minipaged_visualizer.lines import line


class Shape(NamedTuple):
    """How cells are drawn: columns of the chip, and whether each has its block's number."""

    chip: int
    numbered: bool
    blocks_per_cell: int = 1


_WIDEST = 12
_NUMBERED = tuple(Shape(chip, True) for chip in (6, 5, 4, 3))
_CHIPS = tuple(Shape(chip, False) for chip in (4, 3, 2))
_LETTERS = tuple(Shape(1, False, 2**power) for power in range(23))


class Grid:
    """One pool, ready to be drawn."""

    def __init__(
        self,
        tables: Mapping[int, Sequence[int]],
        contents: Sequence[Sequence[object]],
        block_size: int,
        cached: Mapping[int, str],
        signs: Mapping[int, str],
    ) -> None:
        self.num_blocks = len(contents)
        self._contents = contents
        self._block_size = block_size
        self._cached = cached
        self._signs = signs
        self._owners: dict[int, list[int]] = {}
        for seq in sorted(tables):
            for block in tables[seq]:
                self._owners.setdefault(block, []).append(seq)

    def draw(self, shape: Shape, width: int, focus: int | None = None) -> list[Text]:
        """Draw the grid; the numbers of the blocks of `focus` stand out."""
        per_row, size = cells_per_row(shape, self.num_blocks, width), shape.blocks_per_cell
        num_cells = -(-self.num_blocks // size)
        digits = len(str(self.num_blocks - 1))
        by_cell = self._by_cell(size) if shape.chip == 1 else {}
        rows = []
        for start in range(0, num_cells, per_row):
            row = line() if shape.numbered else line((f"{start * size:>{digits}} ", palette.DIM))
            for number in range(start, min(start + per_row, num_cells)):
                if shape.chip == 1:
                    row.append(*draw_letter(by_cell.get(number, ())))
                else:
                    _append_cell(row, self.cell(number), shape, digits, focus)
            rows.append(row)
        return rows

    def cell(self, block: int) -> Cell:
        """Give what is drawn of one block."""
        owners = tuple(self._owners.get(block, ()))
        return Cell(
            block,
            owners,
            len(self._contents[block]) if owners else 0,
            self._block_size,
            not owners and block in self._cached,
            self._signs.get(block, ""),
        )

    def _by_cell(self, blocks_per_cell: int) -> dict[int, list[Cell]]:
        """Give, by the number of the cell they go to, the blocks that are more than free."""
        cells: dict[int, list[Cell]] = {}
        for block in sorted({*self._owners, *self._cached, *self._signs}):
            cells.setdefault(block // blocks_per_cell, []).append(self.cell(block))
        return cells


def _append_cell(row: Text, cell: Cell, shape: Shape, digits: int, focus: int | None) -> None:
    style = palette.FOCUS if focus in cell.owners else palette.DIM
    number = f"{cell.block:>{digits}}" if shape.numbered else ""
    row.append((cell.sign or " ") + number, sign_style(cell.sign) if cell.sign else style)
    row.append(" " if shape.numbered else "").append_text(draw_chip(cell, shape.chip))
    row.append(" " if shape.numbered else "")


# --- which shape fits -----------------------------------------------------------------------------


def choose_shape(num_blocks: int, width: int, rows: int, most_rows: int) -> Shape:
    """Give the roomiest shape that fits into `rows`; some may take `most_rows`.

    >>> choose_shape(num_blocks=16, width=80, rows=4, most_rows=4)
    Shape(chip=8, numbered=True, blocks_per_cell=1)
    >>> choose_shape(num_blocks=4096, width=80, rows=4, most_rows=4)
    Shape(chip=1, numbered=False, blocks_per_cell=16)
    """
    if num_rows(_NUMBERED[0], num_blocks, width) <= rows:
        return _widened(num_blocks, width)
    limits = [(_NUMBERED, rows), (_NUMBERED, most_rows), (_CHIPS, rows), (_LETTERS, most_rows)]
    fits = (
        shape
        for shapes, limit in limits
        for shape in shapes
        if num_rows(shape, num_blocks, width) <= limit
    )
    return next(fits, _LETTERS[-1])


def _widened(num_blocks: int, width: int) -> Shape:
    """Give the widest numbered chip that takes no more rows than the narrowest good one."""
    wanted = num_rows(_NUMBERED[0], num_blocks, width)
    wide = (Shape(chip, True) for chip in range(_WIDEST, _NUMBERED[0].chip, -1))
    return next((w for w in wide if num_rows(w, num_blocks, width) == wanted), _NUMBERED[0])


def num_rows(shape: Shape, num_blocks: int, width: int) -> int:
    """Give how many rows a pool takes."""
    num_cells = -(-num_blocks // shape.blocks_per_cell)
    return -(-num_cells // cells_per_row(shape, num_blocks, width))


def cells_per_row(shape: Shape, num_blocks: int, width: int) -> int:
    """Give the cells in a row: even rows, or a multiple of 8 where only rows have numbers."""
    digits = len(str(num_blocks - 1))
    if shape.numbered:
        most = (width + 1) // (digits + shape.chip + 3)
        return _evenly(num_blocks, max(most // 2 * 2, 1))
    most = (width - digits - 1) // (shape.chip + (shape.chip > 1))
    return max(most // 8 * 8 or most, 1)


def _evenly(num_cells: int, most: int) -> int:
    """Give rows of equal length, where that takes no more of them.

    >>> _evenly(16, most=10), _evenly(16, most=6)
    (8, 6)
    """
    num_rows = -(-num_cells // most)
    return -(-num_cells // num_rows)
