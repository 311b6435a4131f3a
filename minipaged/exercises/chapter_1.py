"""Chapter 1, the KV cache: where the slots of a contiguous slab go."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from minipaged.exercises.attempt import Raised, call, same, shown
from minipaged.exercises.exercise import Counterexample, Exercise
from minipaged.exercises.stage import Stage, word
from minipaged.lab.waste import WasteMeter
from minipaged.memory.buddy import order_for
from minipaged.memory.contiguous import ContiguousManager
from minipaged.memory.events import Observer, Requested
from minipaged.memory.reservation import ReserveMax
from minipaged.memory.trace import Trace

_MOST_ASKED = 12
_KINDS = ("reserved", "internal", "external")


class _Slab(NamedTuple):
    """A request that asked for room, has written some tokens, and will end with more."""

    asked: int
    num_tokens: int
    final_tokens: int

    def __str__(self) -> str:
        return (
            f"slab_waste(asked={self.asked}, num_tokens={self.num_tokens}, "
            f"final_tokens={self.final_tokens})"
        )

    @property
    def length(self) -> int:
        """Slots of the slab that the buddy allocator gives."""
        return 1 << order_for(self.asked)


def slab_waste(asked: int, num_tokens: int, final_tokens: int) -> tuple[int, int, int]:
    """Give what a slab wastes now (slots): reserved, internal, external.

    It is measured, not computed: the engine's slab is filled to its end under the lab's meter.

    >>> slab_waste(asked=6, num_tokens=2, final_tokens=5)
    (3, 1, 2)
    """
    slab = _Slab(asked, num_tokens, final_tokens)
    meter = WasteMeter(slab.length, block_size=1)
    manager = _fill(slab, meter.observe)
    meter.sample()
    rest = range(num_tokens, final_tokens)
    if rest:
        manager.commit([(0, rest)])
    manager.free(0)
    waste = meter.series().at(0)
    return int(waste.reserved), int(waste.internal), int(waste.rounding)


def _fill(slab: _Slab, notify: Observer) -> ContiguousManager:
    """Reserve the slab, and write what has been written so far."""
    manager = ContiguousManager(
        slab.length, 1, ReserveMax(slab.asked), notify=notify, token_text=word
    )
    tokens = range(slab.num_tokens)
    manager.allocate(0, tokens)
    manager.commit([(0, tokens)])
    return manager


@st.composite
def _draw_slab(draw: DrawFn) -> _Slab:
    asked = draw(st.integers(1, _MOST_ASKED))
    final = draw(st.integers(1, asked))
    return _Slab(asked, draw(st.integers(1, final)), final)


def _slabs() -> SearchStrategy[_Slab]:
    return _draw_slab()


def _judge(attempt: Any, slab: _Slab) -> Counterexample | None:
    expected = slab_waste(*slab)
    got = call(attempt, *slab)
    if same(got, list(expected)) or same(got, expected):
        return None
    why = _why(slab, got, expected)
    return Counterexample(str(slab), shown(expected), shown(got), why, _trace(slab, why))


def _trace(slab: _Slab, why: str) -> Trace:
    stage = Stage(str(slab), slab.length, block_size=1, allocator="contiguous")
    stage.happen(Requested(0, "", slab.num_tokens))
    _fill(slab, stage.happen)
    return stage.end_step(why)


def _why(slab: _Slab, got: Any, expected: tuple[int, int, int]) -> str:
    if isinstance(got, Raised) or not isinstance(got, (tuple, list)) or len(got) != len(_KINDS):
        forgotten = "; None is what a function gives without a return" if got is None else ""
        return f"three numbers were expected: reserved, internal, external{forgotten}"
    wrong = next(n for n in range(len(_KINDS)) if not same(got[n], expected[n]))
    words = (
        f"written {slab.num_tokens}, in the end {slab.final_tokens}: the difference is empty now, "
        "and will hold a token later",
        f"asked for {slab.asked}, in the end {slab.final_tokens}: the difference is held to the "
        "end, and no token ever comes",
        f"asked for {slab.asked}, and the slab has {slab.length}, the smallest power of two that "
        "is enough: the difference lies beyond what was asked for, and nobody can use it",
    )
    return f"{_KINDS[wrong]} is {expected[wrong]}, not {shown(got[wrong])}: {words[wrong]}"


ex_1_1 = Exercise(
    "1.1",
    "what a slab wastes",
    ("slab_waste(asked, num_tokens, final_tokens)",),
    _slabs,
    _judge,
    twin="minipaged.exercises.chapter_1:slab_waste",
)
