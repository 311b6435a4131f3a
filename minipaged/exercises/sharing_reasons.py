"""Why a deed on shared memory was wrong: the cause, and what would be read or lost by it."""

from __future__ import annotations

from typing import Any, NamedTuple

from minipaged.exercises.attempt import Raised
from minipaged.exercises.sharing import Deed, PlainMemory, Scene, pairs
from minipaged.exercises.stage import letter
from minipaged.memory.kv_cache_manager import BlockMove

_IN_VAIN = ". What fork returns is not used: it changes tables and ref_counts themselves"


class Case(NamedTuple):
    """A deed that an attempt had its hands in: before, and what came of it."""

    scene: Scene
    deed: Deed
    before: PlainMemory
    right: PlainMemory
    answer: Any
    moves: list[BlockMove]

    @property
    def mine(self) -> PlainMemory:
        """The memory that the attempt left behind."""
        return self.scene.plain

    def table_of(self, seq: int) -> list[int]:
        """Give the table that a sequence should have now."""
        return self.right.tables[letter(seq)]

    def holders(self, block: int) -> str:
        """Tell in whose tables a block should stand now: "A and B"."""
        names = [name for name, table in self.right.tables.items() if block in table]
        if len(names) < 2:
            return "".join(names) or "nobody"
        return f"{', '.join(names[:-1])} and {names[-1]}"


def why_at_all(case: Case) -> str:
    """Give a reason that holds for any deed."""
    if isinstance(case.answer, Raised):
        return "it did not come to its end, and memory is left half done"
    if not case.mine.is_sound:
        return _why_unsound(case.mine.tables)
    num_counts, num_blocks = len(case.mine.ref_counts), len(case.right.ref_counts)
    if num_counts != num_blocks:
        return f"ref_counts has {num_counts} entries now: one for each of the {num_blocks} blocks"
    twins = case.mine.twins()
    if twins:
        one, other = twins
        return (
            f"the tables of {one} and {other} are one and the same list: what {one} does to "
            f"its table happens to {other}'s as well. A fork needs a list of its own"
        )
    return ""


def _why_unsound(tables: Any) -> str:
    if isinstance(tables, dict):
        for name, table in tables.items():
            if not isinstance(table, list):
                return (
                    f"here tables[{name!r}] is a {type(table).__name__}, not a list: a table grows "
                    "with its sequence"
                )
    return "tables must stay a dict of lists of block numbers, ref_counts and free_list lists"


def why_fork(case: Case) -> str:
    """Tell why a fork was wrong."""
    parent, child = letter(case.deed.seq), letter(case.deed.child)
    tables, right = case.mine.tables, case.right.tables
    if child not in tables:
        vain = "" if case.answer is None else _IN_VAIN
        return f"{child} has no table: it could not read the text that it goes on with{vain}"
    if tables[child] != right[child]:
        return (
            f"{child} goes on with {parent}'s text, so its table must name {parent}'s blocks in "
            f"their order: {right[child]}, not {tables[child]}"
        )
    if tables != right:
        return f"only {child}'s table is new; all others stay as they were"
    return f"{_why_count(case)}{_IN_VAIN if case.answer is not None else ''}"


def why_append(case: Case) -> str:
    """Tell why an append was wrong."""
    copies = pairs(case.answer)
    if copies is None:
        return "what to copy is a list of pairs (source, target); with nothing to copy, []"
    name = letter(case.deed.seq)
    position = len(case.scene.texts[case.deed.seq]) - 1
    index = position // case.scene.block_size
    old, new = case.before.tables[name], case.right.tables[name]
    if len(new) > len(old):
        return _why_new(case, copies, position)
    if case.moves:
        return _why_copy(case, copies, position)
    if copies or case.mine.tables[name] != new:
        return (
            f"position {position} lies in block {old[index]}, which {name} holds alone "
            "(reference count 1): it can be written as it is, there is nothing to copy or to take"
        )
    return _why_lists(case)


def _why_new(case: Case, copies: list[tuple[int, int]], position: int) -> str:
    name = letter(case.deed.seq)
    old, mine = case.before.tables[name], case.mine.tables[name]
    size, block = case.scene.block_size, case.before.free_list[0]
    if copies:
        return (
            f"position {position} is a multiple of the block size {size}: it opens a new block on "
            f"the block boundary. {name}'s full blocks are not written again, so nothing is copied"
        )
    if len(mine) <= len(old):
        return (
            f"position {position} lies in logical block {position // size}, which {name}'s table "
            "does not have yet: there is no slot to write to. It needs a new block"
        )
    return _why_taken(case, block, mine[-1]) or _why_lists(case)


def _why_copy(case: Case, copies: list[tuple[int, int]], position: int) -> str:
    name = letter(case.deed.seq)
    ((source, target),) = case.moves
    index = position // case.scene.block_size
    mine = case.mine.tables[name]
    shared = f"block {source} is shared: its reference count is {case.before.ref_counts[source]}"
    read = case.scene.misread(case.deed.seq, copies)
    harm = f": {read}" if read else ""
    if (target, source) in copies:
        return f"the copy runs in the wrong direction, from the new block into the shared one{harm}"
    if len(mine) > index and mine[index] == source:
        kept = f"{name}'s table still names block {source}" if copies else "it was not copied"
        other = next(seq for seq in case.scene.texts if source in case.table_of(seq))
        read = case.scene.misread(case.deed.seq, copies, then=other)
        harm = f". As soon as both have, {read}" if read else ""
        return f"{shared}, and {kept}: {name} and {letter(other)} write to the same slot{harm}"
    if not copies:
        return f"{shared}, and {name}'s new block has nothing of what was in it{harm}"
    if len(copies) > 1:
        return f"only block {source} is written to: {name}'s other blocks stay shared"
    if len(mine) > index and mine[index] != target:
        return _why_taken(case, target, mine[index])
    if copies != [(source, target)]:
        return f"{name} needs what is in block {source} in its block {target}, and no more{harm}"
    if case.mine.ref_counts[source] > case.right.ref_counts[source]:
        return (
            f"{name} has left block {source}, but its reference was not given back: the count says "
            f"{case.mine.ref_counts[source]}, the tables of {case.holders(source)} name it. It "
            "will never be free again"
        )
    return _why_lists(case)


def why_free(case: Case) -> str:
    """Tell why the end of a sequence was wrong."""
    name = letter(case.deed.seq)
    if name in case.mine.tables:
        return (
            f"{name} has ended, but its table still names {case.mine.tables[name]}: these "
            "references were given back"
        )
    if case.mine.tables != case.right.tables:
        return f"only {name} has ended; the other tables stay as they were"
    early = set(case.mine.free_list) - set(case.right.free_list)
    if early or case.mine.ref_counts == case.right.ref_counts:
        return _why_free_list(case)
    return _why_count(case)


# --- what they have in common ---------------------------------------------------------------------


def _why_count(case: Case) -> str:
    """Tell about the first reference count that is wrong."""
    rows = zip(case.mine.ref_counts, case.right.ref_counts, strict=False)
    for block, (mine, right) in enumerate(rows):
        holders = case.holders(block)
        tables = "tables" if " and " in holders else "table"
        stands = f"block {block} stands in the {tables} of {holders}"
        if mine < right and right == 1:
            return f"{stands}, but your ref_counts say {mine}: it may be given away under it"
        if mine < right:
            return (
                f"{stands}, but your ref_counts say {mine}: a reference was not taken, so the "
                "block is given away while somebody still reads it"
            )
        if mine > right:
            return (
                f"{stands}, but your ref_counts say {mine}: a reference too many, so it will "
                "never be free again"
            )
    return ""


def _why_lists(case: Case) -> str:
    """Tell about the first of tables, reference counts and free list that is wrong."""
    for name, table in case.right.tables.items():
        if case.mine.tables.get(name) != table:
            return f"{name}'s table should be {table} now, not {case.mine.tables.get(name)}"
    return _why_count(case) or _why_free_list(case)


def _why_taken(case: Case, right: int, mine: int) -> str:
    if mine == right:
        return ""
    if mine in case.before.free_list:
        return f"block {right} was freed least recently and stands first: it is taken, not {mine}"
    return f"block {mine} is not free: {case.holders(mine)} would be overwritten"


def _why_free_list(case: Case) -> str:
    """Tell about the first thing that is wrong with the free list."""
    mine, right = case.mine.free_list, case.right.free_list
    for block in mine:
        if block not in right:
            return (
                f"block {block} is in the free list while {case.holders(block)} holds it: the next "
                "to need a block gets it, and writes over what is read there"
            )
        if mine.count(block) > 1:
            return f"block {block} stands twice in the free list: it will be given away twice"
    for block in right:
        if block not in mine:
            return (
                f"nobody holds block {block} any more, but it is not in the free list: it is lost "
                "for ever"
            )
    return (
        f"the free list should be {right}: a block is taken from its front and given back at its "
        "end, behind the others, a table's tail first"
    )
