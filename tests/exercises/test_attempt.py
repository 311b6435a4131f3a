"""Whatever a student's function does, the check says so and goes on."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import ANY

import pytest

from minipaged.exercises.attempt import NotSolvedError, Raised, call, same, shown, time_limit
from minipaged.exercises.catalog import find_exercise
from minipaged.exercises.checking import judge
from minipaged.exercises.questions import reveal
from minipaged.exercises.verdict import Verdict
from minipaged.memory.block_table import slot_mapping

SLOTS = find_exercise("3.1")


def forever() -> None:
    while True:
        pass


def judged(attempt: Any) -> Verdict:
    return judge(SLOTS, attempt)


def test_an_endless_loop_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minipaged.exercises.attempt.SECONDS", 0.2)
    start = time.monotonic()
    outcome = call(forever)
    assert time.monotonic() - start < 2
    assert isinstance(outcome, Raised)
    assert "did not end" in str(outcome)


def test_a_loop_that_catches_exceptions_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minipaged.exercises.attempt.SECONDS", 0.2)

    def stubborn() -> None:
        while True:
            with contextlib.suppress(Exception):
                forever()

    assert isinstance(call(stubborn), Raised)


def test_what_is_in_time_is_not_interrupted_later() -> None:
    with time_limit(0.05):
        pass
    time.sleep(0.15)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda: sys.exit(3), "SystemExit: 3"),
        (lambda: [][1], "IndexError"),
        (lambda: (lambda f: f(f))(lambda f: f(f)), "RecursionError"),
    ],
)
def test_an_error_is_an_answer(function: Any, words: str) -> None:
    assert words in str(call(function))


def test_the_line_of_an_error_is_told() -> None:
    def divides() -> float:
        return 1 / 0  # here

    assert "return 1 / 0  # here" in str(call(divides))


def test_a_starter_is_no_error() -> None:
    def starter() -> None:
        raise NotImplementedError("Exercise 3.1: do it")

    with pytest.raises(NotSolvedError, match="do it"):
        call(starter)


class Odd:
    def __eq__(self, other: object) -> bool:
        raise ValueError("no")

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise ValueError("neither")


def test_odd_values_are_compared_and_shown() -> None:
    assert not same(Odd(), [1])
    assert "can't be shown" in shown(Odd())
    assert len(shown("x" * 5000)) <= 200
    assert "\n" not in shown("a\nb")


class Yes:
    """Is equal to everything, and takes itself for a number."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]

    @property
    def __class__(self) -> Any:  # type: ignore[misc]
        return int


class Exits:
    def __repr__(self) -> str:
        raise SystemExit(3)


class Denies:
    @property
    def __class__(self) -> Any:  # type: ignore[misc]
        raise RuntimeError("nobody knows")


class NoList(list[int]):
    def __len__(self) -> int:
        raise ValueError("no length")

    __iter__ = __len__  # type: ignore[assignment]
    __getitem__ = __len__  # type: ignore[assignment]


class MuteError(Exception):
    def __str__(self) -> str:
        raise ValueError("no message")


def itself() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


@pytest.mark.parametrize("exercise", ["1.1", "2.1", "3.1", "3.2", "4.2", "4.3"])
@pytest.mark.parametrize("make", [Yes, Exits, Denies, NoList, itself, lambda: ANY, lambda: [Yes()]])
def test_no_object_is_right_or_ends_the_check(exercise: str, make: Callable[[], Any]) -> None:
    asked = find_exercise(exercise)
    names = asked.signatures[0].partition("(")[2]
    attempt = eval(f"lambda {names[:-1]}: value", {"value": make()})
    verdict = judge(asked, attempt)
    assert verdict.status == "failed"
    assert len(verdict._repr_html_()) < 10_000


@pytest.mark.parametrize("error", [BaseException("x"), GeneratorExit("x"), MuteError("x")])
def test_whatever_is_raised_is_an_answer(error: BaseException) -> None:
    def raises() -> None:
        raise error

    assert type(error).__name__ in str(call(raises))


def test_a_loop_that_catches_everything_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minipaged.exercises.attempt.SECONDS", 0.2)

    def stubborn() -> None:
        while True:
            try:  # noqa: SIM105 (as students write it)
                sum(range(100))
            except:  # noqa: E722
                pass

    assert isinstance(call(stubborn), Raised)


def test_a_long_value_is_shown_at_once() -> None:
    start = time.monotonic()
    assert len(shown([[0] * 10**7, "x" * 10**8])) == 200
    assert time.monotonic() - start < 1


def test_nothing_acts_on_the_terminal() -> None:
    class Colorful:
        def __repr__(self) -> str:
            return "\x1b[31m\u202e"

    def raises() -> None:
        raise ValueError("\x1b[31m\u202e")

    assert shown(Colorful()).isprintable()
    assert str(call(raises)).isprintable()
    text = str(judged(lambda block_ids, start, stop, block_size: raises()))
    assert "\x1b" not in text


def test_an_object_in_place_of_its_class_is_refused() -> None:
    class Pool:
        def allocate(self) -> int: ...
        def free(self, block: int) -> None: ...
        def num_free(self) -> int: ...
        def __call__(self, num_blocks: int) -> None: ...

    verdict = judge(find_exercise("2.2"), Pool())
    assert verdict.words == "check takes the class BlockPool, not one of its objects"


@pytest.mark.parametrize("attempt", [None, 3, "slot_mapping", [1], object()])
def test_what_is_no_function_is_refused_in_a_line(attempt: Any) -> None:
    verdict = judged(attempt)
    assert verdict.status == "failed"
    assert "\n" not in str(verdict)


def test_another_signature_is_told() -> None:
    verdict = judged(lambda block_ids, start: [])
    assert "not slot_mapping(block_ids, start)" in verdict.words


@pytest.mark.parametrize(
    "value", [None, 1, "abc", {}, float("nan"), [None], [2**70], [Odd()], (x for x in [1]), [[]]]
)
def test_any_return_value_is_judged(value: Any) -> None:
    def attempt(block_ids: Any, start: int, stop: int, block_size: int) -> Any:
        return value

    verdict = judged(attempt)
    assert verdict.status == "failed"
    assert verdict.counterexample


def test_a_function_that_does_as_it_likes_is_judged() -> None:
    calls = iter(range(10**9))

    def fickle(block_ids: list[int], start: int, stop: int, block_size: int) -> list[int]:
        return [] if next(calls) % 2 else [block_ids[0] * block_size]

    assert judged(fickle).status == "failed"


def test_nothing_of_a_student_becomes_markup() -> None:
    def attempt(block_ids: Any, start: int, stop: int, block_size: int) -> Any:
        raise ValueError("<script>alert(1)</script>")

    html = judged(attempt)._repr_html_()
    assert "<script" not in html
    assert "&lt;script" in html
    assert "<b>" not in reveal("<b>", "<i>", "<u>")._repr_html_()


def test_a_guess_is_set_beside_the_answer() -> None:
    assert reveal(None, 5, "why").words == "No guess yet. It is 5."
    assert reveal(5, 5, "why").is_right
    assert reveal(0.996, 1.0, "why").is_right
    assert not reveal(0.5, 1.0, "why").is_right
    assert reveal(4, 5, "why").words == "You said 4. It is 5."


def test_the_check_of_an_endless_loop_does_not_take_long() -> None:
    def endless(block_ids: Any, start: int, stop: int, block_size: int) -> Any:
        forever()

    start = time.monotonic()
    verdict = judged(endless)
    assert time.monotonic() - start < 6
    assert "did not end within 2 seconds" in str(verdict)


def test_what_is_right_but_slow_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minipaged.exercises.search.PATIENCE", 0.5)

    def slow(block_ids: Any, start: int, stop: int, block_size: int) -> Any:
        time.sleep(0.1)
        return slot_mapping(block_ids, start, stop, block_size)

    verdict = judged(slow)
    assert verdict.status == "failed"
    assert re.fullmatch(r"too slow: \d of 300 cases took 0 seconds", verdict.words)
