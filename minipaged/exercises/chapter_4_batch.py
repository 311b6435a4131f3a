"""Exercise 4.3: several sequences decode in one step; where each one's new token is and goes."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from minipaged.exercises.attempt import Raised, call, same, shown
from minipaged.exercises.exercise import Counterexample, Exercise
from minipaged.exercises.slots import Place, counted, first_difference
from minipaged.exercises.stage import Stage, word
from minipaged.memory.block_table import blocks_for
from minipaged.memory.events import Written

_NUM_BLOCKS = 12
_NAMES = "ABC"
_LISTS = ("positions", "seq_lens", "slot_mapping")


class _Step(NamedTuple):
    """A decode step: each sequence has computed some tokens and feeds one more."""

    tables: list[list[int]]
    num_computed_tokens: list[int]
    block_size: int

    def __str__(self) -> str:
        return f"decode_batch({self.tables}, {self.num_computed_tokens}, {self.block_size})"

    def place(self, seq: int) -> Place:
        """Tell where a sequence lies, and who has the other blocks."""
        owners = {
            block: f"sequence {_NAMES[index]}"
            for index, table in enumerate(self.tables)
            for block in table
            if index != seq
        }
        return Place(self.tables[seq], self.block_size, _NUM_BLOCKS, owners)

    def expected(self) -> list[list[int]]:
        """Give positions, seq_lens and slot_mapping."""
        computed = self.num_computed_tokens
        slots = [self.place(seq).slot(position) for seq, position in enumerate(computed)]
        return [list(computed), [count + 1 for count in computed], slots]


@st.composite
def _steps(draw: DrawFn) -> _Step:
    block_size = draw(st.sampled_from((2, 3, 4)))
    computed = draw(st.lists(st.integers(1, 2 * block_size + 1), min_size=1, max_size=3))
    sizes = [blocks_for(count + 1, block_size) + draw(st.integers(0, 1)) for count in computed]
    blocks = st.lists(
        st.integers(0, _NUM_BLOCKS - 1), unique=True, min_size=sum(sizes), max_size=sum(sizes)
    )
    free = iter(draw(blocks))
    return _Step([[next(free) for _ in range(size)] for size in sizes], computed, block_size)


def _judge_step(attempt: Any, step: _Step) -> Counterexample | None:
    tables = [list(table) for table in step.tables]
    got = call(attempt, tables, list(step.num_computed_tokens), step.block_size)
    expected = step.expected()
    mine = _plain(got)
    if same(mine, expected) and tables == step.tables:
        return None
    wanted, found, seq, why = _what_is_wrong(step, mine, expected, got)
    if same(mine, expected):
        wanted, found, why = shown(step.tables), shown(tables), "the tables are only to be read"
    trace = _show(step, seq).end_step(why)
    return Counterexample(str(step), wanted, found, why, trace)


def _plain(got: Any) -> Any:
    """Give three lists, if these are three lists or tensors; else None."""
    if isinstance(got, Raised) or not isinstance(got, (tuple, list)) or len(got) != len(_LISTS):
        return None
    lists = [each.tolist() if hasattr(each, "tolist") else each for each in got]
    fit = all(isinstance(each, (list, tuple)) for each in lists)
    return [list(each) for each in lists] if fit else None


def _what_is_wrong(
    step: _Step, mine: list[list[Any]] | None, expected: list[list[int]], got: Any
) -> tuple[str, str, int, str]:
    """Give what was expected, what came, for which sequence, and why that is wrong."""
    if mine is None:
        why = f"three lists were expected: {', '.join(_LISTS)}"
        if isinstance(got, Raised):
            (computed, *_), (table, *_) = step.num_computed_tokens, step.tables
            why = (
                f"{_has(step, 0)}: it feeds position {computed}, in logical block "
                f"{computed // step.block_size}. Its table has {counted(len(table), 'block')}"
            )
        return shown(tuple(expected)), shown(got), 0, why
    for name, given, right in zip(_LISTS, mine, expected, strict=True):
        if same(given, right):
            continue
        wanted, found = f"{name} == {right}", shown(given)
        if len(given) != len(right):
            why = f"one number for each sequence was expected: {len(right)} in all"
            return wanted, found, 0, why
        seq = first_difference(given, right)
        return wanted, found, seq, _why(step, name, seq, given[seq])
    return "", "", 0, ""


def _has(step: _Step, seq: int) -> str:
    computed = step.num_computed_tokens[seq]
    who = f"sequence {_NAMES[seq]}"
    return f"{who} has computed {counted(computed, 'token')}, up to position {computed - 1}"


def _why(step: _Step, name: str, seq: int, given: Any) -> str:
    computed, who, has = step.num_computed_tokens[seq], f"sequence {_NAMES[seq]}", _has(step, seq)
    if name == "positions":
        return f"{has}: the one that it feeds now is at position {computed}"
    if name == "seq_lens":
        return (
            f"{has} and feeds position {computed}: its context has {computed + 1} tokens, as a "
            "token attends to itself, too; blocks reserved ahead hold none"
        )
    place = step.place(seq)
    return f"{who}: {place.way(computed)}; {place.whose(given)}"


def _show(step: _Step, num_right: int) -> Stage:
    """Show the sequences, and the new tokens of those before the one that is wrong."""
    stage = Stage(str(step), _NUM_BLOCKS, step.block_size)
    for seq, (table, count) in enumerate(zip(step.tables, step.num_computed_tokens, strict=True)):
        stage.has_text(seq, table, count, _NAMES[seq])
    stage.trace.end_step(0, 0, "what is computed")
    for seq in range(num_right):
        token = step.num_computed_tokens[seq]
        stage.happen(Written((seq,), (token,), (word(token),)))
    return stage


def _all_steps() -> SearchStrategy[_Step]:
    return _steps()


ex_4_3 = Exercise(
    "4.3",
    "a decode step of several sequences",
    ("decode_batch(block_tables, num_computed_tokens, block_size)",),
    _all_steps,
    _judge_step,
)
