"""Exercise 3.3: a block table that takes its blocks on demand, two of them on one pool.

The script of a case is played on the student's tables and on plain lists beside them. The trace
shows the blocks that the student's tables took.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from minipaged.errors import OutOfBlocksError
from minipaged.exercises.attempt import Raised, call, same, shown
from minipaged.exercises.exercise import Counterexample, Exercise
from minipaged.exercises.slots import Place, counted, first_difference, why_slots
from minipaged.exercises.stage import Stage, blocks, word
from minipaged.memory.block_table import BlockTable, blocks_for
from minipaged.memory.events import BlockAllocated, Requested, Written

_NAMES = "AB"
_OTHER_WORDS = 5  # where the text of table B begins


class _Append(NamedTuple):
    """One call: which table, and how many tokens."""

    table: int
    num_new_tokens: int

    def __str__(self) -> str:
        return f"{_NAMES[self.table]}.append({self.num_new_tokens}, allocate)"


class _Script(NamedTuple):
    """Appends to two tables that share a pool, whose blocks go out in this order."""

    block_size: int
    free: list[int]
    appends: list[_Append]

    def __str__(self) -> str:
        calls = "; ".join(map(str, self.appends))
        names = [_NAMES[table] for table in sorted({append.table for append in self.appends})]
        made = " = ".join([*names, f"BlockTable({self.block_size})"])
        return f"free blocks {self.free}; {made}; {calls}"


@st.composite
def _scripts(draw: DrawFn) -> _Script:
    block_size = draw(st.sampled_from((2, 3, 4)))  # the first ones are the simple ones
    free = draw(st.permutations(range(draw(st.sampled_from((2, 3, 4, 5, 6))))))
    append = st.builds(_Append, st.integers(0, 1), st.integers(1, 2 * block_size + 1))
    return _Script(block_size, list(free), draw(st.lists(append, min_size=1, max_size=5)))


@dataclass
class _Lender:
    """Hands blocks out, all that were asked for or none, and remembers what it did."""

    free: list[int]
    taken: list[int] = field(default_factory=list)
    refused: bool = False

    def allocate(self, num_blocks: int) -> list[int]:
        """What the student's table calls."""
        if type(num_blocks) is not int or num_blocks < 0:
            raise ValueError(f"allocate takes a number of blocks, not {shown(num_blocks)}")
        if num_blocks > len(self.free):
            self.refused = True
            raise OutOfBlocksError(f"need {num_blocks} blocks, {len(self.free)} free")
        blocks, self.free = self.free[:num_blocks], self.free[num_blocks:]
        self.taken += blocks
        return list(blocks)

    def named(self, got: Any) -> Any:
        """Give what an append came to; where our error passed, without the line that raised it."""
        is_ours = isinstance(got, Raised) and OutOfBlocksError.__name__ in got.error
        return Raised("allocate's error passed") if self.refused and is_ours else got


class _Wrong(NamedTuple):
    """What is not right about an append."""

    expected: str
    got: str
    why: str


class _Play:
    """One script, played on the student's tables and on ours."""

    def __init__(self, attempt: Any, script: _Script) -> None:
        self._attempt, self._size = attempt, script.block_size
        self._num_blocks = len(script.free)
        self._free = list(script.free)
        self._theirs: dict[int, Any] = {}
        self._ours = [BlockTable() for _ in _NAMES]
        self.stage = Stage(str(script), self._num_blocks, self._size)

    def append(self, append: _Append) -> _Wrong | None:
        """Play one append; what it does is on the stage."""
        unfit = self._open(append)
        if unfit:
            return unfit
        ours = self._ours[append.table]
        start, stop = ours.num_tokens, ours.num_tokens + append.num_new_tokens
        needed = blocks_for(stop, self._size) - len(ours.block_ids)
        lender = _Lender(list(self._free))
        append_to = self._theirs[append.table].append
        got = lender.named(call(append_to, append.num_new_tokens, lender.allocate))
        self._show_blocks(append.table, lender.taken)
        if needed > len(self._free):
            return self._failed(got, lender, needed) or self._kept(append.table, failed=True)
        wrong = self._took(ours, lender, needed, stop, got)
        if wrong:
            return wrong
        self._free = lender.free
        ours.block_ids += lender.taken
        slots = [self._place(append.table).slot(position) for position in range(start, stop)]
        right = len(slots) if same(got, slots) else first_difference(got, slots)
        self._show_tokens(append.table, start, start + right)
        if right < len(slots) or not same(got, slots):
            why = why_slots(got, start, stop, self._place(append.table))
            return _Wrong(shown(slots), shown(got), why)
        ours.num_tokens = stop
        return self._kept(append.table)

    # --- what can be wrong ------------------------------------------------------------------------

    def _failed(self, got: Any, lender: _Lender, needed: int) -> _Wrong | None:
        """Judge an append for which the pool is too small."""
        lacks = f"{counted(needed, 'block')} needed, {len(self._free)} free"
        expected = f"allocate's error passes: {lacks}"
        if lender.taken:
            why = (
                f"it took {blocks(lender.taken)} and failed then: no table holds them, so nobody "
                "can ever give them back; ask for all blocks at once"
            )
            return _Wrong(expected, f"took {blocks(lender.taken)}, then {shown(got)}", why)
        if not isinstance(got, Raised):
            why = "tokens without a block have no slot: let allocate's error pass"
            return _Wrong(expected, shown(got), why)
        if not lender.refused:
            return _Wrong(expected, shown(got), "allocate was not asked for the blocks it lacks")
        return None

    def _took(
        self, ours: BlockTable, lender: _Lender, needed: int, stop: int, got: Any
    ) -> _Wrong | None:
        """Judge how many blocks an append took, or tried to."""
        taken = len(lender.taken)
        if taken == needed and not lender.refused:
            return None
        blocks = counted(blocks_for(stop, self._size), "block")
        tokens = f"room for {counted(stop, 'token')} is {blocks}"
        expected = f"{counted(needed, 'block')} taken: {tokens}"
        room = (len(ours.block_ids) + taken) * self._size
        if lender.refused:
            why = f"it asked for too many blocks: {tokens}"
        elif taken < needed:
            why = f"position {room} is written now and has no block"
        else:
            why = (
                f"{tokens}, and the table held {len(ours.block_ids)}: a block taken too early is "
                "one that others can't have"
            )
        return _Wrong(expected, f"{taken} taken, then {shown(got)}", why)

    def _kept(self, table: int, is_new: bool = False, failed: bool = False) -> _Wrong | None:
        """Judge what every table says of itself; only `table` was appended to, or is new."""
        for index, theirs in sorted(self._theirs.items(), key=lambda item: item[0] != table):
            ours = self._ours[index]
            for name in ("block_ids", "num_tokens"):
                mine, right = getattr(theirs, name, None), getattr(ours, name)
                if not same(mine, right):
                    subject = f"{_NAMES[index]}.{name}"
                    why = _why_state(subject, mine, index == table, is_new, failed)
                    return _Wrong(f"{subject} == {shown(right)}", shown(mine), why)
        return None

    # --- the stage --------------------------------------------------------------------------------

    def _open(self, append: _Append) -> _Wrong | None:
        """Build the table if this is its first append."""
        if append.table in self._theirs:
            return None
        name = _NAMES[append.table]
        self.stage.happen(Requested(append.table, name, append.num_new_tokens))
        table = call(self._attempt, self._size)
        if isinstance(table, Raised):
            return _Wrong("a table", shown(table), f"BlockTable({self._size}) can't be built")
        self._theirs[append.table] = table
        return self._kept(append.table, is_new=True)

    def _place(self, table: int) -> Place:
        others = {
            block: f"table {_NAMES[index]}"
            for index, ours in enumerate(self._ours)
            for block in ours.block_ids
            if index != table
        }
        return Place(self._ours[table].block_ids, self._size, self._num_blocks, others)

    def _show_blocks(self, table: int, blocks: list[int]) -> None:
        for block in blocks:
            index = len(self.stage.state.tables.get(table, ()))
            self.stage.happen(BlockAllocated(table, index, block, "append"))

    def _show_tokens(self, table: int, start: int, stop: int) -> None:
        for position in range(start, stop):
            token = position + table * _OTHER_WORDS
            self.stage.happen(Written((table,), (token,), (word(token),)))


def _judge_table(attempt: Any, script: _Script) -> Counterexample | None:
    play = _Play(attempt, script)
    for append in script.appends:
        wrong = play.append(append)
        if wrong:
            return Counterexample(str(script), *wrong, play.stage.end_step(wrong.why))
        play.stage.end_step(str(append))
    return None


def _why_state(subject: str, mine: Any, was_called: bool, is_new: bool, failed: bool) -> str:
    if mine is None:
        return f"the table has no {subject[2:]}: keep the names that the starter sets"
    if not was_called:
        return f"{subject} changed although nothing was appended to it: do both share a list?"
    if is_new:
        return f"a new table holds nothing: does {subject} share a list with another table?"
    if failed:
        return f"allocate gave nothing, so {subject} stays as it was: after a failure, none more"
    if subject.endswith("num_tokens"):
        return "the table must count the tokens that have a slot, those of this call, too"
    return f"{subject} must name the blocks of this table in logical order, and no others"


def _all_scripts() -> SearchStrategy[_Script]:
    return _scripts()


ex_3_3 = Exercise(
    "3.3",
    "build the block table",
    ("BlockTable(block_size)", "append(num_new_tokens, allocate)"),
    _all_scripts,
    _judge_table,
)
