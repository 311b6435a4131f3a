"""Chapter 3, block tables: from a position to a slot, and when a block is needed."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from minipaged.exercises.attempt import Raised, call, same, shown
from minipaged.exercises.exercise import Counterexample, Exercise
from minipaged.exercises.stage import Stage
from minipaged.memory.block_table import blocks_for, slot_mapping

_NUM_BLOCKS = 12


class _Span(NamedTuple):
    """Positions `[start, stop)` of a sequence."""

    table: list[int]
    start: int
    stop: int
    block_size: int

    def __str__(self) -> str:
        return (
            f"slot_mapping({self.table}, start={self.start}, stop={self.stop}, "
            f"block_size={self.block_size})"
        )


@st.composite
def _spans(draw: DrawFn) -> _Span:
    block_size = draw(st.integers(1, 5))
    stop = draw(st.integers(1, 4 * block_size))
    size = blocks_for(stop, block_size)  # no more blocks than needed: the case shrinks with `stop`
    blocks = st.lists(st.integers(0, _NUM_BLOCKS - 1), unique=True, min_size=size, max_size=size)
    return _Span(draw(blocks), draw(st.integers(0, stop - 1)), stop, block_size)


def _judge_slots(attempt: Any, span: _Span) -> Counterexample | None:
    expected = slot_mapping(*span)
    got = call(attempt, list(span.table), *span[1:])
    if same(got, expected):
        return None
    stage = Stage(str(span), _NUM_BLOCKS, span.block_size)
    wrong = _first_difference(got, expected)
    stage.has_text(0, span.table, min(span.start + wrong + 1, span.stop))
    why = _why_slots(span, got, expected, wrong)
    return Counterexample(str(span), shown(expected), shown(got), why, stage.end_step(why))


def _first_difference(got: Any, expected: list[int]) -> int:
    if isinstance(got, (list, tuple)):
        for index, (mine, right) in enumerate(zip(got, expected, strict=False)):
            if not same(mine, right):
                return index
        return min(len(got), len(expected))
    return 0


def _why_slots(span: _Span, got: Any, expected: list[int], wrong: int) -> str:
    if isinstance(got, Raised) or not isinstance(got, (list, tuple)):
        return "a list with one slot for each position was expected"
    if len(got) != len(expected):
        return f"{len(expected)} positions need {len(expected)} slots; you gave {len(got)}"
    position = span.start + wrong
    index, offset = divmod(position, span.block_size)
    block = span.table[index]
    place = (
        f"position {position} lies in logical block {index}, offset {offset}; "
        f"the table says physical block {block}: slot {block} * {span.block_size} + {offset} = "
        f"{expected[wrong]}"
    )
    if isinstance(got[wrong], int) and 0 <= got[wrong] < _NUM_BLOCKS * span.block_size:
        owner = got[wrong] // span.block_size
        if owner not in span.table:
            return f"{place}; slot {got[wrong]} is in block {owner}, which belongs to somebody else"
        return f"{place}; slot {got[wrong]} would overwrite another token of this sequence"
    return f"{place}; there is no slot {shown(got[wrong])}"


def _all_spans() -> SearchStrategy[_Span]:
    return _spans()


ex_3_1 = Exercise(
    "3.1",
    "from positions to slots",
    ("slot_mapping(block_ids, start, stop, block_size)",),
    _all_spans,
    _judge_slots,
    twin="minipaged.memory.block_table:slot_mapping",
)
