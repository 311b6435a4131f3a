"""Predict, then run: a guess is set beside what really came out."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

from minipaged.exercises.attempt import same, shown


@dataclass(frozen=True)
class Reveal:
    """A guess, the answer, and why it is so."""

    guess: Any
    answer: Any
    why: str

    @property
    def is_right(self) -> bool:
        """Whether the guess is the answer; a float may be off by a hundredth of it."""
        if isinstance(self.answer, float) and isinstance(self.guess, int | float):
            return abs(self.guess - self.answer) <= abs(self.answer) / 100
        return same(self.guess, self.answer)

    @property
    def words(self) -> str:
        """The outcome in one line."""
        answer = shown(self.answer)
        if self.guess is None or self.guess is ...:
            return f"No guess yet. It is {answer}."
        if self.is_right:
            return f"Right: {answer}."
        return f"You said {shown(self.guess)}. It is {answer}."

    def __repr__(self) -> str:
        return f"{self.words}\n{self.why}"

    def _repr_html_(self) -> str:
        color = "#009e73" if self.is_right else "#0072b2"
        return (
            f'<div style="border-left:4px solid {color};padding:4px 12px">'
            f"<strong>{html.escape(self.words)}</strong><br>{html.escape(self.why)}</div>"
        )


def reveal(guess: Any, answer: Any, why: str) -> Reveal:
    """Set a guess beside the answer.

    >>> reveal(3, 2, "The second block is half full.")
    You said 3. It is 2.
    The second block is half full.

    Args:
        guess: What the reader thinks; None or ... is no guess yet.
        answer: What was measured or computed a moment ago.
        why: One or two sentences.
    """
    return Reveal(guess, answer, why)
