"""`check(ex_3_1, my_function)`: the same judgement in a notebook, in the terminal and in tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from minipaged.errors import ConfigError
from minipaged.exercises.attempt import NotSolvedError
from minipaged.exercises.exercise import Exercise
from minipaged.exercises.search import SlowAttemptError, smallest_failure
from minipaged.exercises.student_folder import StudentFolder
from minipaged.exercises.verdict import FAILED, PASSED, UNSOLVED, Verdict


def check(exercise: Exercise, attempt: Any) -> Verdict:
    """Check an attempt and note in the student's folder, if this is one, that it passed.

    It never raises for what the attempt does: that is in the verdict.
    """
    verdict = judge(exercise, attempt)
    if verdict.passed:
        try:
            folder = StudentFolder.around()
            if folder is not None:
                folder.note_solved(exercise.number)
        except ConfigError as e:  # right it is all the same
            return replace(verdict, words=f"{verdict.words}; but it can't be noted: {e}")
    return verdict


def judge(exercise: Exercise, attempt: Any) -> Verdict:
    """Check an attempt, and note nothing."""
    misfit = exercise.misfit(attempt)
    if misfit:
        return Verdict(exercise, FAILED, misfit)
    try:
        found = smallest_failure(exercise, attempt)
    except NotSolvedError as e:
        task = str(e).removeprefix(f"Exercise {exercise.number}: ")
        told_in_the_title = task in ("", exercise.title)
        words = "not solved yet" if told_in_the_title else f"not solved yet: {task}"
        return Verdict(exercise, UNSOLVED, words)
    except SlowAttemptError as e:
        return Verdict(exercise, FAILED, str(e))
    if found is None:
        return Verdict(exercise, PASSED, "solved: right in every case that was tried")
    return Verdict(exercise, FAILED, "not yet: here is the smallest case that goes wrong", found)
