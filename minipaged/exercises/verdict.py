"""What a check came to: a line in the terminal; in a notebook words, and the case in the player."""

from __future__ import annotations

import html
from dataclasses import dataclass

from minipaged.exercises.exercise import Counterexample, Exercise

PASSED, FAILED, UNSOLVED = "passed", "failed", "unsolved"


@dataclass(frozen=True)
class Verdict:
    """The outcome of a check.

    Attributes:
        exercise: What was checked.
        status: "passed", "failed" or "unsolved".
        words: One line about it.
        counterexample: The smallest case that went wrong, where one was found.
    """

    exercise: Exercise
    status: str
    words: str
    counterexample: Counterexample | None = None

    @property
    def passed(self) -> bool:
        """Whether the exercise is solved."""
        return self.status == PASSED

    def rows(self) -> list[tuple[str, str]]:
        """Give what there is to tell of the counterexample, in pairs of a title and words."""
        found = self.counterexample
        if found is None:
            return []
        named = (
            ("smallest case", found.case),
            ("expected", found.expected),
            ("yours", found.got),
            ("why", found.why),
        )
        return [(title, words) for title, words in named if words]

    def __str__(self) -> str:
        lines = [f"Exercise {self.exercise.number}, {self.exercise.title}: {self.words}"]
        return "\n".join([*lines, *(f"  {title:<14} {words}" for title, words in self.rows())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Give the words as HTML; nothing that a student's code says becomes markup."""
        sign = {PASSED: "✓", FAILED: "✗", UNSOLVED: "…"}[self.status]
        color = {PASSED: "#009e73", FAILED: "#d55e00", UNSOLVED: "#0072b2"}[self.status]
        head = html.escape(f"Exercise {self.exercise.number}, {self.exercise.title}: {self.words}")
        rows = "".join(
            f'<div style="font-weight:600">{title}</div><div style="font-family:monospace;'
            f'white-space:pre-wrap;overflow-wrap:anywhere">{html.escape(words)}</div>'
            for title, words in self.rows()
        )
        grid = "display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin-top:6px"
        return (
            f'<div style="border-left:4px solid {color};padding:4px 12px">'
            f'<strong>{sign} {head}</strong><div style="{grid}">{rows}</div></div>'
        )

    def _ipython_display_(self) -> None:
        """Show the words, and below them the player at the place where it went wrong."""
        from IPython.display import HTML, display

        display(HTML(self._repr_html_()))  # type: ignore[no-untyped-call]
        if self.counterexample is not None:
            from minipaged_visualizer.memory_player import MemoryPlayer

            self.counterexample.trace.close()  # nobody waits for more
            display(  # type: ignore[no-untyped-call]
                MemoryPlayer(self.counterexample.trace, at_end=True)
            )
