"""Exercise 5.2: one program of the kernel as a case, and what went wrong in it.

The cause is told from what was read, as far as that was wrong; only then from numbers.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import torch
from torch import Tensor

from minipaged.exercises.attempt import Raised
from minipaged.exercises.scored_context import (
    HEAD_DIM,
    NUM_BLOCKS,
    Context,
    close,
    digits,
)
from minipaged.exercises.stage import blocks
from minipaged.memory.events import KernelAccess

_SCALE = 0.5
_WIDTH = 40  # of a line of code in a sentence
_LARGE = 88  # exp of more is infinite
_NO_BLOCK = 2**30  # what lies in the table beyond the context
_CACHE = ("key_cache", "value_cache")
_POINTER_AS_TENSOR = re.compile(r"\b(key_cache|value_cache|block_table)\[")


class ProgramCase(NamedTuple):
    """One program: the query heads of one KV head of a sequence."""

    context: Context
    num_kv_heads: int
    kv_head: int
    group: int

    def __str__(self) -> str:
        context = self.context
        return (
            f"block_table={context.table}, seq_len={len(context.scores)}, "
            f"BLOCK_SIZE={context.block_size}, kv_head={self.kv_head} of {self.num_kv_heads}, "
            f"{self.group} query head{'s' * (self.group > 1)}; scores {digits(context.scores)}, "
            f"values {digits(context.values)}"
        )

    def arguments(self) -> dict[str, Any]:
        """Give what the kernel takes; the result will be in `output`.

        Row r of the queries scores token p with scores[p], or with -scores[p] in the second row.
        Slots without a token hold NaN, and other people's blocks and heads something else.
        """
        context = self.context
        shape = (NUM_BLOCKS, context.block_size, self.num_kv_heads, HEAD_DIM)
        keys, values = torch.full(shape, 3.0), torch.full(shape, 9.0)
        for index, block in enumerate(context.table):
            tokens = context.tokens(index)
            scores = context.scores_of(tokens)
            keys[block], values[block, :, :] = math.nan, math.nan
            keys[block, : len(tokens)], values[block, : len(tokens)] = 4.0, 8.0  # other heads
            keys[block, : len(tokens), self.kv_head] = torch.stack([scores, -scores], dim=1)
            values[block, : len(tokens), self.kv_head] = context.values_of(tokens)
        return {
            "output": torch.full((self.group, HEAD_DIM), math.nan),
            "query": torch.eye(HEAD_DIM)[: self.group] / _SCALE,
            "key_cache": keys,
            "value_cache": values,
            "block_table": torch.tensor([*context.table, _NO_BLOCK]),
            "seq_len": len(context.scores),
            "kv_head": self.kv_head,
            "SCALE": _SCALE,
            "BLOCK_SIZE": context.block_size,
            "NUM_KV_HEADS": self.num_kv_heads,
            "GROUP": self.group,
            "HEAD_DIM": HEAD_DIM,
        }

    def expected(self) -> Tensor:
        """Give softmax over all scores at once."""
        scores = torch.tensor(self.context.scores)
        rows = torch.stack([scores, -scores])[: self.group]
        return torch.softmax(rows, 1) @ self.context.values_of(range(len(scores)))


# --- what went wrong ------------------------------------------------------------------------------


def why_wrong(case: ProgramCase, reads: list[KernelAccess], got: Any) -> tuple[int, str]:
    """Give how many reads a trace needs to show it, and the cause."""
    for number, access in enumerate(reads, 1):
        wrong = _why_read(case, reads[:number], access)
        if wrong:
            return number, wrong
    if isinstance(got, Raised):
        return len(reads), _why_raised(case, reads, got)
    for name in _CACHE:
        read = {slot for access in reads if access.tensor == name for slot in access.slots}
        for index, block in enumerate(case.context.table):
            if not read.issuperset(case.context.slots(index)):
                return len(reads), (
                    f"block {block}, entry {index} of the table, was not read to its end from "
                    f"{name}; it holds {len(case.context.tokens(index))} of the sequence's "
                    f"{len(case.context.scores)} tokens"
                )
    return len(reads), _why_numbers(case, got)


def _why_read(case: ProgramCase, reads: list[KernelAccess], access: KernelAccess) -> str:
    """Tell what is wrong about one read of keys or values; empty if nothing is."""
    context = case.context
    strangers = [block for block in access.blocks if block not in context.table]
    if strangers:
        index = len({read.blocks for read in reads if read.tensor == access.tensor}) - 1
        entry = min(index, len(context.table) - 1)
        size = context.block_size * case.num_kv_heads * HEAD_DIM
        return (
            f"{_line(access)} reads {blocks(strangers)} of {access.tensor}, where B's tokens "
            f"lie: entry {entry} of A's table says block {context.table[entry]}, which begins at "
            f"element {context.table[entry] * size} "
            "(block * BLOCK_SIZE * NUM_KV_HEADS * HEAD_DIM)"
        )
    if access.heads != (case.kv_head,):
        return (
            f"{_line(access)} reads KV head {' and '.join(map(str, access.heads))} of "
            f"{access.tensor}; this program is KV head {case.kv_head}'s. A token's heads lie side "
            "by side: ((block * BLOCK_SIZE + slot) * NUM_KV_HEADS + kv_head) * HEAD_DIM"
        )
    return ""


def _line(access: KernelAccess) -> str:
    code = access.code.strip()
    code = code if len(code) <= _WIDTH else f"{code[: _WIDTH - 1]}…"
    return f"line {access.line}" + (f", {code!r}," if code else "")


def _why_raised(case: ProgramCase, reads: list[KernelAccess], got: Raised) -> str:
    size = len(case.context.table)
    if "outside of" in got.error:
        return (
            f"there is no such address. The table of {len(case.context.scores)} tokens has {size} "
            f"entr{'y' if size == 1 else 'ies'}; what lies behind it names no block"
        )
    pointer = _POINTER_AS_TENSOR.search(got.error)
    if pointer:
        name = pointer[1]
        return f"a pointer is no tensor: add a number to it, tl.load({name} + number)"
    place = f"after reading {blocks(reads[-1].blocks)}" if reads else "before any key was read"
    return f"the program stopped {place}"


def _why_numbers(case: ProgramCase, got: Tensor) -> str:
    """Name the mistake that gives these numbers, where all that was needed was read."""
    if not torch.isfinite(got).all():
        return _why_not_finite(case)
    for mistake, words in _MISTAKES.items():
        if close(got, _softmax_with(case, mistake)):
            told = words.format(last=case.context.table[-1], larger=_larger(case))
            return told + (_EACH_ROW if mistake in _OF_ROWS and case.group > 1 else "")
    return "every block was read, but largest, total or weighted is not updated as it should be"


def _why_not_finite(case: ProgramCase) -> str:
    size, num_tokens = case.context.block_size, len(case.context.scores)
    empty = len(case.context.table) * size - num_tokens
    if max(map(abs, case.context.scores)) > _LARGE:
        return (
            "exp of a score like 100 is more than fp32 can hold: exp(score - new_largest) and "
            "exp(largest - new_largest) are at most 1, if largest never becomes smaller"
        )
    if empty:
        return (
            f"{empty} of {size} slots of block {case.context.table[-1]} hold no token but whatever "
            "was there before, here NaN. A weight of 0 does not help, 0 * NaN is NaN: mask both "
            "loads"
        )
    return _MISTAKES["sign"]


_MISTAKES = {
    "tail": "the empty slots of block {last} came in with a score of 0: their score must be -inf",
    "total": "block {larger} has a larger score than all before: the old total was not rescaled",
    "weighted": "block {larger} has a larger score than all before: the old weighted values were "
    "not rescaled",
    "both": "block {larger} has a larger score than all before: the old sums were not rescaled",
    "sign": "rescaled the wrong way round: it is exp(largest - new_largest), which is at most 1",
    "scale": "the scores were not multiplied by scale",
    "division": "the weighted values were not divided by total",
    "last": "only block {last} counts: what the blocks before it gave was forgotten",
}


_OF_ROWS = ("total", "weighted", "both")
_EACH_ROW = ". Each query head is a row and has a factor of its own: rescale[:, None] for weighted"


def _larger(case: ProgramCase) -> int:
    """Give the first block but one with a larger score than all before it, in any row."""
    rows = torch.stack([torch.tensor(case.context.scores), -torch.tensor(case.context.scores)])
    best = rows[: case.group, case.context.tokens(0)].amax(1)
    for index in range(1, len(case.context.table)):
        here = rows[: case.group, case.context.tokens(index)].amax(1)
        if bool((here > best).any()):
            return case.context.table[index]
    return case.context.table[-1]


def _softmax_with(case: ProgramCase, mistake: str) -> Tensor:
    """Give what the loop comes to with a mistake in it."""
    context = case.context
    largest = torch.full((case.group, 1), -math.inf)
    total, weighted = torch.zeros(case.group, 1), torch.zeros(case.group, HEAD_DIM)
    for index in range(len(context.table)):
        tokens = context.tokens(index)
        empty = context.block_size - len(tokens) if mistake == "tail" else 0
        scores = torch.cat([context.scores_of(tokens), torch.zeros(empty)])
        values = torch.cat([context.values_of(tokens), torch.zeros(empty, HEAD_DIM)])
        rows = torch.stack([scores, -scores])[: case.group] / (_SCALE if mistake == "scale" else 1)
        new = torch.maximum(largest, rows.amax(1, keepdim=True))
        weights, rescale = torch.exp(rows - new), torch.exp(largest - new)
        if mistake == "sign" and index:  # at the first block it gives NaN
            rescale = 1 / rescale
        if mistake == "last":
            rescale = torch.zeros_like(rescale)
        total = total * (1 if mistake in ("total", "both") else rescale)
        weighted = weighted * (1 if mistake in ("weighted", "both") else rescale)
        total, weighted = total + weights.sum(1, keepdim=True), weighted + weights @ values
        largest = new
    return weighted if mistake == "division" else weighted / total
