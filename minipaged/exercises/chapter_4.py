"""Chapter 4, paged generation: keys and values go into their slots, and come back in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from minipaged.exercises.attempt import Raised, call, shown
from minipaged.exercises.chapter_4_batch import ex_4_3
from minipaged.exercises.exercise import Counterexample, Exercise
from minipaged.exercises.numbered_cache import KINDS, CacheShape, first_wrong, others
from minipaged.exercises.slots import Place, counted
from minipaged.exercises.stage import Stage
from minipaged.memory.block_table import blocks_for, slot_mapping

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ex_4_1", "ex_4_2", "ex_4_3"]

_SIZES = st.sampled_from((2, 3, 4))  # the first one is the simplest
_HEADS = st.integers(1, 2)
_AS_BEFORE = ", as before"
_IN_VAIN = "What kv_write returns is not used: it changes layer_cache itself"

# --- 4.1: write -----------------------------------------------------------------------------------


class _Write(NamedTuple):
    """New tokens and where they go."""

    slots: list[int]
    shape: CacheShape

    def __str__(self) -> str:
        return f"kv_write(key, value, layer_cache, slot_mapping={self.slots}) with {self.shape}"


@st.composite
def _writes(draw: DrawFn) -> _Write:
    shape = CacheShape(draw(st.integers(2, 4)), draw(_SIZES), draw(_HEADS), draw(_HEADS))
    slots = draw(st.lists(st.integers(0, shape.num_slots - 1), unique=True, min_size=1, max_size=4))
    is_padding = draw(st.lists(st.booleans(), min_size=len(slots), max_size=len(slots)))
    return _Write([-1 if pad else s for s, pad in zip(slots, is_padding, strict=True)], shape)


def _judge_write(attempt: Any, write: _Write) -> Counterexample | None:
    import torch

    cache, expected = write.shape.cache(), write.shape.cache()
    new = write.shape.new(len(write.slots))
    for token, slot in enumerate(write.slots):
        if slot >= 0:
            block, offset = divmod(slot, write.shape.block_size)
            expected[:, block, offset] = new[:, token]
    got = call(attempt, *new.clone(), cache, torch.tensor(write.slots))
    if not isinstance(got, Raised) and torch.equal(cache, expected):
        return None
    stage = _show_write(attempt, write, cache)
    if isinstance(got, Raised):
        why = "each token's key and value belong into its slot; -1 is no slot"
        return Counterexample(str(write), "no error", shown(got), why, stage.end_step(why))
    kind, block, offset, *_ = index = first_wrong(cache, expected)
    slot = block * write.shape.block_size + offset
    named = f"the {KINDS[kind]} in slot {slot} (block {block}, offset {offset})"
    wanted, found = (_described(write, tensor[index]) for tensor in (expected, cache))
    why = _why_write(write, slot, named, found, got is not None)
    trace = stage.end_step(why)
    return Counterexample(str(write), f"{named}: {wanted}", found, why, trace)


def _described(write: _Write, number: Tensor) -> str:
    row = write.shape.origin(float(number), len(write.slots))
    if row is None:
        return f"{float(number)}, which is nobody's"
    return str(row) if row.token is not None else f"{row}{_AS_BEFORE}"


def _why_write(write: _Write, slot: int, named: str, found: str, answers: bool) -> str:
    if slot in write.slots and found.endswith(_AS_BEFORE):
        vain = f". {_IN_VAIN}" if answers else ""
        return f"slot_mapping[{write.slots.index(slot)}] is {slot}: {named} was not written{vain}"
    if slot in write.slots:
        return f"slot_mapping[{write.slots.index(slot)}] is {slot}: {named} is now {found}"
    if -1 in write.slots and slot == write.shape.num_slots - 1:
        return (
            f"slot {slot} was overwritten: -1 means that a token is not written, but as an index "
            "it names the last slot of the cache, which is somebody else's"
        )
    return f"nobody asked to write slot {slot}, which is somebody else's: {named} is now {found}"


def _show_write(attempt: Any, write: _Write, cache: Tensor) -> Stage:
    """Show who holds what, and which slots the attempt changed."""
    shape = write.shape
    stage = Stage(str(write), shape.num_blocks, shape.block_size)
    held = sorted({slot // shape.block_size for slot in write.slots if slot >= 0})
    _share_out(stage, held, 0, shape.num_blocks)
    changed = (cache != shape.cache()).flatten(3).any(-1).any(0).flatten().nonzero().flatten()
    slots = sorted(changed.tolist(), key=lambda slot: slot not in write.slots)
    for row, slot in enumerate(slots):
        if slot not in write.slots:
            stage.trace.end_step(0, 0, "the other slots are those that were asked for")
        stage.happen(shape.access(attempt, row, slot, "store"))
    return stage


def _share_out(stage: Stage, table: list[int], num_tokens: int, num_blocks: int) -> None:
    """Let one sequence have a table, and another all other blocks."""
    stage.has_text(0, table, num_tokens, "yours")
    rest = others(table, num_blocks)
    if rest:
        stage.has_text(1, rest, len(rest) * stage.block_size, "somebody else")
    stage.trace.end_step(0, 0, "who holds which block")


def _all_writes() -> SearchStrategy[_Write]:
    return _writes()


ex_4_1 = Exercise(
    "4.1",
    "write keys and values into their slots",
    ("kv_write(key, value, layer_cache, slot_mapping)",),
    _all_writes,
    _judge_write,
    twin="minipaged_kernels.reference:kv_write",
)

# --- 4.2: gather ----------------------------------------------------------------------------------


class _Gather(NamedTuple):
    """A sequence to read back."""

    table: list[int]
    num_tokens: int
    shape: CacheShape

    def __str__(self) -> str:
        return f"gather_kv(layer_cache, {self.table}, num_tokens={self.num_tokens}), {self.shape}"


@st.composite
def _gathers(draw: DrawFn) -> _Gather:
    shape = CacheShape(draw(st.integers(4, 6)), draw(_SIZES), draw(_HEADS), draw(_HEADS))
    num_tokens = draw(st.integers(1, 3 * shape.block_size))
    size = blocks_for(num_tokens, shape.block_size) + draw(st.integers(0, 1))  # one may be reserved
    block = st.integers(0, shape.num_blocks - 1)
    table = draw(st.lists(block, unique=True, min_size=size, max_size=size))
    return _Gather(table, num_tokens, shape)


def _judge_gather(attempt: Any, gather: _Gather) -> Counterexample | None:
    import torch

    shape, cache = gather.shape, gather.shape.cache()
    slots = slot_mapping(gather.table, 0, gather.num_tokens, shape.block_size)
    expected = cache.flatten(1, 2)[:, slots]
    got = call(attempt, cache, list(gather.table), gather.num_tokens)
    if isinstance(got, torch.Tensor) and got.dim():
        got = got.unbind()  # one tensor for both will do
    unfit = _unfit(got, gather)
    if not unfit and torch.equal(cache, shape.cache()) and torch.equal(_both(got), expected):
        return None
    stage = Stage(str(gather), shape.num_blocks, shape.block_size)
    _share_out(stage, gather.table, gather.num_tokens, shape.num_blocks)
    if unfit:
        wanted, found, why = f"two tensors {_rows(gather)}", unfit, _why_unfit(gather, unfit)
    elif not torch.equal(cache, shape.cache()):
        wanted, found, why = "the cache as it was", "the cache changed", "it is only to be read"
    else:
        wanted, found, why = _wrong_row(attempt, stage, gather, _both(got), expected)
    return Counterexample(str(gather), wanted, found, why, stage.end_step(why))


def _rows(gather: _Gather) -> str:
    return f"[{gather.num_tokens}, {gather.shape.num_kv_heads}, {gather.shape.head_dim}]"


def _why_unfit(gather: _Gather, unfit: str) -> str:
    num_slots = len(gather.table) * gather.shape.block_size
    words = f"one row for each token was expected, {gather.num_tokens} in all"
    if num_slots == gather.num_tokens or not unfit.startswith(f"shapes [{num_slots},"):
        return words
    return f"{words}: the table's blocks have {counted(num_slots, 'slot')}, the last ones empty"


def _unfit(got: Any, gather: _Gather) -> str:
    """Tell what came back if it is not keys and values of the right shape."""
    shape = [gather.num_tokens, gather.shape.num_kv_heads, gather.shape.head_dim]
    if isinstance(got, Raised) or not isinstance(got, (tuple, list)) or len(got) != 2:
        return shown(got)
    shapes = [list(getattr(each, "shape", ())) for each in got]
    return "" if shapes == [shape, shape] else f"shapes {shapes[0]} and {shapes[1]}"


def _both(got: Any) -> Tensor:
    import torch

    return torch.stack([each.float() for each in got])


def _wrong_row(
    attempt: Any, stage: Stage, gather: _Gather, got: Tensor, expected: Tensor
) -> tuple[str, str, str]:
    """Show what was read up to the first wrong row, and tell what is wrong with it."""
    shape = gather.shape
    strangers = dict.fromkeys(others(gather.table, shape.num_blocks), "somebody else")
    place = Place(gather.table, shape.block_size, shape.num_blocks, strangers)
    kind, position, *_ = index = first_wrong(got, expected)
    for row in range(position + 1):
        if row == position:  # the wrong one is a step of its own
            stage.trace.end_step(0, 0, f"rows before row {row} are right")
        read = shape.origin(float(got[kind, row].flatten()[0]))
        if read is not None and read.slot is not None:
            stage.happen(shape.access(attempt, row, read.slot, "load"))
    origin = shape.origin(float(got[index]))
    found = f"{float(got[index])}, which is nobody's" if origin is None else str(origin)
    row_of = f"row {position} of the {KINDS[kind]}s"
    wanted = f"{row_of} is the {KINDS[kind]} of slot {place.slot(position)}"
    if origin is None or origin.slot is None:
        return wanted, found, f"{row_of} must come from the cache"
    if origin.slot == place.slot(position):
        why = "keys are layer_cache[0], values layer_cache[1], and heads keep their order"
        return wanted, found, f"{row_of} is {found}: {why}"
    return wanted, found, f"{place.way(position)}; {place.whose(origin.slot)}"


def _all_gathers() -> SearchStrategy[_Gather]:
    return _gathers()


ex_4_2 = Exercise(
    "4.2",
    "gather keys and values through the table",
    ("gather_kv(layer_cache, block_table, num_tokens)",),
    _all_gathers,
    _judge_gather,
)
