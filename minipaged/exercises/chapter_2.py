"""Chapter 2, virtual memory: from a virtual address to a physical one, and a pool of frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from minipaged.exercises.attempt import Raised, call, same, shown
from minipaged.exercises.exercise import Counterexample, Exercise
from minipaged.exercises.pool_play import PoolPlay
from minipaged.exercises.stage import Stage
from minipaged.memory import block_pool

# --- 2.1: translate -------------------------------------------------------------------------------

_NUM_FRAMES = 8


class _Access(NamedTuple):
    """A process touches an address; only the page of that address may be missing."""

    page_table: list[int | None]
    address: int
    page_size: int

    def __str__(self) -> str:
        return f"translate({self.page_table}, address={self.address}, page_size={self.page_size})"

    @property
    def present(self) -> list[int]:
        """Frames of the pages before the first that is missing."""
        frames: list[int] = []
        for frame in self.page_table:
            if frame is None:
                break
            frames.append(frame)
        return frames


@st.composite
def _draw_access(draw: DrawFn) -> _Access:
    page_size = draw(st.integers(1, 4))
    size = draw(st.integers(1, 4))
    address = draw(st.integers(0, size * page_size - 1))
    a_frame = st.integers(0, _NUM_FRAMES - 1)
    frames = draw(st.lists(a_frame, unique=True, min_size=size, max_size=size))
    table: list[int | None] = list(frames)
    if draw(st.integers(0, 3)) == 3:
        table[address // page_size] = None
    return _Access(table, address, page_size)


def _accesses() -> SearchStrategy[_Access]:
    return _draw_access()


def translate(page_table: Sequence[int | None], address: int, page_size: int) -> int | None:
    """Give the physical address behind a virtual one; None where its page is in no frame.

    >>> translate([5, 2], address=6, page_size=4), translate([5, None], address=6, page_size=4)
    (10, None)
    """
    page, offset = divmod(address, page_size)
    frame = page_table[page]
    return None if frame is None else frame * page_size + offset


def _judge_access(attempt: Any, access: _Access) -> Counterexample | None:
    expected = translate(*access)
    table = list(access.page_table)
    got = call(attempt, table, *access[1:])
    if got is not None and expected is None:
        why = _why_fault(access, got)
    elif not same(got, expected):
        why = _why_address(access, got)
    elif table != access.page_table:
        why = "the right address, but your function changed the page table, which belongs to others"
    else:
        return None
    stage = Stage(str(access), _NUM_FRAMES, access.page_size)
    held = len(access.present) * access.page_size
    stage.has_text(0, access.present, min(held, access.address + 1), "process")
    return Counterexample(str(access), shown(expected), shown(got), why, stage.end_step(why))


def _why_fault(access: _Access, got: Any) -> str:
    page = access.address // access.page_size
    wrong = "an error" if isinstance(got, Raised) else shown(got)
    return (
        f"address {access.address} lies in page {page}, and page {page} is in no frame: that is a "
        f"page fault, so there is no physical address to give; None says so, {wrong} doesn't"
    )


def _why_address(access: _Access, got: Any) -> str:
    page, offset = divmod(access.address, access.page_size)
    frame = access.present[page]
    right = frame * access.page_size + offset
    place = (
        f"address {access.address} lies in page {page}, offset {offset}; page {page} is in frame "
        f"{frame}: {frame} * {access.page_size} + {offset} = {right}"
    )
    if got is None:
        return f"{place}; you gave None, a page fault, but the page is there"
    is_address = isinstance(got, int) and 0 <= got < _NUM_FRAMES * access.page_size
    if is_address and got // access.page_size not in access.present:
        return f"{place}; {got} is in frame {got // access.page_size}, which is somebody else's"
    if is_address:
        return f"{place}; at {got} lies another byte of this process"
    return place


ex_2_1 = Exercise(
    "2.1",
    "from a virtual address to a physical one",
    ("translate(page_table, address, page_size)",),
    _accesses,
    _judge_access,
    twin="minipaged.exercises.chapter_2:translate",
)

# --- 2.2: the pool --------------------------------------------------------------------------------


class BlockPool:
    """The engine's own pool, with the methods of the exercise."""

    def __init__(self, num_blocks: int) -> None:
        self._pool = block_pool.BlockPool(num_blocks)

    def allocate(self) -> int:
        """Take the block that has been free the longest."""
        return self._pool.allocate(for_seq=0)

    def free(self, block: int) -> None:
        """Give a block back."""
        self._pool.release([block])

    def num_free(self) -> int:
        """Give how many blocks are free."""
        return self._pool.num_free


_ALLOCATE = None  # in a list of operations; a number is the block to free


class _Script(NamedTuple):
    """What is done to a pool, in order."""

    num_blocks: int
    operations: list[int | None]


@st.composite
def _draw_script(draw: DrawFn) -> _Script:
    num_blocks = draw(st.integers(1, 4))
    a_block = st.one_of(st.integers(0, num_blocks - 1), st.sampled_from([num_blocks, -1]))
    operation = st.one_of(st.none(), a_block)
    return _Script(num_blocks, draw(st.lists(operation, min_size=1, max_size=10)))


def _scripts() -> SearchStrategy[_Script]:
    return _draw_script()


def _judge_pool(attempt: Any, script: _Script) -> Counterexample | None:
    play = PoolPlay(attempt, BlockPool(script.num_blocks), script.num_blocks)
    operations = iter(script.operations)
    found = play.begin()
    while found is None and (operation := next(operations, ...)) is not ...:
        found = play.allocate() if operation is _ALLOCATE else play.free(operation)
    return found


ex_2_2 = Exercise(
    "2.2",
    "a pool of blocks",
    ("BlockPool(num_blocks)", "allocate()", "free(block)", "num_free()"),
    _scripts,
    _judge_pool,
    twin="minipaged.exercises.chapter_2:BlockPool",
)
