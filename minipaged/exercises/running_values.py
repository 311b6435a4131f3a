"""Exercises 5.1 and 5.3: one more block of an online softmax, and parts that are joined."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from minipaged.exercises.attempt import Raised, call
from minipaged.exercises.exercise import Counterexample
from minipaged.exercises.scored_context import (
    HEAD_DIM,
    Context,
    close,
    contexts,
    digits,
    first_line,
)
from minipaged.exercises.stage import blocks

_State = tuple[Tensor, Tensor, Tensor]

# --- 5.1: one more block --------------------------------------------------------------------------


def attend_one_block(state: _State, scores: Tensor, values: Tensor) -> _State:
    """Give the running values after one more block, as `reference.attend_one` computes them."""
    largest, total, weighted = state
    new_largest = torch.maximum(largest, scores.max())
    weights, rescale = torch.exp(scores - new_largest), torch.exp(largest - new_largest)
    return new_largest, total * rescale + weights.sum(), weighted * rescale + weights @ values


def judge_block(attempt: Any, context: Context) -> Counterexample | None:
    """Play 5.1: block after block, each from the right state, to the first that goes wrong."""
    state = (torch.tensor(-math.inf), torch.tensor(0.0), torch.zeros(HEAD_DIM))
    for index in range(len(context.table)):
        tokens = context.tokens(index)
        scores, values = context.scores_of(tokens), context.values_of(tokens)
        expected = attend_one_block(state, scores, values)
        given = [each.clone() for each in (*state, scores, values)]
        got = call(attempt, tuple(given[:3]), given[3], given[4])
        if not _same_state(got, expected):
            return _block_went_wrong(attempt, context, index, state, got)
        state = expected
    return None


def _same_state(got: Any, expected: _State) -> bool:
    if not isinstance(got, tuple | list) or len(got) != len(expected):
        return False
    return all(close(mine, right) for mine, right in zip(got, expected, strict=True))


def _block_went_wrong(
    attempt: Any, context: Context, index: int, state: _State, got: Any
) -> Counterexample:
    tokens = context.tokens(index)
    scores, values = context.scores_of(tokens), context.values_of(tokens)
    case = (
        f"attend_one_block(state={digits(state)}, scores={digits(scores)}, values={digits(values)})"
    )
    why = f"block {context.table[index]}: {_why_block(state, scores, values, got)}"
    stage = context.stage("Online softmax, one block at a time")
    for read in range(index + 1):
        stage.happen(context.read(read, "attend_one_block", (0,), first_line(attempt)))
        stage.end_step(why if read == index else f"block {context.table[read]}: right")
    expected = attend_one_block(state, scores, values)
    return Counterexample(case, digits(expected), digits(got), why, stage.trace)


def _why_block(state: _State, scores: Tensor, values: Tensor, got: Any) -> str:
    """Name the first of the three that is wrong, and the mistake if it is a known one."""
    if isinstance(got, Raised) or not isinstance(got, tuple | list) or len(got) != len(state):
        return "three values were expected: largest, total, weighted"
    largest = attend_one_block(state, scores, values)[0]
    if not close(got[0], largest):
        return _why_largest(state[0], scores, largest)
    weights, rescale = torch.exp(scores - largest), torch.exp(state[0] - largest)
    for name, mine, old, new in (
        ("total", got[1], state[1], weights.sum()),
        ("weighted", got[2], state[2], weights @ values),
    ):
        if not close(mine, old * rescale + new):
            return _why_sum(name, mine, (old, new), (state[0], largest))
    return "the three are right, but not in this order or shape"


def _why_largest(before: Tensor, scores: Tensor, largest: Tensor) -> str:
    where = "this block" if largest > before else "an earlier block"
    return (
        f"the largest score so far is {digits(largest)}, from {where}: it was {digits(before)} "
        f"before, and the largest of this block is {digits(scores.max())}"
    )


def _why_sum(
    name: str, mine: Any, sums: tuple[Tensor, Tensor], scores: tuple[Tensor, Tensor]
) -> str:
    (old, new), (before, largest) = sums, scores
    rescale = torch.exp(before - largest)
    factor = f"exp({digits(before)} - {digits(largest)}) = {digits(rescale)}"
    told = f"the old {name} {digits(old)} was summed up when {digits(before)} was the largest score"
    if close(mine, old + new):
        return f"{told}; it was not rescaled by {factor}"
    if close(mine, old / rescale + new):
        wrong = f"exp({digits(largest)} - {digits(before)})"
        return f"{told}; it was rescaled the wrong way round, by {wrong}"
    if close(mine, new):
        return f"{told}; it was forgotten: only this block's tokens are in yours"
    if close(mine, (old + new) * rescale):
        return f"{told}; only that is to be rescaled, not what this block adds"
    return (
        f"{name} is the old one, {digits(old)}, times {factor}, plus {digits(new)} of this block, "
        f"where each token weighs exp(score - {digits(largest)})"
    )


# --- 5.3: joining parts ---------------------------------------------------------------------------


class Split(NamedTuple):
    """A context in parts of `share` blocks; the last ones may be empty."""

    context: Context
    num_parts: int

    def blocks(self, part: int) -> range:
        """Give the logical blocks of a part."""
        size = len(self.context.table)
        share = -(-size // self.num_parts)
        return range(min(part * share, size), min((part + 1) * share, size))

    def attended(self) -> tuple[Tensor, Tensor]:
        """Give each part's attention [num_parts, head_dim] and log-sum-exp [num_parts]."""
        parts, log_sums = torch.zeros(self.num_parts, HEAD_DIM), torch.zeros(self.num_parts)
        for part in range(self.num_parts):
            tokens = [t for index in self.blocks(part) for t in self.context.tokens(index)]
            positions = range(tokens[0], tokens[-1] + 1) if tokens else range(0)
            scores = self.context.scores_of(positions)
            log_sums[part] = torch.logsumexp(scores, 0)
            parts[part] = torch.softmax(scores, 0) @ self.context.values_of(positions)
        return parts, log_sums

    def share(self, part: int, share: Tensor) -> str:
        """Tell a part's share of the whole sum."""
        ids = [self.context.table[index] for index in self.blocks(part)]
        if not ids:
            return f"part {part} is empty: its sum is 0, the logarithm of that -inf, its weight 0"
        return f"part {part} ({blocks(ids)}) has {100 * share:.4g} % of the sum of exp(score)"


@st.composite
def splits(draw: DrawFn) -> Split:
    """Draw a context in parts; small ones come first."""
    num_parts = draw(st.integers(1, 3))
    return Split(draw(contexts((1, 2), most_blocks=4)), num_parts)


def judge_merge(attempt: Any, split: Split) -> Counterexample | None:
    """Play 5.3."""
    parts, log_sums = split.attended()
    expected = torch.softmax(log_sums, 0) @ parts
    got = call(attempt, parts.clone(), log_sums.clone())
    if close(got, expected):
        return None
    case = f"merge_parts(parts={digits(parts)}, log_sums={digits(log_sums)})"
    why = _why_merge(split, got)
    stage = split.context.stage("Parts of one context, joined")
    filled = [part for part in range(split.num_parts) if split.blocks(part)]
    for part in filled:
        for index in split.blocks(part):
            stage.happen(split.context.read(index, "split", (0, 0, part), first_line(attempt)))
        stage.end_step(why if part == filled[-1] else f"part {part} of {split.num_parts}")
    return Counterexample(case, digits(expected), digits(got), why, stage.trace)


def _why_merge(split: Split, got: Any) -> str:
    parts, log_sums = split.attended()
    shares = torch.softmax(log_sums, 0)
    told = "; ".join(split.share(part, shares[part]) for part in range(split.num_parts))
    sums = torch.exp(log_sums)
    if isinstance(got, Raised) or not _has_shape(got, parts[0]):
        return f"a tensor [head_dim] was expected: {HEAD_DIM} numbers"
    if close(got, parts.mean(0)):
        return f"{told}; in yours every part weighs 1 / {len(parts)}"
    if not torch.isfinite(sums).all() and not torch.isfinite(torch.as_tensor(got)).all():
        return (
            f"{told}; exp({digits(log_sums.max())}) is too large for fp32: subtract the largest "
            "log-sum first"
        )
    if close(got, sums @ parts):
        return f"{told}; your weights add up to {digits(sums.sum())}, not to 1"
    return f"{told}: that is what it weighs"


def _has_shape(got: Any, expected: Tensor) -> bool:
    try:
        return torch.as_tensor(got).shape == expected.shape
    except (TypeError, ValueError, RuntimeError):
        return False
