"""Text from models and files, made harmless for a terminal.

A token may hold anything: escape sequences, line breaks, half characters, marks that turn the
direction of a line around. `safe` gives text in which every character is printable and has a width
that terminals agree on; `fit` and `tail` cut by cell width, so that a wide character never breaks a
column.
"""

from __future__ import annotations

import unicodedata

from rich.cells import cell_len, get_character_cell_size

REPLACEMENT = "�"
_NAMED = {"\n": "↵", "\r": "␍", "\t": "⇥", "\x7f": "␡", "\u2028": "↵", "\u2029": "↵"}
_JOINERS = {"\u200d", *map(chr, range(0xFE00, 0xFE10)), *map(chr, range(0x1F3FB, 0x1F400))}
_MAX_MARKS = 2


def safe(text: str) -> str:
    r"""Give `text` without anything that could act on the terminal.

    Line breaks and control characters become signs; joiners and variation selectors, which only
    change how an emoji looks, are dropped; what can't be shown becomes a replacement character.

    >>> safe("a\x1b[31m\n"), safe("\u202eb\ud800")
    ('a␛[31m↵', '�b�')
    """
    if text.isascii() and text.isprintable():
        return text
    shown: list[str] = []
    marks = _MAX_MARKS  # a mark needs a letter before it, and a few are enough
    for character in unicodedata.normalize("NFC", text):
        if character in _JOINERS:
            continue
        if unicodedata.category(character) in ("Mn", "Me"):
            marks += 1
            shown.append(character if marks <= _MAX_MARKS else "")
            continue
        shown.append(_printable(character))
        marks = 0
    return "".join(shown)


def _printable(character: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    if "\U0001f1e6" <= character <= "\U0001f1ff":  # two of them are a flag, or two letters
        return chr(ord("A") + ord(character) - 0x1F1E6)
    category = unicodedata.category(character)
    if category == "Cc":
        return chr(0x2400 + ord(character)) if character < " " else REPLACEMENT
    if category[0] == "C" or get_character_cell_size(character) == 0:
        return REPLACEMENT
    return " " if category == "Zs" else character


def fit(text: str, width: int) -> str:
    """Give the beginning of `text` in at most `width` cells; an ellipsis tells that more follows.

    >>> fit("paged attention", 8), fit("日本語", 4)
    ('paged a…', '日…')
    """
    if cell_len(text) <= width:
        return text
    return _take(text, width - 1) + "…" if width > 0 else ""


def tail(text: str, width: int) -> str:
    """Give the end of `text` in at most `width` cells.

    >>> tail("paged attention", 8)
    '…tention'
    """
    if cell_len(text) <= width:
        return text
    return "…" + _take(text[::-1], width - 1)[::-1] if width > 0 else ""


def _take(text: str, width: int) -> str:
    used = 0
    for index, character in enumerate(text):
        used += get_character_cell_size(character)
        if used > width:
            return text[:index]
    return text


def wrap(text: str, width: int) -> list[str]:
    """Break `text` at spaces into lines of at most `width` cells; a longer word is cut.

    >>> wrap("A takes block 3 for its prompt", 12)
    ['A takes', 'block 3 for', 'its prompt']
    """
    lines: list[str] = []
    for word in text.split(" "):
        if lines and cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += " " + word
        else:
            lines.append(fit(word, width))
    return lines
