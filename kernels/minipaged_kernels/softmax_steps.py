"""The online softmax of a kernel that runs, read from its variables.

Kernels here call them `largest`, `rescale`, `total`, `scores`, `weights` and `weighted`; those that
join the parts of a context have `log_sum`, too. Rows that are padding are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minipaged.memory.kernel_recording import KernelStep, RowState
from minipaged_kernels.interpreter import SourceLine
from minipaged_kernels.kernel_source import lines_between, rest_of_loop

MOST_SUMS = 8  # of a row's weighted sums
STATE = ("largest", "rescale", "total", "scores", "weights", "weighted")


class Tile(NamedTuple):
    """Where the newest keys and values were loaded, and which tokens they are."""

    place: SourceLine
    tokens: NDArray[np.int64]


def update_step(tile: Tile, before: Any, variables: Mapping[str, Any]) -> KernelStep:
    """Give the update that ends a round of the loop, with the state of each real row."""
    rows = _real_rows(variables)
    largest, rescale, total, scores, weights, weighted = (
        array(variables[name])[rows] for name in STATE
    )
    seen = np.isfinite(scores).any(axis=0)
    old = array(before)[rows]
    first, last = rest_of_loop(tile.place)
    states = (
        RowState(
            before=float(old[row]),
            largest=float(largest[row]),
            rescale=float(rescale[row]),
            total=float(total[row]),
            scores=tuple(scores[row, seen].tolist()),
            weights=tuple(weights[row, seen].tolist()),
            weighted=tuple(weighted[row, :MOST_SUMS].tolist()),
        )
        for row in range(len(largest))
    )
    tokens = tuple(tile.tokens[seen].tolist())
    return KernelStep("update", first, last, tokens=tokens, state=tuple(states))


def join_step(place: SourceLine, end: SourceLine, variables: Mapping[str, Any]) -> KernelStep:
    """Give how the parts of a context are weighed; `total` is the sum of their weights."""
    log_sums, weights = array(variables["log_sum"]), array(variables["weights"])
    state = RowState(
        before=-math.inf,
        largest=float(array(variables["largest"]).flat[0]),
        rescale=0.0,
        total=float(weights.sum()),
        scores=tuple(log_sums.tolist()),
        weights=tuple(weights.tolist()),
        weighted=(),
    )
    first, last = lines_between(place, end)
    return KernelStep("join", first, last, tokens=tuple(range(len(weights))), state=(state,))


def _real_rows(variables: Mapping[str, Any]) -> NDArray[np.int64]:
    """Give the rows that are no padding."""
    mask = variables.get("is_query", variables.get("is_head"))
    real = np.isfinite(array(variables["largest"])) if mask is None else array(mask)
    return np.flatnonzero(real if real.ndim == 1 else real.any(axis=1))


def row_names(variables: Mapping[str, Any]) -> tuple[str, ...]:
    """Name rows by their query head, and where a program has several queries, by these, too."""
    rows = _real_rows(variables).tolist()
    if not variables.keys() >= {"GROUP", "kv_head"}:
        return tuple(f"row {row}" for row in rows)
    group, kv_head = integer(variables, "GROUP"), integer(variables, "kv_head")
    if "queries" not in variables:
        return tuple(f"head {kv_head * group + row}" for row in rows)
    first = integer(variables, "first_position")
    queries = array(variables["queries"])
    return tuple(f"token {first + queries[r]}, head {kv_head * group + r % group}" for r in rows)


def integer(variables: Mapping[str, Any], name: str) -> int:
    """Give a variable that holds one integer."""
    return int(array(variables[name]).flat[0])


def array(value: Any) -> NDArray[Any]:
    """Give what the interpreter holds for a variable: a tensor's handle, a constant, a number."""
    if hasattr(value, "handle"):
        return np.asarray(value.handle.data)
    return np.asarray(getattr(value, "value", value))
