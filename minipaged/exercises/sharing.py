"""A script of forks, appends and ends, played twice: by the engine, and on plain lists.

The plain memory is what an attempt may work on: tables, reference counts and a free list, as a
student would write them. After every deed it must be what the engine's manager has. What lies in
the blocks is kept as well, so that a wrong table or copy can be named by what would be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from minipaged.exercises.stage import Stage, letter, word
from minipaged.memory.block_table import slot_mapping
from minipaged.memory.checked_kv import CheckedKV, cells
from minipaged.memory.events import Event, Finished, Requested
from minipaged.memory.kv_cache_manager import BlockMove, KVCacheManager
from minipaged.memory.replay import IntegrityError

FORK, APPEND, FREE = "fork", "append", "free"
NUM_BLOCKS = 6
_MAX_SEQUENCES = 4
_MAX_TOKENS = 12


class Script(NamedTuple):
    """A first sequence and what happens then: pairs of a kind and a number that picks who."""

    block_size: int
    num_prompt_tokens: int
    moves: list[tuple[str, int]]


@st.composite
def scripts(draw: DrawFn) -> Script:
    """Describe all scripts, short ones with small blocks first."""
    block_size = draw(st.integers(2, 4))
    num_prompt_tokens = draw(st.integers(1, 2 * block_size + 1))
    move = st.tuples(st.sampled_from((FORK, APPEND, FREE)), st.integers(0, _MAX_SEQUENCES - 1))
    return Script(block_size, num_prompt_tokens, draw(st.lists(move, min_size=1, max_size=10)))


class Deed(NamedTuple):
    """A move, when it is known whom it is about. `child` is for forks."""

    kind: str
    seq: int
    child: int = -1

    def __str__(self) -> str:
        who = [letter(seq) for seq in (self.seq, self.child) if seq >= 0]
        return f"{self.kind}({', '.join(who)})"


@dataclass
class PlainMemory:
    """Memory as plain Python: tables by a sequence's letter, a count a block, free blocks."""

    tables: dict[str, list[int]]
    ref_counts: list[int]
    free_list: list[int]

    def copy(self) -> PlainMemory:
        """Give one that changes on its own."""
        tables = {name: list(table) for name, table in self.tables.items()}
        return PlainMemory(tables, list(self.ref_counts), list(self.free_list))

    @property
    def is_sound(self) -> bool:
        """Whether it still consists of what it consisted of."""
        return isinstance(self.tables, dict) and all(
            isinstance(row, list) and all(type(number) is int for number in row)
            for row in (*self.tables.values(), self.ref_counts, self.free_list)
        )

    def twins(self) -> tuple[str, str] | None:
        """Give two sequences whose tables are one and the same list."""
        names = list(self.tables)
        for index, name in enumerate(names):
            for other in names[:index]:
                if self.tables[name] is self.tables[other]:
                    return other, name
        return None


class Scene:
    """One script on its way: the engine's memory, the plain one, and what the blocks hold."""

    def __init__(self, script: Script, title: str = "") -> None:
        self.block_size = script.block_size
        self.stage = Stage(title, NUM_BLOCKS, script.block_size)
        self.events: list[Event] = []
        self.manager = KVCacheManager(
            NUM_BLOCKS,
            script.block_size,
            enable_prefix_caching=False,
            notify=self.events.append,
            token_text=word,
        )
        self.kv = CheckedKV(NUM_BLOCKS, script.block_size)
        self.texts: dict[int, list[int]] = {}
        self.num_tokens = 0  # so far, of all sequences: each token is another word
        self.num_sequences = 1
        self.told = [f"blocks of {script.block_size} tokens; A starts with"]
        self._begin(script.num_prompt_tokens)
        self.plain = self.right()

    def right(self) -> PlainMemory:
        """Give the engine's memory as plain lists."""
        tables = {letter(seq): self.manager.block_table(seq) for seq in self.texts}
        pool = self.manager.pool
        return PlainMemory(tables, list(pool.ref_count), pool.free_order())

    def deed(self, move: tuple[str, int]) -> Deed | None:
        """Tell what a move means now; None if it can't be done."""
        kind, pick = move
        running = sorted(self.texts)
        if not running:
            return None
        seq = running[pick % len(running)]
        if kind == FREE:
            return Deed(FREE, seq)
        if kind == FORK:
            is_full = self.num_sequences == _MAX_SEQUENCES
            return None if is_full else Deed(FORK, seq, self.num_sequences)
        has_room = self.manager.blocks_to_append({seq: 1}) <= self.manager.pool.num_free
        return Deed(APPEND, seq) if has_room and len(self.texts[seq]) < _MAX_TOKENS else None

    def engine_does(self, deed: Deed) -> list[BlockMove]:
        """Let the manager do it; its events wait in `events`. Gives the copies to run."""
        if deed.kind == FORK:
            self.manager.fork(deed.seq, deed.child)
            self.texts[deed.child] = list(self.texts[deed.seq])
            self.num_sequences += 1
        elif deed.kind == FREE:
            self.events.append(Finished(deed.seq, "stop"))
            self.manager.free(deed.seq)
            del self.texts[deed.seq]
        else:
            moves = self.manager.append_slots(deed.seq)
            self.manager.commit([(deed.seq, [self.num_tokens])])
            self.texts[deed.seq].append(self.num_tokens)
            self.num_tokens += 1
            return moves
        return []

    def plain_follows(self, deed: Deed) -> None:
        """Do to the plain memory, in place, what the engine did to its own."""
        right, plain = self.right(), self.plain
        name = letter(deed.seq)
        if deed.kind == FORK:
            plain.tables[letter(deed.child)] = right.tables[letter(deed.child)]
        elif deed.kind == FREE:
            del plain.tables[name]
        else:
            plain.tables[name][:] = right.tables[name]
        plain.ref_counts[:], plain.free_list[:] = right.ref_counts, right.free_list

    def accept(self, deed: Deed, moves: list[BlockMove]) -> None:
        """The deed was right: it is on the stage, and in the blocks."""
        for event in self.events:
            self.stage.happen(event)
        self.events.clear()
        if deed.kind == APPEND:
            self.kv.copy(moves)
            self._write(self.kv, self.texts[deed.seq], self.manager.block_table(deed.seq))
        self.kv.wipe(self.manager.snapshot())
        self.told.append(str(deed))
        self.stage.end_step(str(deed))

    def misread(self, seq: int, copies: list[tuple[int, int]], then: int | None = None) -> str:
        """Run an attempt's copies and the write; tell who reads something else than its text.

        With `then`, this sequence writes as well, as soon as the first has.
        """
        kv, texts = CheckedKV(NUM_BLOCKS, self.block_size), dict(self.texts)
        kv.slots = list(self.kv.slots)
        try:
            kv.copy(copies)
            self._write(kv, texts[seq], self.plain.tables[letter(seq)])
            if then is not None:
                texts[then] = [*texts[then], self.num_tokens]
                self._write(kv, texts[then], self.plain.tables[letter(then)])
            return next(filter(None, (self._misread_by(kv, reader, texts) for reader in texts)), "")
        except (IntegrityError, ValueError, IndexError):  # no slot: the tables tell
            return ""

    # --- inside -----------------------------------------------------------------------------------

    def _begin(self, num_prompt_tokens: int) -> None:
        text = list(range(num_prompt_tokens))
        self.num_tokens = num_prompt_tokens
        self.told[0] += f" {num_prompt_tokens} token{'s' * (num_prompt_tokens > 1)}"
        self.stage.happen(Requested(0, "A", num_prompt_tokens))
        self.manager.allocate(0, text)
        self.manager.commit([(0, text)])
        self.texts[0] = text
        table = self.manager.block_table(0)
        self.kv.write(slot_mapping(table, 0, len(text), self.block_size), text, 0, None)
        for event in self.events:
            self.stage.happen(event)
        self.events.clear()
        self.stage.end_step(self.told[0])

    def _write(self, kv: CheckedKV, text: list[int], table: list[int]) -> None:
        """Compute the last token of a text behind the one before it."""
        position = len(text) - 1
        before, slot = slot_mapping(table, position - 1, position + 1, self.block_size)
        kv.write([slot], text[-1:], position, before)

    def _misread_by(self, kv: CheckedKV, seq: int, texts: dict[int, list[int]]) -> str:
        table = self.plain.tables[letter(seq)]
        slots = slot_mapping(table, 0, len(texts[seq]), self.block_size)
        for want, slot in zip(cells(texts[seq]), slots, strict=True):
            found = kv.slots[slot]
            place = f"at position {want.position} (block {slot // self.block_size})"
            if found is None:
                return f"{place} {letter(seq)} would read KV that was never written"
            if found.token != want.token:
                return (
                    f"{place} {letter(seq)} would read {_writer(found.token, texts)}'s token "
                    f"{word(found.token).strip()!r} where {word(want.token).strip()!r} belongs"
                )
        return ""


def _writer(token: int, texts: dict[int, list[int]]) -> str:
    return next((letter(seq) for seq, text in texts.items() if token in text), "another")


def pairs(answer: Any) -> list[tuple[int, int]] | None:
    """Give the copies that an attempt asks for; None if they are none."""
    if not isinstance(answer, list | tuple):
        return None
    found = [tuple(pair) for pair in answer if isinstance(pair, list | tuple)]
    is_right = len(found) == len(answer) and all(
        len(pair) == 2 and all(type(block) is int for block in pair) for pair in found
    )
    return [(source, target) for source, target in found] if is_right else None
