"""A student's block pool beside a right one: each operation on both, and what came of it as events.

Every block that the pool hands out goes to a sequence of its own, which writes one word into it.
Where the student's pool hands a block out a second time, the trace shows it as what it is: one
block in the tables of two sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from minipaged.exercises.attempt import Raised, call, same, shown
from minipaged.exercises.exercise import Counterexample
from minipaged.exercises.stage import Stage, letter, word
from minipaged.memory.events import (
    BlockAllocated,
    BlockShared,
    Forked,
    Prefilled,
    Released,
    Requested,
)


class Pool(Protocol):
    """What both pools can do."""

    def allocate(self) -> int:
        """Take a block."""
        ...

    def free(self, block: int) -> None:
        """Give a block back."""
        ...

    def num_free(self) -> int:
        """Give how many blocks are free."""
        ...


class PoolPlay:
    """One pool after another, operation by operation, until the student's goes wrong.

    Args:
        attempt: The student's class.
        right: A new pool that does everything right.
        num_blocks: Blocks in either.
    """

    def __init__(self, attempt: Any, right: Pool, num_blocks: int) -> None:
        self._attempt, self._right, self._num_blocks = attempt, right, num_blocks
        self._pool: Any = None
        self._script = [f"pool = {attempt.__name__}({num_blocks})"]
        self._stage = Stage(self._script[0], num_blocks, block_size=1)
        self._owner: dict[int, int] = {}
        self._num_seqs = 0

    # --- the operations ---------------------------------------------------------------------------

    def begin(self) -> Counterexample | None:
        """Build the student's pool."""
        self._pool = call(self._attempt, self._num_blocks)
        if isinstance(self._pool, Raised):
            return self._wrong("it gives a pool", str(self._pool), "a pool can't be built")
        return self._check_num_free("a new pool: every block is free")

    def allocate(self) -> Counterexample | None:
        """Take a block from both."""
        expected = self._right.allocate() if self._right.num_free() else None
        got = self._do("allocate()", lambda: self._pool.allocate())
        if expected is None:
            return self._allocate_from_none(got)
        if not same(got, expected):
            why = self._why_not_this_block(got, expected)
            return self._wrong(f"allocate() gives {expected}", shown(got), why)
        self._hand_out(expected)
        self._stage.end_step(self._script[-1])
        return self._check_num_free(f"block {expected} is in use now")

    def free(self, block: int) -> Counterexample | None:
        """Give a block back to both."""
        got = self._do(f"free({block})", lambda: self._pool.free(block))
        if block not in self._owner:
            return self._free_what_is_not_in_use(block, got)
        self._right.free(block)
        if isinstance(got, Raised):
            who = letter(self._owner[block])
            why = f"block {block} was in use: {who} had it{self._hidden('free')}"
            return self._wrong(f"free({block}) takes the block back", str(got), why)
        self._stage.happen(Released(self._owner.pop(block), (block,), "finished"))
        self._stage.end_step(self._script[-1])
        return self._check_num_free(f"block {block} is free now")

    # --- what must be an error --------------------------------------------------------------------

    def _allocate_from_none(self, got: Any) -> Counterexample | None:
        if _is_error(got):
            return self._check_num_free("a call that fails must leave the pool as it was")
        why = "no block is free, so allocate must raise an error"
        if self._is_in_use(got):
            why = f"{why}; {self._hand_out_twice(got)}"
        elif not isinstance(got, Raised):
            why = f"{why}: whoever gets {shown(got)} would take it for a block"
        gave = str(got) if isinstance(got, Raised) else f"it gave {shown(got)}"
        return self._wrong("allocate() raises an error", gave, why)

    def _free_what_is_not_in_use(self, block: int, got: Any) -> Counterexample | None:
        if _is_error(got):
            return self._check_num_free("a call that fails must leave the pool as it was")
        inside = 0 <= block < self._num_blocks
        why = f"block {block} is {'free already' if inside else 'not in this pool'}"
        accepted = str(got) if isinstance(got, Raised) else "it raised none"
        why = f"{why}{self._what_comes_of_it()}"
        return self._wrong(f"free({block}) raises an error", accepted, why)

    def _what_comes_of_it(self) -> str:
        """Go on with the student's pool until it hands out what it must not."""
        for _ in range(self._num_blocks + 1):
            got = self._do("allocate()", lambda: self._pool.allocate())
            if self._is_in_use(got):
                return f"; {self._hand_out_twice(got)}"
            if not self._is_block(got):
                ended = isinstance(got, Raised)
                return "" if ended else f"; later allocate gives {shown(got)}, which is no block"
            self._hand_out(got)
            self._stage.end_step(self._script[-1])
        return ""

    # --- what happens to memory -------------------------------------------------------------------

    def _hand_out(self, block: int) -> None:
        seq = self._new_seq()
        self._stage.happen(Requested(seq, "", 1))
        self._stage.happen(BlockAllocated(seq, 0, block, "prompt"))
        self._stage.happen(Prefilled(seq, 0, (seq,), (word(seq),)))
        self._owner[block] = seq

    def _hand_out_twice(self, block: int) -> str:
        """Show one block in two tables, and say what that means."""
        owner, seq = self._owner[block], self._new_seq()
        first, second = letter(owner), letter(seq)
        self._stage.happen(Forked(owner, seq))
        self._stage.end_step(
            f"{self._script[-1]}: {second} asks for a block and gets {first}'s; nobody forked, "
            "but that is what memory looks like now"
        )
        self._stage.happen(BlockShared(seq, 0, block))
        return (
            f"block {block} is handed out twice: {first} still has it, and {second} will write "
            f"over {first}'s keys and values"
        )

    def _new_seq(self) -> int:
        self._num_seqs += 1
        return self._num_seqs - 1

    # --- judging ----------------------------------------------------------------------------------

    def _do(self, words: str, operation: Callable[[], Any]) -> Any:
        got = call(operation)
        result = "" if got is None else f" -> {'error' if isinstance(got, Raised) else shown(got)}"
        self._script.append(f"pool.{words}{result}")
        return got

    def _is_block(self, got: Any) -> bool:
        return isinstance(got, int) and 0 <= got < self._num_blocks

    def _is_in_use(self, got: Any) -> bool:
        return self._is_block(got) and got in self._owner

    def _why_not_this_block(self, got: Any, expected: int) -> str:
        if isinstance(got, Raised):
            return f"block {expected} is free, so allocate must give it{self._hidden('allocate')}"
        if self._is_in_use(got):
            return self._hand_out_twice(got)
        if got is None:
            return "allocate gives the block's number; None is what comes without a return"
        if not self._is_block(got):
            return f"{shown(got)} is no block of this pool: it has 0 to {self._num_blocks - 1}"
        self._hand_out(got)
        return f"block {got} is free, but block {expected} has been free for longer: it goes first"

    def _check_num_free(self, why: str) -> Counterexample | None:
        expected = self._right.num_free()
        got = call(lambda: self._pool.num_free())
        if same(got, expected):
            return None
        self._script.append(f"pool.num_free() -> {shown(got)}")
        why = f"{why}{self._hidden('num_free')}"
        return self._wrong(f"num_free() gives {expected}", shown(got), why)

    def _hidden(self, method: str) -> str:
        """Tell of an attribute that took a method's name, a mistake that is hard to see."""
        if not same(call(lambda: method in vars(self._pool)), True):
            return ""
        return f"; self.{method} hides the method of that name: call it something else"

    def _wrong(self, expected: str, got: str, why: str) -> Counterexample:
        if not self._num_seqs:  # nobody has a block: somebody waits for one
            self._stage.happen(Requested(0, "", 1))
        trace = self._stage.end_step(why)
        return Counterexample("; ".join(self._script), expected, got, why, trace)


def _is_error(got: Any) -> bool:
    return isinstance(got, Raised) and not got.too_slow
