"""`minipaged exercise`: check a file, give a hint, show the solution, or list what is solved."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from minipaged.commands.hypothesis_folder import keep_notes_in_the_cache
from minipaged.errors import ConfigError
from minipaged.exercises.catalog import EXERCISES, find_exercise
from minipaged.exercises.checking import check
from minipaged.exercises.exercise import Exercise
from minipaged.exercises.files import NUM_HINTS, hint, load_attempt, solution
from minipaged.exercises.student_folder import StudentFolder
from minipaged.exercises.verdict import Verdict
from minipaged.memory.trace import is_trace

_SIGNS = {"passed": ("✓", "green"), "failed": ("✗", "red"), "unsolved": ("…", "blue")}


def show_exercises() -> None:
    """List the exercises, and which are solved in the folder of the student's that this is."""
    folder = StudentFolder.around()
    solved = folder.solved if folder else []
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("", "number", "what", "you write"):
        table.add_column(title, overflow="fold")
    for exercise in EXERCISES:
        sign = Text("✓", "green") if exercise.number in solved else Text("·", "dim")
        table.add_row(sign, exercise.number, exercise.title, Text(exercise.signatures[0]))
    console = Console(highlight=False, emoji=False)
    console.print(table)
    done = sum(exercise.number in solved for exercise in EXERCISES)
    told = (
        f"{done} of {len(EXERCISES)} solved in {folder.path}"
        if folder
        else "minipaged learn gives you a folder to work in"
    )
    console.print(f"\n{told}", markup=False, soft_wrap=True)


def check_exercise(number: str, file: Path | None, trace: Path | None) -> bool:
    """Check what a student wrote; tell whether it is right.

    Raises:
        ConfigError: There is no such exercise, or no such file, or it can't be run.
        TraceError: The trace can't be written.
    """
    exercise = find_exercise(number)
    keep_notes_in_the_cache()
    path = file or _file_of(exercise)
    with _no_input():
        verdict = check(exercise, load_attempt(exercise, path))
    _show(verdict)
    if verdict.status == "unsolved":
        print(f"it goes into {path}")
    beside = path.with_suffix(".jsonl" if file is None else ".case.jsonl")
    _keep_trace(verdict, trace or beside, is_asked_for=trace is not None)
    return verdict.passed


def show_hint(number: str, which: int) -> None:
    """Print one of three hints.

    Raises:
        ConfigError: There is no such exercise, or only three hints.
    """
    exercise = find_exercise(number)
    console = Console(highlight=False, emoji=False)
    console.print(f"Hint {which} of {NUM_HINTS}: {hint(exercise, which)}", markup=False)


def show_solution(number: str) -> None:
    """Print the solution.

    Raises:
        ConfigError: There is no such exercise.
    """
    text = solution(find_exercise(number)).read_text(encoding="utf-8")
    console = Console()
    if console.is_terminal:
        console.print(Syntax(text, "python", theme="ansi_dark", background_color="default"))
    else:
        print(text, end="")


def _file_of(exercise: Exercise) -> Path:
    """Give the student's file: in the folder around here, or in one right below."""
    folder = StudentFolder.around()
    if folder is None:
        raise ConfigError(
            f"no {exercise.file} to check here: minipaged learn gives you a folder with all "
            "exercises, or name your file with --file"
        )
    return folder.path / "exercises" / exercise.file


@contextlib.contextmanager
def _no_input() -> Iterator[None]:
    """Let code that asks find that nobody answers, and undo what it does to the streams."""
    streams = sys.stdin, sys.stdout, sys.stderr
    with open(os.devnull, encoding="utf-8") as nothing:
        sys.stdin = nothing
        try:
            yield
        finally:
            sys.stdin, sys.stdout, sys.stderr = streams


def _show(verdict: Verdict) -> None:
    sign, color = _SIGNS[verdict.status]
    console = Console(highlight=False, emoji=False)
    head = f"Exercise {verdict.exercise.number}, {verdict.exercise.title}: {verdict.words}"
    console.print(Text.assemble((f"{sign} ", color), (head, "bold")))
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for title, words in verdict.rows():
        table.add_row(title, Text(words))
    if table.rows:
        console.print(table)


def _keep_trace(verdict: Verdict, path: Path, is_asked_for: bool) -> None:
    """Write the counterexample beside the attempt; one that is out of date is removed.

    Only traces are ever replaced or removed.
    """
    console = Console(highlight=False, emoji=False)
    if verdict.counterexample is not None:
        verdict.counterexample.trace.save(path)
        words = f"\nminipaged watch --replay {_quoted(path)} shows the memory of this case"
        console.print(words, markup=False, soft_wrap=True)
    elif not is_asked_for and is_trace(path):
        path.unlink()
    if not verdict.passed:
        number = verdict.exercise.number
        console.print(f"minipaged exercise {number} --hint 1 helps, up to --hint {NUM_HINTS}")


def _quoted(path: Path) -> str:
    """Give a path as one word for the shells of this system."""
    is_windows = sys.platform == "win32"
    return subprocess.list2cmdline([str(path)]) if is_windows else shlex.quote(str(path))
