"""A fault that can be switched on: the wrong code, which right code it replaces, and its story."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

Tokens: TypeAlias = Sequence[int]
Hits: TypeAlias = Sequence[tuple[int, str]]  # pairs (block, hash)


@dataclass(frozen=True)
class Bug:
    """One fault of the zoo.

    Attributes:
        name: What it is called by, e.g. "double-free".
        source: Where that was reported. Our code is a small re-creation of the mechanism.
        shows: What somebody who watches the trace in the player sees.
        caught_by: The invariant that catches it (see `invariants.INVARIANTS`).
        owner: The class or module whose `attribute` is replaced.
        wrong: What replaces it.
    """

    name: str
    source: str
    shows: str
    caught_by: str
    owner: Any
    attribute: str
    wrong: Callable[..., Any]

    @property
    def title(self) -> str:
        """What is wrong, in one line: the first of the docstring."""
        return self._docstring[0].rstrip(".")

    @property
    def story(self) -> str:
        """What went wrong in which engine: the rest of the docstring."""
        return " ".join(" ".join(self._docstring[1:]).split())

    @property
    def place(self) -> str:
        """The function of ours that is replaced, e.g. `BlockPool.share`."""
        return f"{self.owner.__name__.rpartition('.')[2]}.{self.attribute}"

    @property
    def code(self) -> str:
        """The wrong code, without decorator and docstring."""
        source = textwrap.dedent(inspect.getsource(self.wrong))
        (function,) = ast.parse(source).body
        assert isinstance(function, ast.FunctionDef)
        docstring, lines = function.body[0], source.splitlines()
        assert docstring.end_lineno is not None
        return "\n".join(
            lines[function.lineno - 1 : docstring.lineno - 1] + lines[docstring.end_lineno :]
        )

    @property
    def _docstring(self) -> list[str]:
        return (inspect.getdoc(self.wrong) or "").splitlines()

    @contextmanager
    def planted(self) -> Iterator[Bug]:
        """Put the wrong code in the place of the right one, until the `with` block is left.

        The whole process has the fault meanwhile. Inner ones are taken out first, so the same
        place may be replaced twice.
        """
        right = vars(self.owner)[self.attribute]
        setattr(self.owner, self.attribute, self.wrong)
        try:
            yield self
        finally:
            setattr(self.owner, self.attribute, right)


def replaces(
    owner: Any,
    attribute: str,
    *,
    name: str,
    source: str,
    shows: str,
    caught_by: str,
) -> Callable[[Callable[..., Any]], Bug]:
    """Make a bug of the function below: it stands for `owner.attribute` when it is switched on.

    Its docstring says what is wrong in the first line, and tells the story in the rest.
    """

    def make(wrong: Callable[..., Any]) -> Bug:
        assert attribute in vars(owner), f"{owner} has no {attribute}: plant {name} anew"
        return Bug(name, source, shows, caught_by, owner, attribute, wrong)

    return make
