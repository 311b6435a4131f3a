"""A notation for texts with choices: what stands in `stories.py`, read into a tree.

    [a|b]      one of the alternatives, all equally likely
    {kind}     a slot: its first mention chooses a row of its table, later ones repeat this row
    {a kind}   the same with the article, "a fox" or "an otter"; {He} is {he} with a capital letter
    <opening>  the text of another rule

Contract: the tree holds no rule references any more, so it is finite; whatever the notation gets
wrong (an unclosed bracket, an unknown slot, a rule inside itself) is a `NotationError`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

Row: TypeAlias = Mapping[str, str]  # column -> word

_MARKS: Final = re.compile(r"[\[|\]]|<[^<>]*>|\{[^{}]*\}|[^\[|\]<>{}]+|.", re.DOTALL)


class NotationError(ValueError):
    """A rule is written wrongly."""


@dataclass(frozen=True, eq=False)
class Slot:
    """A table of words that agree: a row is chosen once, and each column is a form of it."""

    name: str
    rows: tuple[Row, ...]

    @classmethod
    def of_words(cls, name: str, words: str) -> Slot:
        """Give a slot with one form, named like the slot, from words parted by commas."""
        return cls(name, tuple({name: word.strip()} for word in words.split(",")))


@dataclass(frozen=True, eq=False)
class Mention:
    """A place where a slot's word stands, in one of its forms."""

    slot: Slot
    column: str
    article: bool = False
    capital: bool = False

    def text(self, row: Row) -> str:
        """Give the words that stand here if this row was chosen."""
        word = row[self.column]
        word = word.capitalize() if self.capital and not self.article else word
        article = ("An " if word[0] in "aeiou" else "A ") if self.article else ""
        return (article if self.capital else article.lower()) + word

    def first_texts(self) -> list[str]:
        """Give what could stand here if the slot is still open, a text for each row."""
        return [self.text(row) for row in self.slot.rows]


@dataclass(frozen=True, eq=False)
class Choice:
    """A place where one of several phrases stands."""

    alternatives: tuple[Phrase, ...]


Node: TypeAlias = "str | Mention | Choice"
Phrase: TypeAlias = "tuple[Node, ...]"


def read_rules(rules: Mapping[str, str], slots: Sequence[Slot]) -> dict[str, Phrase]:
    """Read every rule into its tree.

    Raises:
        NotationError: A rule is written wrongly.
    """
    reader = _RuleReader(rules, {column: slot for slot in slots for column in slot.rows[0]})
    return {name: reader.rule(name) for name in rules}


class _RuleReader:
    """Reads rules, each once: a phrase that stands in many places is one object."""

    def __init__(self, rules: Mapping[str, str], columns: Mapping[str, Slot]) -> None:
        self._rules = rules
        self._columns = columns
        self._done: dict[str, Phrase] = {}
        self._inside: list[str] = []

    def rule(self, name: str) -> Phrase:
        if name not in self._done:
            if name not in self._rules:
                raise self._error(f"there is no rule <{name}>")
            if name in self._inside:
                raise self._error(f"<{name}> contains itself")
            self._inside.append(name)
            self._done[name] = self._read(self._rules[name])
            self._inside.pop()
        return self._done[name]

    def _read(self, text: str) -> Phrase:
        marks = iter(_MARKS.findall(text))
        phrase, end = self._phrase(marks)
        if end:
            raise self._error(f"{end!r} stands outside of any bracket")
        return phrase

    def _phrase(self, marks: Iterator[str]) -> tuple[Phrase, str]:
        """Read up to the next `|`, `]` or the end; give the phrase and what ended it."""
        nodes: list[Node] = []
        for mark in marks:
            if mark in "|]":
                return tuple(nodes), mark
            nodes.extend(self._nodes(mark, marks))
        return tuple(nodes), ""

    def _nodes(self, mark: str, marks: Iterator[str]) -> Phrase:
        if mark == "[":
            return (self._choice(marks),)
        if mark[0] == "<" and mark[-1] == ">":
            return self.rule(mark[1:-1])
        if mark[0] == "{" and mark[-1] == "}":
            return (self._mention(mark[1:-1]),)
        if mark in "<>{}":
            raise self._error(f"{mark!r} has no counterpart")
        return (mark,)

    def _choice(self, marks: Iterator[str]) -> Choice:
        alternatives, end = [], "|"
        while end == "|":
            phrase, end = self._phrase(marks)
            alternatives.append(phrase)
        if not end:
            raise self._error("a '[' is never closed")
        if len(alternatives) < 2:
            raise self._error("a choice needs two alternatives")
        return Choice(tuple(alternatives))

    def _mention(self, words: str) -> Mention:
        article = words[:2].lower() == "a "
        column = words[2:] if article else words
        lower = column.lower()
        if lower not in self._columns:
            raise self._error(f"no slot has a form {{{column}}}")
        return Mention(self._columns[lower], lower, article, capital=words[0].isupper())

    def _error(self, what: str) -> NotationError:
        return NotationError(f"rule <{self._inside[-1]}>: {what}")
