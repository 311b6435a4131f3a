"""The source of a running kernel: which statements are around a line.

It is read as Python's tracebacks do, so that a kernel in a notebook's cell is found, too.
"""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache

from minipaged_kernels.interpreter import SourceLine


def source_of(file: str, kernel: str) -> tuple[int, list[str]]:
    """Give a kernel's lines, decorators included, and the number of the first."""
    for node in _statements(file):
        if isinstance(node, ast.FunctionDef) and node.name == kernel:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            lines = linecache.getlines(file)[first - 1 : _end(node)]
            return first, [line.rstrip("\r\n") for line in lines]
    raise AssertionError(f"{kernel} was run, but is not in {file}")


def statement_at(place: SourceLine) -> tuple[int, int]:
    """Give the first and last line of the smallest statement that covers a line."""
    found = [node for node in _statements(place.file) if node.lineno <= place.line <= _end(node)]
    smallest = min(found, key=lambda node: _end(node) - node.lineno)
    return smallest.lineno, _end(smallest)


def rest_of_loop(place: SourceLine) -> tuple[int, int]:
    """Give the first and last line of what the loop around a line does after it."""
    loops = [
        node
        for node in _statements(place.file)
        if isinstance(node, ast.For) and node.lineno < place.line <= _end(node)
    ]
    after = [node for node in loops[-1].body if node.lineno > place.line] if loops else []
    return (after[0].lineno, _end(after[-1])) if after else statement_at(place)


def lines_between(start: SourceLine, end: SourceLine) -> tuple[int, int]:
    """Give the first and last line of the statements between two lines."""
    inside = [n for n in _statements(start.file) if start.line < n.lineno < end.line]
    if not inside:
        return statement_at(end)
    return min(node.lineno for node in inside), max(map(_end, inside))


def _statements(file: str) -> list[ast.stmt]:
    return _parsed("".join(linecache.getlines(file)))


@lru_cache(maxsize=16)
def _parsed(source: str) -> list[ast.stmt]:
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno
