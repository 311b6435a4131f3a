"""A sequence of which only two things matter: each token's score and its value.

A query gives every token a score, query . key. Chapter 5 plays with sequences whose scores are
given, in blocks that lie about in a small pool, so that a case fits in a student's head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from minipaged.exercises.attempt import Raised, shown
from minipaged.exercises.stage import Stage, blocks
from minipaged.memory.block_table import blocks_for
from minipaged.memory.events import KernelAccess

NUM_BLOCKS = 6
HEAD_DIM = 2
_SCORES = (0.0, 1.0, 2.0, -1.0, 100.0)  # exp(100) is more than fp32 can hold
_VALUES = (0.0, 1.0, 2.0, 3.0)


class Context(NamedTuple):
    """A sequence's tokens; `table` has their physical blocks, in order."""

    table: list[int]
    block_size: int
    scores: list[float]
    values: list[float]

    def tokens(self, index: int) -> range:
        """Give the positions that logical block `index` holds."""
        start = index * self.block_size
        return range(start, min(start + self.block_size, len(self.scores)))

    def slots(self, index: int) -> tuple[int, ...]:
        """Give the physical slots of these positions."""
        first = self.table[index] * self.block_size
        return tuple(range(first, first + len(self.tokens(index))))

    def scores_of(self, positions: range) -> Tensor:
        """Give scores [num_tokens]."""
        return torch.tensor([self.scores[p] for p in positions])

    def values_of(self, positions: range) -> Tensor:
        """Give values [num_tokens, head_dim]; all but the first dimension are 0."""
        values = torch.zeros(len(positions), HEAD_DIM)
        values[:, 0] = torch.tensor([self.values[p] for p in positions])
        return values

    def stage(self, title: str) -> Stage:
        """Give a stage on which this is A, in its blocks; all others are full of B's tokens."""
        stage = Stage(title, NUM_BLOCKS, self.block_size)
        stage.has_text(0, self.table, len(self.scores))
        others = [block for block in range(NUM_BLOCKS) if block not in self.table]
        stage.has_text(1, others, len(others) * self.block_size)
        num_tokens = f"{len(self.scores)} token{'s' * (len(self.scores) > 1)}"
        stage.end_step(f"A has {num_tokens} in {blocks(self.table)}; the others are B's")
        return stage

    def read(self, index: int, name: str, program: tuple[int, ...], line: int) -> KernelAccess:
        """Give the event that a program reads logical block `index`."""
        slots, num_bytes = self.slots(index), 2 * 4 * HEAD_DIM * len(self.tokens(index))
        place = (line, "", "load", "cache", slots, (0,), num_bytes)
        return KernelAccess(name, program, (self.table[index],), *place)


@st.composite
def contexts(draw: DrawFn, block_sizes: Sequence[int] = (1, 2, 3), most_blocks: int = 3) -> Context:
    """Draw a sequence; small ones come first."""
    block_size = draw(st.sampled_from(block_sizes))
    num_tokens = draw(st.integers(1, most_blocks * block_size))
    size = blocks_for(num_tokens, block_size)
    ids = st.lists(st.integers(0, NUM_BLOCKS - 1), unique=True, min_size=size, max_size=size)
    table = draw(ids)
    scores = [draw(st.sampled_from(_SCORES)) for _ in range(num_tokens)]
    values = [draw(st.sampled_from(_VALUES)) for _ in range(num_tokens)]
    return Context(table, block_size, scores, values)


def digits(value: Any) -> str:
    """Give numbers, and tensors, tuples and lists of them, in few digits.

    >>> digits((torch.tensor([1 / 3, 2.0]), 0.5))
    '([0.3333, 2], 0.5)'
    """
    if isinstance(value, Tensor):
        return digits(value.tolist())
    if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
        inner = ", ".join(map(digits, value))
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:.4g}"
    return str(value) if isinstance(value, Raised) else shown(value)


def close(got: Any, expected: Tensor) -> bool:
    """Whether these are the same numbers, in a tensor of the same shape or lists of them."""
    try:
        mine = torch.as_tensor(got, dtype=torch.float32)
    except (TypeError, ValueError, RuntimeError):
        return False
    right = expected.to(torch.float32)
    return mine.shape == right.shape and bool(torch.allclose(mine, right, rtol=1e-4, atol=1e-5))


def first_line(attempt: Any) -> int:
    """Give the line at which a function begins; 0 where that is unknown."""
    code = getattr(getattr(attempt, "fn", attempt), "__code__", None)
    return code.co_firstlineno if code is not None else 0
