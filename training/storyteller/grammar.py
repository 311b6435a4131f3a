"""A grammar that writes texts, reads them back, and knows the probability of each.

Contract: one function, `Grammar.walk`, goes through a rule; the voice that it is given decides at
each choice. A `Teller` decides by chance, a `Listener` by the text that it hears. At a choice the
beginning of the text ahead tells which alternative it is (`counting.find_clashes` proves it), so
a text has one derivation or none, and -log P(text) is the sum of log n over its choices of n.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from training.storyteller.notation import Choice, Mention, Phrase, Row, Slot, read_rules

Facts: TypeAlias = "dict[str, Row]"  # slot name -> the row chosen for it
Leads: TypeAlias = "Callable[[int], Sequence[str]]"  # alternative -> what it can begin with


class Voice(Protocol):
    """Walks along with a grammar: speaks its words, or hears them, and decides."""

    def say(self, text: str) -> None:
        """Take the next piece of text."""

    def choose(self, count: int, leads: Leads) -> int:
        """Give the alternative to take, out of `count`."""


@dataclass(frozen=True)
class ChoicePoint:
    """A choice that was passed: at which character, and among how many alternatives."""

    position: int
    count: int


@dataclass(frozen=True)
class Derivation:
    """How a text came about: the choices in their order, and what they settled."""

    text: str
    choices: tuple[ChoicePoint, ...]
    facts: Mapping[str, Row]

    def nats(self, start: int = 0) -> float:
        """Give -log P(text), or, from the character `start` on, given all text before it."""
        return math.fsum(math.log(c.count) for c in self.choices if c.position >= start)


class GrammarError(ValueError):
    """A text leaves the grammar: at which character, and what could stand there."""

    def __init__(self, text: str, position: int, expected: Sequence[str]) -> None:
        self.position = position
        self.expected = tuple(sorted(set(expected)))
        found = text[position : position + 24]
        before = text[max(0, position - 24) : position]
        listed = ", ".join(map(repr, self.expected[:4])) + (", ..." if self.expected[4:] else "")
        super().__init__(
            f"character {position}, after {before!r}: found {found!r}, expected {listed}"
        )


class Grammar:
    """Rules and slots. A rule's texts are those that some sequence of choices makes."""

    def __init__(self, rules: Mapping[str, str], slots: Sequence[Slot]) -> None:
        self.rules = read_rules(rules, slots)

    def sample(self, rule: str, rng: random.Random) -> str:
        """Give a text of the rule, each with its probability."""
        teller = Teller(rng)
        walk(self.rules[rule], teller, {})
        return "".join(teller.pieces)

    def parse(self, rule: str, text: str) -> Derivation:
        """Give the derivation of a text.

        Raises:
            GrammarError: The text is none of the rule's.
        """
        listener = Listener(text)
        facts: Facts = {}
        walk(self.rules[rule], listener, facts)
        if listener.position < len(text):
            raise GrammarError(text, listener.position, ["the end"])
        return Derivation(text, tuple(listener.choices), facts)


def walk(phrase: Phrase, voice: Voice, facts: Facts) -> None:
    """Go through a phrase with a voice; `facts` gains the slots that are settled on the way."""
    for node in phrase:
        if isinstance(node, str):
            voice.say(node)
        elif isinstance(node, Choice):
            _choose(node, voice, facts)
        else:
            _mention(node, voice, facts)


def _choose(choice: Choice, voice: Voice, facts: Facts) -> None:
    alternatives = choice.alternatives
    index = voice.choose(len(alternatives), lambda i: leads(alternatives[i], facts))
    walk(alternatives[index], voice, facts)


def _mention(mention: Mention, voice: Voice, facts: Facts) -> None:
    slot = mention.slot
    if slot.name not in facts:
        index = voice.choose(len(slot.rows), lambda i: [mention.text(slot.rows[i])])
        facts[slot.name] = slot.rows[index]
    voice.say(mention.text(facts[slot.name]))


def leads(phrase: Phrase, facts: Mapping[str, Row]) -> list[str]:
    """Give what a phrase can begin with: its text up to the first choice, or that choice's leads.

    >>> leads(("the ", Choice((("fox",), ("hen",)))), {})
    ['the ']
    >>> leads((Choice((("the fox",), ("a hen",))),), {})
    ['the fox', 'a hen']
    """
    lead = ""
    for node in phrase:
        if isinstance(node, Mention) and node.slot.name in facts:
            node = node.text(facts[node.slot.name])
        if isinstance(node, str):
            lead += node
        elif lead:
            break
        elif isinstance(node, Mention):
            return node.first_texts()
        else:
            return [lead for phrase in node.alternatives for lead in leads(phrase, facts)]
    return [lead]


class Teller:
    """Makes a text up, each choice by chance."""

    def __init__(self, rng: random.Random) -> None:
        self.pieces: list[str] = []
        self._rng = rng

    def say(self, text: str) -> None:
        """Add it to the text."""
        self.pieces.append(text)

    def choose(self, count: int, leads: Leads) -> int:
        """Take any, each as likely as the others."""
        return self._rng.randrange(count)


class Listener:
    """Follows a text from left to right and notes each choice."""

    def __init__(self, text: str) -> None:
        self.position = 0
        self.choices: list[ChoicePoint] = []
        self._text = text

    def say(self, text: str) -> None:
        """Hear it, or raise."""
        if not self._text.startswith(text, self.position):
            raise GrammarError(self._text, self.position, [text])
        self.position += len(text)

    def choose(self, count: int, leads: Leads) -> int:
        """Take the one that the text goes on with, or raise."""
        expected = [(index, lead) for index in range(count) for lead in leads(index)]
        for index, lead in expected:
            if self._text.startswith(lead, self.position):
                self.choices.append(ChoicePoint(self.position, count))
                return index
        raise GrammarError(self._text, self.position, [lead for _, lead in expected])
