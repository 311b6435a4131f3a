"""Covering tables: few rows in which every pair of values of every two factors occurs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any

Row = dict[str, Any]
Pair = tuple[tuple[str, Any], tuple[str, Any]]


def full_cross(factors: Mapping[str, Sequence[Any]], forbidden: Sequence[Pair] = ()) -> list[Row]:
    """Every combination without a forbidden pair."""
    rows = [dict(zip(factors, values, strict=True)) for values in product(*factors.values())]
    return [row for row in rows if not any(set(pair) <= row.items() for pair in forbidden)]


def all_pairs(factors: Mapping[str, Sequence[Any]], forbidden: Sequence[Pair] = ()) -> list[Row]:
    """Few rows that hold every pair of values; `forbidden` pairs stand in none.

    Greedy: a row starts with a missing pair, and takes for each other factor the value that brings
    the most missing pairs.
    """
    never = {frozenset(pair) for pair in forbidden}
    missing = {
        pair: None
        for a, b in combinations(factors, 2)
        for pair in (frozenset(((a, x), (b, y))) for x in factors[a] for y in factors[b])
        if pair not in never
    }
    rows = []
    while missing:
        row = dict(next(iter(missing)))
        for factor in factors:
            if factor not in row:
                row[factor] = _best_value(factor, factors[factor], row, missing, never)
        for pair in combinations(row.items(), 2):
            missing.pop(frozenset(pair), None)
        rows.append({factor: row[factor] for factor in factors})
    return rows


def _best_value(factor: str, values: Sequence[Any], row: Row, missing: Any, never: Any) -> Any:
    def pairs(value: Any) -> list[frozenset[Any]]:
        return [frozenset(((factor, value), other)) for other in row.items()]

    possible = [value for value in values if not never.intersection(pairs(value))]
    return max(possible, key=lambda value: sum(pair in missing for pair in pairs(value)))
