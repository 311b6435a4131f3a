"""Letters several cells wide, for those in the back row.

A letter is 3 by 5 pixels. At size 1 two pixels share a cell (half blocks: 3 columns, 3 rows), at
size 2 a pixel is two cells wide (6 columns, 5 rows), at size 3 four cells and two rows (12 columns,
10 rows).
"""

from __future__ import annotations

from collections.abc import Sequence

# Five octal digits a letter, one for each row: 4 is the left pixel, 1 the right one.
_SIGNS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:-+=→×/%!?"
_CODES = """
    25755 65656 34443 65556 74647 74644 34553 55755 72227 11152 55655 44447 57755
    65555 25552 65644 25563 65655 34216 72222 55557 55552 55775 55255 55222 71247
    75557 26227 71747 71717 55711 74717 74757 71222 75757 75717 00000 00002 00024
    02020 00700 02720 07070 21712 05250 11244 51245 22202 61202
"""
_GLYPHS = dict(zip(_SIGNS, _CODES.split(), strict=True))
_HALVES = {(0, 0): " ", (1, 0): "▀", (0, 1): "▄", (1, 1): "█"}
ROWS = {1: 3, 2: 5, 3: 10}
_PIXEL_COLUMNS = {1: 1, 2: 2, 3: 4}


def columns_of(text: str, size: int) -> int:
    """Give how many columns a text takes, one pixel between letters included."""
    return max(4 * len(text) - 1, 0) * _PIXEL_COLUMNS[size]


def big(text: str, size: int = 1) -> list[str]:
    """Give the rows of a text; small letters become large ones, unknown signs a question mark.

    >>> for row in big("A7"):
    ...     print(row)
    ▄▀▄ ▀▀█
    █▀█  █
    ▀ ▀  ▀
    """
    pixels = _pixels(text.upper())
    if size > 1:
        cell = _PIXEL_COLUMNS[size]
        rows = ["".join("█ "[not pixel] * cell for pixel in row) for row in pixels]
        rows = [row for row in rows for _ in range(size - 1)]
    else:
        pairs = zip(pixels[::2], [*pixels[1::2], [0] * len(pixels[0])], strict=True)
        rows = ["".join(_HALVES[pair] for pair in zip(*both, strict=True)) for both in pairs]
    return [row.rstrip() for row in rows]


def _pixels(text: str) -> list[list[int]]:
    """Give five rows of pixels, with an empty column between letters."""
    glyphs = [_GLYPHS.get(letter, _GLYPHS["?"]) for letter in text] or [_GLYPHS[" "]]
    rows = []
    for number in range(5):
        bits = [int(glyph[number]) for glyph in glyphs]
        rows.append([bit for row in bits for bit in (row >> 2 & 1, row >> 1 & 1, row & 1, 0)][:-1])
    return rows


def wrapped(words: str, width: int, size: int, most_lines: int) -> Sequence[str] | None:
    """Break words into lines of about equal length that fit at this size; None if they don't.

    >>> wrapped("A COPIES 3 TO 5", 50, 1, 2)
    ['A COPIES', '3 TO 5']
    """
    lines = _filled(words, width, size)
    if len(lines) > most_lines or any(columns_of(line, size) > width for line in lines):
        return None
    for narrower in range(width, 0, -1):
        if len(_filled(words, narrower, size)) > len(lines):
            return _filled(words, narrower + 1, size)
    return lines


def _filled(words: str, width: int, size: int) -> list[str]:
    """Put as many words into each line as fit; a word that is too long has one of its own."""
    lines: list[str] = []
    for word in words.split():
        if lines and columns_of(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
