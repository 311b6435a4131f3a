"""Chapter 3, block tables: from a position to a slot, and when a block is needed."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from minipaged.exercises.attempt import Raised, call, same, shown
from minipaged.exercises.chapter_3_table import ex_3_3
from minipaged.exercises.exercise import Counterexample, Exercise
from minipaged.exercises.slots import Place, counted, first_difference, why_slots
from minipaged.exercises.stage import Stage, word
from minipaged.memory.block_table import blocks_for, slot_mapping
from minipaged.memory.events import BlockAllocated, Written

__all__ = ["ex_3_1", "ex_3_2", "ex_3_3"]

_NUM_BLOCKS = 12

# --- 3.1: from positions to slots -----------------------------------------------------------------


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
    block_size = draw(st.sampled_from((2, 3, 4, 5, 1)))  # the first ones are the simple ones
    stop = draw(st.integers(1, 4 * block_size))
    size = blocks_for(stop, block_size)  # no more blocks than needed: the case shrinks with `stop`
    blocks = st.lists(st.integers(0, _NUM_BLOCKS - 1), unique=True, min_size=size, max_size=size)
    return _Span(draw(blocks), draw(st.integers(0, stop - 1)), stop, block_size)


def _judge_slots(attempt: Any, span: _Span) -> Counterexample | None:
    expected = slot_mapping(*span)
    table = list(span.table)
    got = call(attempt, table, *span[1:])
    if same(got, expected) and same(table, span.table):
        return None
    why = _why_slots(span, got, table)
    trace = _write(span, first_difference(got, expected)).end_step(why)
    return Counterexample(str(span), shown(expected), shown(got), why, trace)


def _write(span: _Span, num_right: int) -> Stage:
    """Show the sequence up to `start`, then the tokens that have the right slot."""
    stage = Stage(str(span), _NUM_BLOCKS, span.block_size)
    stage.has_text(0, span.table, span.start)
    stage.trace.end_step(0, 0, f"{counted(span.start, 'token')} written")
    for position in range(span.start, span.start + num_right):
        stage.happen(Written((0,), (position,), (word(position),)))
    return stage


def _why_slots(span: _Span, got: Any, table: list[int]) -> str:
    if not same(table, span.table):
        return f"the block table was only to be read; now it is {shown(table)}"
    return why_slots(got, span.start, span.stop, Place(span.table, span.block_size, _NUM_BLOCKS))


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

# --- 3.2: when is a block needed? -----------------------------------------------------------------


class _Growth(NamedTuple):
    """A sequence that is about to write tokens."""

    num_tokens: int
    num_new_tokens: int
    num_blocks: int
    block_size: int

    @property
    def stop(self) -> int:
        """The position behind the last token that is written."""
        return self.num_tokens + self.num_new_tokens

    @property
    def needed(self) -> int:
        """The blocks that must be taken first."""
        return max(0, blocks_for(self.stop, self.block_size) - self.num_blocks)

    def __str__(self) -> str:
        return (
            f"blocks_to_append(num_tokens={self.num_tokens}, num_new_tokens={self.num_new_tokens}, "
            f"num_blocks={self.num_blocks}, block_size={self.block_size})"
        )


@st.composite
def _growths(draw: DrawFn) -> _Growth:
    block_size = draw(st.sampled_from((2, 3, 4)))
    num_tokens = draw(st.integers(0, 2 * block_size))
    num_new_tokens = draw(st.integers(1, 2 * block_size + 1))
    num_reserved = draw(st.integers(0, 2))
    num_blocks = blocks_for(num_tokens, block_size) + num_reserved
    return _Growth(num_tokens, num_new_tokens, num_blocks, block_size)


def _judge_growth(attempt: Any, growth: _Growth) -> Counterexample | None:
    got = call(attempt, *growth)
    if same(got, growth.needed):
        return None
    why = _why_growth(growth, got)
    trace = _grow(growth, got if type(got) is int else 0).end_step(why)
    return Counterexample(str(growth), shown(growth.needed), shown(got), why, trace)


def _grow(growth: _Growth, num_taken: int) -> Stage:
    """Play it: take so many blocks, then write as long as there is room."""
    stage = Stage(str(growth), _NUM_BLOCKS, growth.block_size)
    held = growth.num_blocks
    stage.has_text(0, range(held), growth.num_tokens)
    stage.trace.end_step(
        0, 0, f"{counted(growth.num_tokens, 'token')} written, {counted(held, 'block')} held"
    )
    for block in range(held, min(held + num_taken, _NUM_BLOCKS)):
        stage.happen(BlockAllocated(0, block, block, "append"))
    for position in range(growth.num_tokens, growth.stop):
        if stage.happens(Written((0,), (position,), (word(position),))):
            break
    return stage


def _why_growth(growth: _Growth, got: Any) -> str:
    if isinstance(got, Raised) or type(got) is not int:
        return "a number of blocks was expected"
    filled = blocks_for(growth.stop, growth.block_size)
    tokens = f"room for {counted(growth.stop, 'token')} is {counted(filled, 'block')}"
    if got < 0:
        return (
            f"{tokens}; held already: {growth.num_blocks}. Those reserved ahead stay, so nothing "
            "is taken, and none is given back"
        )
    if got < growth.needed:
        held = growth.num_blocks + got
        room = held * growth.block_size
        end = f"the last one ends at position {room - 1}" if room else "none is held"
        return f"position {room} is written in this step and has no block: {end}"
    if growth.num_blocks > blocks_for(growth.num_tokens, growth.block_size):
        return (
            f"{tokens}; held already, as some were reserved ahead: {growth.num_blocks}; "
            f"{growth.needed} more will do"
        )
    return (
        f"{tokens}; you would hold {growth.num_blocks + got}: a block taken before a token is "
        "written to it is one that others can't have"
    )


def _all_growths() -> SearchStrategy[_Growth]:
    return _growths()


ex_3_2 = Exercise(
    "3.2",
    "when is a block needed?",
    ("blocks_to_append(num_tokens, num_new_tokens, num_blocks, block_size)",),
    _all_growths,
    _judge_growth,
)
