"""Chapter 6, sharing: fork, append with copy-on-write, and who frees when.

An attempt plays its part in a script of forks, appends and ends; the engine's manager plays the
same. Whatever differs after a deed is named by what it would do to memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from minipaged.exercises.attempt import Raised, call, same, shown
from minipaged.exercises.exercise import Counterexample, Exercise
from minipaged.exercises.sharing import (
    APPEND,
    FORK,
    FREE,
    Deed,
    Scene,
    Script,
    pairs,
    scripts,
)
from minipaged.exercises.sharing_reasons import Case, why_append, why_at_all, why_fork, why_free
from minipaged.exercises.stage import letter
from minipaged.memory.events import (
    BlockAllocated,
    BlockCopied,
    BlockShared,
    Event,
    Forked,
    Released,
)


class _Part(NamedTuple):
    """What is asked of an attempt: which deeds, how it is called, why it was wrong."""

    title: str
    kind: str
    call: Callable[[Any, Scene, Deed], Any]
    told: Callable[[Scene, Deed], str]
    why: Callable[[Case], str]
    show: Callable[[Case], None]


def _judge(part: _Part, attempt: Any, script: Script) -> Counterexample | None:
    scene = Scene(script, part.title)
    for move in script.moves:
        deed = scene.deed(move)
        if deed is None:
            continue
        is_asked = deed.kind == part.kind
        before, told = scene.plain.copy(), part.told(scene, deed) if is_asked else str(deed)
        answer = part.call(attempt, scene, deed) if is_asked else None
        moves = scene.engine_does(deed)
        if not is_asked and scene.plain.is_sound:
            scene.plain_follows(deed)
        case = Case(scene, deed, before, scene.right(), answer, moves)
        expected, got = _differences(case, is_asked)
        if got:
            return _counterexample(part, case, told, expected, got)
        scene.accept(deed, moves)
    return None


def _differences(case: Case, is_asked: bool) -> tuple[str, str]:
    """Give what should be and what is, where these differ; empty where they don't."""
    if isinstance(case.answer, Raised):
        return f"a {case.deed.kind} that comes to its end", shown(case.answer)
    rows = [
        (name, getattr(case.right, name), getattr(case.mine, name))
        for name in ("tables", "ref_counts", "free_list")
    ]
    if is_asked and case.deed.kind == APPEND:
        moves = [tuple(move) for move in case.moves]
        found = pairs(case.answer)
        rows.insert(0, ("copies", moves, case.answer if found is None else found))
    wrong = [row for row in rows if not same(row[2], row[1])]
    expected = ", ".join(f"{name} {shown(right)}" for name, right, _ in wrong)
    return expected, ", ".join(f"{name} {shown(mine)}" for name, _, mine in wrong)


def _counterexample(part: _Part, case: Case, told: str, expected: str, got: str) -> Counterexample:
    why = why_at_all(case) or part.why(case)
    stage = case.scene.stage
    if case.deed.kind != part.kind:  # the engine's own deed; the lists were amiss before
        _show_engine(case)
    elif case.mine.is_sound and not isinstance(case.answer, Raised):
        part.show(case)
    story = "; ".join([*case.scene.told, told])
    return Counterexample(story, expected, got, why, stage.end_step(why))


def _show_engine(case: Case) -> None:
    for event in case.scene.events:
        case.scene.stage.happen(event)


# --- 6.1 fork -------------------------------------------------------------------------------------


def _call_fork(attempt: Any, scene: Scene, deed: Deed) -> Any:
    names = letter(deed.seq), letter(deed.child)
    return call(attempt, scene.plain.tables, scene.plain.ref_counts, *names)


def _tell_fork(scene: Scene, deed: Deed) -> str:
    tables, counts = scene.plain.tables, scene.plain.ref_counts
    return f"fork({tables}, {counts}, {letter(deed.seq)!r}, {letter(deed.child)!r})"


def _show_fork(case: Case) -> None:
    """Show the child's table with the references that it must have, as far as it makes sense."""
    stage, deed, mine = case.scene.stage, case.deed, case.mine
    if stage.happens(Forked(deed.seq, deed.child)):
        return
    for index, block in enumerate(mine.tables.get(letter(deed.child), [])):
        if stage.happens(BlockShared(deed.child, index, block)):
            return


# --- 6.2 append -----------------------------------------------------------------------------------


def _append_arguments(scene: Scene, deed: Deed) -> tuple[Any, ...]:
    plain, num_tokens = scene.plain, len(scene.texts[deed.seq])
    table = plain.tables[letter(deed.seq)]
    return table, num_tokens, plain.ref_counts, plain.free_list, scene.block_size


def _call_append(attempt: Any, scene: Scene, deed: Deed) -> Any:
    return call(attempt, *_append_arguments(scene, deed))


def _tell_append(scene: Scene, deed: Deed) -> str:
    table, num_tokens, counts, free, size = _append_arguments(scene, deed)
    return (
        f"{letter(deed.seq)} appends: append_with_copy_on_write({table}, num_tokens={num_tokens}, "
        f"ref_counts={counts}, free_list={free}, block_size={size})"
    )


def _show_append(case: Case) -> None:
    """Show how the table changed; an entry without its copy as a block left for an empty one."""
    stage, seq, name = case.scene.stage, case.deed.seq, letter(case.deed.seq)
    old, mine = case.before.tables[name], case.mine.tables[name]
    copies = pairs(case.answer) or []
    events: list[Event] = []
    for index, block in enumerate(mine):
        if index >= len(old):
            is_due = len(case.right.tables[name]) > len(old)
            why = "append" if is_due else "as your function says"
            events.append(BlockAllocated(seq, index, block, why))
        elif (old[index], block) in copies:
            why = f"block {old[index]} is shared by {case.before.ref_counts[old[index]]}"
            events.append(BlockCopied(seq, index, old[index], block, why))
        elif block != old[index] and index == len(old) - 1:
            events.append(Released(seq, (old[index],), "left for another one"))
            why = f"an empty one, in place of block {old[index]}"
            events.append(BlockAllocated(seq, index, block, why))
    for event in events:
        if stage.happens(event):
            return


# --- 6.3 free -------------------------------------------------------------------------------------


def _call_free(attempt: Any, scene: Scene, deed: Deed) -> Any:
    plain = scene.plain
    return call(attempt, plain.tables, plain.ref_counts, plain.free_list, letter(deed.seq))


def _tell_free(scene: Scene, deed: Deed) -> str:
    plain = scene.plain
    lists = f"{plain.tables}, {plain.ref_counts}, {plain.free_list}"
    return f"free({lists}, {letter(deed.seq)!r})"


def _show_free(case: Case) -> None:
    """Show the end as the engine does it, if each block lost the reference that it had to lose."""
    if case.mine.ref_counts == case.right.ref_counts:
        _show_engine(case)


_FORK = _Part("fork", FORK, _call_fork, _tell_fork, why_fork, _show_fork)
_APPEND = _Part(
    "append with copy-on-write", APPEND, _call_append, _tell_append, why_append, _show_append
)
_FREE = _Part("free", FREE, _call_free, _tell_free, why_free, _show_free)

ex_6_1 = Exercise(
    "6.1",
    "fork a sequence",
    ("fork(tables, ref_counts, parent, child)",),
    scripts,
    partial(_judge, _FORK),
)

ex_6_2 = Exercise(
    "6.2",
    "append with copy-on-write",
    ("append_with_copy_on_write(table, num_tokens, ref_counts, free_list, block_size)",),
    scripts,
    partial(_judge, _APPEND),
)

ex_6_3 = Exercise(
    "6.3",
    "free what nobody else holds",
    ("free(tables, ref_counts, free_list, seq)",),
    scripts,
    partial(_judge, _FREE),
)
