"""Every exercise: starters are unsolved, solutions and the engine's code pass, mistakes fail.

`wrong_N.py` has the mistakes of a chapter: `WRONG[number][name] = (attempt, words)`; the check must
say these words.
"""

from __future__ import annotations

import importlib
import json
import re
from types import ModuleType
from typing import Any

import pytest
from minipaged_visualizer.payload import trace_payload

from minipaged.exercises.catalog import EXERCISES, find_exercise
from minipaged.exercises.checking import judge
from minipaged.exercises.exercise import Exercise
from minipaged.exercises.files import NUM_HINTS, hint, load_attempt, solution, starter, tutorials
from minipaged.exercises.verdict import Verdict
from minipaged.memory.replay import Replay
from minipaged.memory.trace import Trace

LEAST_MISTAKES = 5
each = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.number)


def mistakes_of(chapter: int) -> dict[str, dict[str, tuple[Any, str]]]:
    module: ModuleType = importlib.import_module(f"wrong_{chapter}")
    found: dict[str, dict[str, tuple[Any, str]]] = module.WRONG
    return found


MISTAKES = [
    pytest.param(exercise, attempt, words, id=f"{exercise.number}-{name}")
    for exercise in EXERCISES
    for name, (attempt, words) in mistakes_of(exercise.chapter).get(exercise.number, {}).items()
]


def definition(text: str, name: str) -> str:
    """The lines of a function or class in a source, up to the next thing at its level."""
    found = re.search(
        rf"^(?:@.*\n)*(?:def|class) {name}\b.*\n(?:[ \t].*\n|\n)*", text, re.MULTILINE
    )
    assert found, f"{name} is not defined"
    return found[0].rstrip()


@each
def test_the_starter_is_unsolved_and_fits(exercise: Exercise) -> None:
    attempt = load_attempt(exercise, starter(exercise))
    assert exercise.misfit(attempt) == ""
    verdict = judge(exercise, attempt)
    assert verdict.status == "unsolved"
    assert verdict.words.startswith("not solved yet")
    text = starter(exercise).read_text(encoding="utf-8")
    assert f'raise NotImplementedError("Exercise {exercise.number}: ' in text


@each
def test_the_solution_passes(exercise: Exercise) -> None:
    verdict = judge(exercise, load_attempt(exercise, solution(exercise)))
    assert verdict.passed, verdict


@pytest.mark.parametrize(
    "exercise", [e for e in EXERCISES if e.twin], ids=lambda exercise: exercise.number
)
def test_the_engines_own_code_passes(exercise: Exercise) -> None:
    assert exercise.twin
    module, _, name = exercise.twin.partition(":")
    verdict = judge(exercise, getattr(importlib.import_module(module), name))
    assert verdict.passed, verdict


@pytest.mark.parametrize(("exercise", "attempt", "words"), MISTAKES)
def test_a_mistake_is_found_and_named(exercise: Exercise, attempt: Any, words: str) -> None:
    verdict = judge(exercise, attempt)
    assert verdict.status == "failed"
    assert words in str(verdict), verdict
    assert verdict.counterexample, verdict
    stops_where_it_went_wrong(verdict)


def stops_where_it_went_wrong(verdict: Verdict) -> None:
    """Its trace replays, survives a file and a browser's payload, and ends in words."""
    assert verdict.counterexample
    trace: Trace = verdict.counterexample.trace
    header = trace.header
    state = Replay(header.num_blocks, header.block_size, header.num_swap_blocks)
    for step in trace.all_steps():
        for event in step.events:
            state.apply(event)
    assert trace.steps
    assert trace.steps[-1].note
    assert any(step.events for step in trace.steps)
    assert json.dumps(trace_payload(header, trace.all_steps()))


@each
def test_there_are_mistakes_enough(exercise: Exercise) -> None:
    assert len(mistakes_of(exercise.chapter)[exercise.number]) >= LEAST_MISTAKES


@each
def test_there_are_three_hints(exercise: Exercise) -> None:
    hints = [hint(exercise, number) for number in range(1, NUM_HINTS + 1)]
    assert len(set(hints)) == NUM_HINTS
    assert all(hints)


@each
def test_the_notebook_has_the_starter_word_for_word(exercise: Exercise) -> None:
    (chapter,) = tutorials().glob(f"{exercise.chapter}_*.py")
    text = chapter.read_text(encoding="utf-8")
    wanted = definition(starter(exercise).read_text(encoding="utf-8"), exercise.name)
    assert definition(text, exercise.name) == wanted
    assert f"check(ex_{exercise.number.replace('.', '_')}, {exercise.name})" in text


def test_nothing_lies_around_that_no_exercise_needs() -> None:
    files = {exercise.file for exercise in EXERCISES}
    folder = tutorials() / "exercises"
    assert {path.name for path in folder.glob("*.py")} == files
    assert {path.name for path in (folder / "solutions").glob("*.py")} == files
    hints = json.loads((folder / "hints.json").read_text(encoding="utf-8"))
    assert set(hints) == {exercise.number for exercise in EXERCISES}


def test_an_exercise_is_found_by_either_name() -> None:
    first = EXERCISES[0]
    assert find_exercise(first.number) is find_exercise(first.file[:-3]) is first


def test_the_same_mistake_gives_the_same_case() -> None:
    exercise, attempt, _ = MISTAKES[0].values
    assert str(judge(exercise, attempt)) == str(judge(exercise, attempt))


def test_numbers_are_in_order() -> None:
    places = [tuple(map(int, exercise.number.split("."))) for exercise in EXERCISES]
    assert places == sorted(set(places))
