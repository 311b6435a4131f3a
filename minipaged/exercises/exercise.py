"""An exercise: what is asked, what a case of it is, and who judges an attempt.

A judge plays one case with a student's function and gives None if it was right, else the case in
words, what was expected, and a trace that ends where it went wrong. It neither knows nor cares
whether the function is a student's, the solution's or the engine's own.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minipaged.memory.trace import Trace

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

MAX_CASES = 300


@dataclass(frozen=True)
class Counterexample:
    """One case that an attempt gets wrong.

    Attributes:
        case: The case in words, best as a call: "slot_mapping([7, 2], start=2, ...)".
        expected: What is right.
        got: What the attempt gave, or did.
        why: What that means for memory, and so the likely cause.
        trace: The memory of the case, up to where it went wrong.
    """

    case: str
    expected: str
    got: str
    why: str
    trace: Trace


Judge = Callable[[Any, Any], "Counterexample | None"]


@dataclass(frozen=True)
class Exercise:
    """One task for a student.

    Attributes:
        number: Chapter and place, as "3.1".
        title: What is to be built, in a few words.
        signatures: What the attempt must look like: "slot_mapping(block_table, start)". For a
            class: its own first, as "BlockPool(num_blocks)", then each method's without self.
        cases: Gives hypothesis's description of all cases; small ones come first.
        judge: Plays a case, given the attempt and the case.
        twin: Where the engine does the same, as "minipaged.memory.block_table:slot_mapping"; what
            stands there passes the same check.
        max_cases: How many cases are tried, fewer where one takes long.
    """

    number: str
    title: str
    signatures: tuple[str, ...]
    cases: Callable[[], SearchStrategy[Any]]
    judge: Judge
    twin: str | None = None
    max_cases: int = MAX_CASES

    @property
    def chapter(self) -> int:
        """The chapter that it belongs to."""
        return int(self.number.partition(".")[0])

    @property
    def name(self) -> str:
        """What the attempt is called: a function or a class."""
        return self.signatures[0].partition("(")[0]

    @property
    def file(self) -> str:
        """The name of the starter's file, and of the solution's."""
        return f"ex_{self.number.replace('.', '_')}.py"

    def misfit(self, attempt: Any) -> str:
        """Tell how an attempt's signature differs from what is asked; empty if it doesn't."""
        if not callable(attempt):
            return f"check takes {self.signatures[0]}, not {type(attempt).__name__}"
        if len(self.signatures) > 1 and not isinstance(attempt, type):
            return f"check takes the class {self.name}, not one of its objects"
        for index, wanted in enumerate(self.signatures):
            found = attempt if index == 0 else getattr(attempt, wanted.partition("(")[0], None)
            if not callable(found):
                return f"{self.name} needs a method {wanted}"
            if _parameters(found) != re.findall(r"(\w+)(?=[,)])", wanted):
                return f"it should be {wanted}, not {_called(found, wanted)}"
        return ""


def _parameters(function: Any) -> list[str]:
    try:
        # A kernel of Triton's keeps its function in `fn`.
        names = list(inspect.signature(getattr(function, "fn", function)).parameters)
    except (TypeError, ValueError):  # a builtin without one
        return []
    return names[1:] if names[:1] == ["self"] else names


def _called(function: Any, wanted: str) -> str:
    return f"{wanted.partition('(')[0]}({', '.join(_parameters(function))})"
