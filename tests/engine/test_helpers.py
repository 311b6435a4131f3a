"""The helpers of these tests can fail: tables hold every pair, and only ties are excused."""

from __future__ import annotations

from itertools import combinations

import pytest
from all_pairs import all_pairs, full_cross
from random_models import GreedyAnswer
from ties import Ties

FACTORS = {"a": [1, 2, 3], "b": "xyz", "c": [False, True], "d": [None, 0]}
FORBIDDEN = [(("a", 1), ("c", True)), (("b", "x"), ("d", 0))]


def test_every_allowed_pair_stands_in_a_row() -> None:
    rows, cross = all_pairs(FACTORS, FORBIDDEN), full_cross(FACTORS, FORBIDDEN)
    assert len(rows) < 12 < len(cross) == 25
    assert all(row in cross for row in rows)
    pairs = [
        {pair for row in table for pair in combinations(row.items(), 2)} for table in (rows, cross)
    ]
    assert pairs[0] == pairs[1]


@pytest.mark.parametrize(
    ("token_ids", "lead"),
    [([1, 9, 3], 1e-2), ([1, 8, 3], 1e-5), ([1, 2], 1e-5), ([1, 2, 3, 4], 1e-5)],
    ids=["no tie", "not the runner-up", "too short", "too long"],
)
def test_what_is_no_tie_is_no_excuse(token_ids, lead) -> None:
    ties = Ties()
    ties.check_equal([1, 2, 3], GreedyAnswer([1, 2, 3], [5.0, lead, lead], [7, 9, 7]))
    with pytest.raises(AssertionError):
        ties.check_equal(token_ids, GreedyAnswer([1, 2, 3], [5.0, lead, lead], [7, 9, 7]))
    assert not ties.excused


def test_few_ties_are_excused() -> None:
    ties = Ties(most=0.5)
    answer = GreedyAnswer([1, 2, 3], [5.0, 1e-5, 5.0], [7, 9, 7])
    for token_ids in ([1, 2, 3], [1, 9, 4]):
        ties.check_equal(token_ids, answer)
    ties.check_few_excused()
    ties.check_equal([1, 9, 5], answer)
    with pytest.raises(AssertionError, match="more than 1 ties"):
        ties.check_few_excused()
