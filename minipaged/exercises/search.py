"""Finding the smallest case that an attempt gets wrong: hypothesis looks for one and shrinks it."""

from __future__ import annotations

import random
import time
from typing import Any

from hypothesis import HealthCheck, find, settings
from hypothesis.errors import Flaky, NoSuchExample

from minipaged.exercises.exercise import Counterexample, Exercise

SECONDS = 4.0
LONG = 1.0  # seconds; a case that takes longer is not made smaller
PATIENCE = 30.0  # seconds for all cases of an attempt that gets none wrong

_SETTINGS = settings(
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class SlowAttemptError(Exception):
    """No case went wrong, but they take too long. The message says how many were tried."""


class _OutOfTimeError(BaseException):
    """Ends a search. Hypothesis would take an Exception for one more failure to shrink."""


def smallest_failure(exercise: Exercise, attempt: Any) -> Counterexample | None:
    """Give the smallest case that goes wrong, or None; the same attempt gets the same one.

    After SECONDS the smallest one so far counts, and of an attempt that never ends the first one.

    Raises:
        SlowAttemptError: After PATIENCE not all cases are tried, and none went wrong.
    """
    search = _Search(exercise, attempt)
    limited = settings(_SETTINGS, max_examples=exercise.max_cases)
    try:
        case = find(exercise.cases(), search.fails, settings=limited, random=random.Random(0))
    except NoSuchExample:
        return None
    except (_OutOfTimeError, Flaky):  # flaky: the attempt does not always do the same
        if search.shortest is None:
            tried = f"{search.num_tried} of {exercise.max_cases} cases"
            raise SlowAttemptError(f"too slow: {tried} took {PATIENCE:.0f} seconds") from None
        return search.shortest
    return exercise.judge(attempt, case) or search.shortest


class _Search:
    """Judges case after case, and remembers the shortest that failed."""

    def __init__(self, exercise: Exercise, attempt: Any) -> None:
        self._exercise, self._attempt = exercise, attempt
        self._began_at = time.monotonic()
        self.num_tried = 0
        self.shortest: Counterexample | None = None

    def fails(self, case: Any) -> bool:
        start = time.monotonic()
        if start - self._began_at > (PATIENCE if self.shortest is None else SECONDS):
            raise _OutOfTimeError
        self.num_tried += 1
        found = self._exercise.judge(self._attempt, case)
        if found is None:
            return False
        if self.shortest is None or len(found.case) <= len(self.shortest.case):
            self.shortest = found
        if time.monotonic() - start > LONG:
            raise _OutOfTimeError
        return True
