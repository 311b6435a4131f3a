"""What a grammar can say, in numbers: how many texts, how surprising, with how many readings.

Contract: exact, without sampling. What a mention costs depends on which slots are settled before
it, never on their words, so a phrase is followed with the set of settled slots as its state.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from training.storyteller.grammar import leads
from training.storyteller.notation import Choice, Mention, Node, Phrase, Row, Slot

Settled: TypeAlias = "frozenset[str]"


@dataclass(frozen=True)
class Tally:
    """The derivations of a phrase that end in one state."""

    texts: int = 1
    probability: float = 1.0
    weighted_nats: float = 0.0  # the sum of P * -log P
    least_nats: float = 0.0
    most_nats: float = 0.0

    def then(self, other: Tally) -> Tally:
        """Follow each of these with each of the others."""
        return Tally(
            self.texts * other.texts,
            self.probability * other.probability,
            self.weighted_nats * other.probability + self.probability * other.weighted_nats,
            self.least_nats + other.least_nats,
            self.most_nats + other.most_nats,
        )

    def beside(self, other: Tally) -> Tally:
        """Put these and others together."""
        return Tally(
            self.texts + other.texts,
            self.probability + other.probability,
            self.weighted_nats + other.weighted_nats,
            min(self.least_nats, other.least_nats),
            max(self.most_nats, other.most_nats),
        )


Tallies: TypeAlias = "dict[Settled, Tally]"


def count(phrase: Phrase, settled: Settled = frozenset()) -> Tally:
    """Tally all texts of a phrase, given which slots are settled before it."""
    total, *others = tally(phrase, settled).values()
    for other in others:
        total = total.beside(other)
    return total


def tally(phrase: Phrase, settled: Settled = frozenset()) -> Tallies:
    """Tally the texts of a phrase by the slots that are settled after it."""
    states: Tallies = {settled: Tally()}
    for node in phrase:
        after: Tallies = {}
        for state, before in states.items():
            for new_state, more in _tally_node(node, state).items():
                _add(after, new_state, before.then(more))
        states = after
    return states


def _tally_node(node: Node, settled: Settled) -> Tallies:
    if isinstance(node, Choice):
        return _tally_choice(node, settled)
    if isinstance(node, str) or node.slot.name in settled:
        return {settled: Tally()}
    rows, nats = len(node.slot.rows), math.log(len(node.slot.rows))
    return {settled | {node.slot.name}: Tally(rows, 1.0, nats, nats, nats)}


def _tally_choice(choice: Choice, settled: Settled) -> Tallies:
    states: Tallies = {}
    ways, nats = len(choice.alternatives), math.log(len(choice.alternatives))
    step = Tally(1, 1 / ways, nats / ways, nats, nats)
    for alternative in choice.alternatives:
        for state, more in tally(alternative, settled).items():
            _add(states, state, step.then(more))
    return states


def _add(states: Tallies, state: Settled, more: Tally) -> None:
    states[state] = states[state].beside(more) if state in states else more


def find_clashes(phrase: Phrase) -> list[str]:
    """Name each place where a text could fit two alternatives; none: each has one reading.

    Every choice is looked at with every combination of words that its alternatives' leads name.
    """
    clashes: list[str] = []
    _visit(phrase, frozenset(), clashes, set())
    return sorted(set(clashes))


def _visit(
    phrase: Phrase, settled: Settled, clashes: list[str], seen: set[tuple[Node, Settled]]
) -> set[Settled]:
    states = {settled}
    for node in phrase:
        states = {after for state in states for after in _visit_node(node, state, clashes, seen)}
    return states


def _visit_node(
    node: Node, settled: Settled, clashes: list[str], seen: set[tuple[Node, Settled]]
) -> set[Settled]:
    if isinstance(node, str):
        return {settled}
    if isinstance(node, Mention):
        if node.slot.name not in settled:
            clashes.extend(_overlaps([[text] for text in node.first_texts()]))
        return {settled | {node.slot.name}}
    slots = {slot.name: slot for a in node.alternatives for slot in _lead_slots(a)}
    known = [slot for name, slot in slots.items() if name in settled]
    key = (node, frozenset(slot.name for slot in known))
    if key not in seen:
        seen.add(key)
        for facts in _worlds(known):
            clashes.extend(_overlaps([leads(a, facts) for a in node.alternatives]))
    return {s for a in node.alternatives for s in _visit(a, settled, clashes, seen)}


def _overlaps(options: list[list[str]]) -> Iterator[str]:
    """Yield each lead that is also the beginning of another alternative's lead."""
    tagged = sorted((lead, index) for index, option in enumerate(options) for lead in option)
    for (first, one), (second, other) in itertools.combinations(tagged, 2):
        if one != other and second.startswith(first):
            yield f"{first!r} begins {second!r}"


def _worlds(slots: Sequence[Slot]) -> Iterator[Mapping[str, Row]]:
    """Yield every assignment of rows to slots."""
    for rows in itertools.product(*(slot.rows for slot in slots)):
        yield {slot.name: row for slot, row in zip(slots, rows, strict=True)}


def _lead_slots(phrase: Phrase) -> Iterator[Slot]:
    """Yield the slots that a phrase's leads can name."""
    for node in phrase:
        if isinstance(node, Mention):
            yield node.slot
        elif isinstance(node, Choice):
            for alternative in node.alternatives:
                yield from _lead_slots(alternative)
            return
