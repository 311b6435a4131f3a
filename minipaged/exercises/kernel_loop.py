"""Exercise 5.2, the kernel's loop through the block table: run, watched, and explained.

The attempt runs inside a small kernel, which loads the queries before and stores the result after
it. `program_case` tells what went wrong.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from minipaged.exercises.attempt import Raised, call
from minipaged.exercises.exercise import Counterexample
from minipaged.exercises.program_case import ProgramCase, why_wrong
from minipaged.exercises.scored_context import (
    Context,
    close,
    digits,
    first_line,
)
from minipaged.exercises.tiles import jit, run, tl
from minipaged.memory.block_table import blocks_for
from minipaged.memory.events import KernelAccess

_NAME = "paged_decode_inner"


@jit  # type: ignore[untyped-decorator]  # a kernel has no types of Python's
def one_program(  # type: ignore[no-untyped-def]
    output,  # [GROUP, HEAD_DIM]
    query,  # [GROUP, HEAD_DIM]
    key_cache,  # [num_blocks, BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM]
    value_cache,  # the same
    block_table,
    seq_len,
    kv_head,
    INNER: tl.constexpr,  # noqa: N803
    SCALE: tl.constexpr,  # noqa: N803
    BLOCK_SIZE: tl.constexpr,  # noqa: N803
    NUM_KV_HEADS: tl.constexpr,  # noqa: N803
    GROUP: tl.constexpr,  # noqa: N803
    HEAD_DIM: tl.constexpr,  # noqa: N803
):
    """Load the queries of one KV head, let the attempt attend, store the result."""
    heads = tl.arange(0, GROUP)[:, None] * HEAD_DIM + tl.arange(0, HEAD_DIM)[None, :]
    q = tl.load(query + heads)
    result = INNER(
        *(q, key_cache, value_cache, block_table, seq_len, kv_head, SCALE),
        *(BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM),
    )
    tl.store(output + heads, result)


def chosen_cases() -> tuple[ProgramCase, ...]:
    """Give the cases, small ones first, so that the first one that goes wrong is the smallest.

    A case takes Triton's interpreter 10 ms, too long to draw hundreds and to shrink them.
    """
    cases = []
    for block_size, num_tokens in _SIZES:
        table = _TABLES[blocks_for(num_tokens, block_size)]
        for scores, heads in zip(_SCORES, _HEADS, strict=True):
            tokens = [float(value) for value in _VALUES[:num_tokens]]
            cases.append(
                ProgramCase(Context(table, block_size, scores[:num_tokens], tokens), *heads)
            )
    return tuple(cases)


_SIZES = ((1, 1), (2, 1), (1, 2), (2, 2), (2, 3), (1, 3), (2, 4), (4, 5), (2, 6), (4, 9))
_TABLES = {1: [1], 2: [4, 2], 3: [3, 1, 5]}
_HEADS = ((1, 0, 1), (2, 1, 1), (2, 0, 2), (2, 1, 2))  # num_kv_heads, kv_head, group
_VALUES = (1, 0, 2, 3, 1, 0, 2, 3, 1)
_SCORES = (
    [0.0] * 9,
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
    [1.0, 0.0, -1.0, 2.0, 0.0, 1.0, 0.0, -2.0, 3.0],
    [100.0, 0.0, 1.0, 0.0, 2.0, 0.0, 1.0, 0.0, 1.0],
)


def all_cases() -> SearchStrategy[tuple[ProgramCase, ...]]:
    """Give all cases as one."""
    return st.just(chosen_cases())


def judge_kernel(attempt: Any, cases: tuple[ProgramCase, ...]) -> Counterexample | None:
    """Play case after case, to the first that goes wrong."""
    found = (_judge_one(attempt, case) for case in cases)
    return next(filter(None, found), None)


def _judge_one(attempt: Any, case: ProgramCase) -> Counterexample | None:
    arguments, touched = case.arguments(), list[KernelAccess]()
    got = _played(attempt, arguments, touched)
    if close(got, case.expected()):
        return None
    reads = [_named(access, case) for access in touched if access.blocks]
    last, why = why_wrong(case, reads, got)
    stage = case.context.stage("The kernel's loop")
    for access in reads[:last] or [_nothing_read(case, attempt)]:
        stage.happen(access)
    return Counterexample(str(case), digits(case.expected()), digits(got), why, stage.end_step(why))


def _played(attempt: Any, arguments: dict[str, Any], touched: list[KernelAccess]) -> Any:
    """Give the output of one program, or what it came to instead."""
    results = []

    def inner(*given: Any) -> Any:
        results.append(attempt(*given))
        return results[0]

    error = call(run, one_program, attempt, {**arguments, "INNER": inner}, touched)
    if results:
        wrong = _wrong_shape(results[0], list(arguments["output"].shape))
        error = Raised(wrong) if wrong else error
    return arguments["output"] if error is None else error


def _wrong_shape(result: Any, wanted: list[int]) -> str:
    if result is None:
        return "returned None: it ends without a return"
    shape = [int(size) for size in getattr(result, "shape", ())]
    return "" if shape == wanted else f"returned a tile {shape}, not [rows, HEAD_DIM] = {wanted}"


def _named(access: KernelAccess, case: ProgramCase) -> KernelAccess:
    return replace(access, name=_NAME, program=(0, case.kv_head))


def _nothing_read(case: ProgramCase, attempt: Any) -> KernelAccess:
    place = (first_line(attempt), "", "load", "block_table", (), (), 0)
    return KernelAccess(_NAME, (0, case.kv_head), (), *place)
