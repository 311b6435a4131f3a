"""All exercises, in their order. A new one is entered here."""

from __future__ import annotations

import difflib

from minipaged.errors import ConfigError
from minipaged.exercises.chapter_1 import ex_1_1
from minipaged.exercises.chapter_2 import ex_2_1, ex_2_2
from minipaged.exercises.chapter_3 import ex_3_1, ex_3_2, ex_3_3
from minipaged.exercises.chapter_4 import ex_4_1, ex_4_2, ex_4_3
from minipaged.exercises.chapter_5 import ex_5_1, ex_5_2, ex_5_3
from minipaged.exercises.chapter_6 import ex_6_1, ex_6_2, ex_6_3
from minipaged.exercises.exercise import Exercise

EXERCISES: tuple[Exercise, ...] = (
    ex_1_1,
    ex_2_1,
    ex_2_2,
    ex_3_1,
    ex_3_2,
    ex_3_3,
    ex_4_1,
    ex_4_2,
    ex_4_3,
    ex_5_1,
    ex_5_2,
    ex_5_3,
    ex_6_1,
    ex_6_2,
    ex_6_3,
)


def find_exercise(number: str) -> Exercise:
    """Give the exercise of that number: "3.1", or "ex_3_1" as in the notebooks.

    Raises:
        ConfigError: There is none.
    """
    wanted = number.strip().removeprefix("ex_").replace("_", ".")
    numbers = [exercise.number for exercise in EXERCISES]
    if wanted not in numbers:
        close = difflib.get_close_matches(wanted, numbers, n=1)
        meant = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(numbers)}"
        raise ConfigError(f"there is no exercise {number!r}{meant}")
    return EXERCISES[numbers.index(wanted)]
