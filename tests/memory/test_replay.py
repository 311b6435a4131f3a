from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_run import scripted_trace
from watched import Watched

from minipaged.errors import TraceError
from minipaged.memory import events as ev
from minipaged.memory.replay import IntegrityError, Replay, Token
from minipaged.memory.snapshot import MemorySnapshot


def replayed(*events: ev.Event, num_blocks: int = 4, num_swap_blocks: int = 2) -> Replay:
    """Give 4 blocks of 2 tokens after these events."""
    state = Replay(num_blocks, 2, num_swap_blocks)
    for event in events:
        state.apply(event)
    return state


ASKED = ev.Requested(0, "a", 3)
TWO_BLOCKS = [ASKED, ev.BlockAllocated(0, 0, 0, ""), ev.BlockAllocated(0, 1, 1, "")]
THREE_TOKENS = [*TWO_BLOCKS, ev.Prefilled(0, 0, (7, 8, 9), ("x", "y", "z"))]
PUBLISHED = [*THREE_TOKENS, ev.BlockPublished(0, "aa", "")]
FORKED = [*PUBLISHED, ev.Forked(0, 1), ev.BlockShared(1, 0, 0), ev.BlockShared(1, 1, 1)]
CACHED = [*PUBLISHED, ev.Released(0, (1, 0), "")]
SWAPPED = [*PUBLISHED, ev.SwappedOut(0, ((0, 0), (1, 1)))]
OTHER = ev.Requested(5, "b", 1)


def test_in_the_beginning_every_block_is_free():
    assert Replay(3, 2).snapshot() == MemorySnapshot(2, (0, 0, 0))
    assert Replay(1, 2, 1).snapshot() == MemorySnapshot(2, (0,), swap_ref_counts=(0,))


def test_what_lies_in_the_blocks_is_known():
    state = replayed(*FORKED, ev.BlockCopied(1, 1, 1, 3, ""), ev.Written((1,), (5,), ("v",)))
    assert state.tables == {0: [0, 1], 1: [0, 3]}
    assert state.contents[0] == (Token(7, "x"), Token(8, "y"))
    assert state.contents[1] == (Token(9, "z"),)
    assert state.contents[3] == (Token(9, "z"), Token(5, "v"))
    assert state.num_tokens == {0: 3, 1: 4}


def test_content_stays_until_somebody_else_takes_the_block():
    state = replayed(*CACHED)
    assert state.contents[0] == (Token(7, "x"), Token(8, "y"))
    state.apply(OTHER)
    state.apply(ev.BlockEvicted(0, "aa", 5))
    state.apply(ev.BlockAllocated(5, 0, 0, ""))
    assert state.contents[0] == ()
    assert state.hashes == {}


def test_swapped_content_is_known_too():
    state = replayed(*SWAPPED)
    assert state.swap_contents[1] == (Token(9, "z"),)
    assert state.swap_tables == {0: [0, 1]}
    assert (state.ref_counts, state.swap_ref_counts) == ([0] * 4, [1, 1])


def test_the_life_of_a_request_is_told():
    steps = [
        (ASKED, "waiting"),
        (TWO_BLOCKS[1], "running"),
        (ev.Preempted(0, "recompute", "no room"), "preempted"),
        (ev.Preempted(0, "swap", "no room"), "swapped"),
        (ev.Finished(0, "length"), "finished"),
    ]
    state = replayed()
    for event, status in steps:
        state.apply(event)
        assert state.sequences[0].status == status
    assert state.sequences[0].finish_reason == "length"
    assert (state.sequences[0].name, state.sequences[0].num_prompt_tokens) == ("a", 3)
    assert replayed(*SWAPPED).sequences[0].status == "swapped"


def test_a_child_begins_with_its_parents_output():
    state = replayed(
        *PUBLISHED,
        ev.Sampled((0,), (5,), ("v",), (0,)),
        *FORKED[len(PUBLISHED) :],
        ev.Sampled((0, 1), (6, 7), ("w", "x"), (0, 0)),
    )
    assert state.sequences[0].output == [Token(5, "v"), Token(6, "w")]
    assert state.sequences[1].output == [Token(5, "v"), Token(7, "x")]
    assert (state.sequences[1].parent, state.sequences[1].name) == (0, "a")
    assert state.sequences[1].status == "running"


def test_a_sequence_may_be_forked_again_after_a_preemption():
    state = replayed(*FORKED, ev.Released(1, (1, 0), ""), ev.Sampled((1,), (5,), ("v",), (0,)))
    for event in FORKED[len(PUBLISHED) :]:
        state.apply(event)
    assert state.tables[1] == [0, 1]
    assert state.sequences[1].output == [Token(5, "v")]


def test_where_a_token_looked_is_known_until_its_blocks_go():
    state = replayed(*FORKED, ev.Attended(0, 3, 1, (400, 600)), ev.Attended(0, 3, -1, (1000,)))
    assert state.attention == {0: {(3, 1): (400, 600), (3, -1): (1000,)}}
    state.apply(ev.Attended(0, 3, 1, (999, 1)))
    assert state.attention[0][3, 1] == (999, 1)
    state.apply(ev.Released(0, (1, 0), ""))
    assert state.attention == {}


@pytest.mark.parametrize(
    ("shares", "rule"),
    [
        ((400, 500, 100), "attend: 3 shares for the 2 blocks of seq 0"),
        ((400, 500), "attend: the shares of seq 0 are not positive numbers that add up to 1000"),
        ((-1, 1001), "attend: the shares of seq 0 are not positive numbers that add up to 1000"),
        ((), "attend: the shares of seq 0 are not positive numbers that add up to 1000"),
    ],
)
def test_shares_of_attention_must_be_shares(shares, rule):
    with pytest.raises(IntegrityError, match=f"^{rule}$"):
        replayed(*FORKED, ev.Attended(0, 3, 1, shares))


def state_of(replay: Replay) -> dict[str, object]:
    return {name: value for name, value in vars(replay).items() if name != "_tokens"}


def test_a_copy_is_independent():
    trace = scripted_trace()
    header = trace.header
    sizes = header.num_blocks, header.block_size, header.num_swap_blocks
    state, copies = Replay(*sizes), []
    for step in trace.steps:
        for event in step.events:
            copies.append((state.copy(), event, state.copy()))
            state.apply(event)
    for copy, event, kept in copies:
        copy.apply(event)
        again = Replay(*sizes)
        for _, earlier, _ in copies[: next(i for i, c in enumerate(copies) if c[0] is copy)]:
            again.apply(earlier)
        assert state_of(kept) == state_of(again)
        again.apply(event)
        assert state_of(copy) == state_of(again)
        assert copy.num_used == copy.snapshot().num_used


# Each of these events contradicts what came before it.
CONTRADICTIONS = {
    "asked twice": ([ASKED], ASKED, "seq 0 was requested twice"),
    "nothing asked": ([], ev.Requested(0, "a", 0), "seq 0 has an empty prompt"),
    "never asked": ([], ev.BlockAllocated(0, 0, 0, ""), "seq 0 was never requested"),
    "fork of nobody": ([], ev.Forked(0, 1), "seq 0 was never requested"),
    "sampled for nobody": ([], ev.Sampled((0,), (1,), ("",), (0,)), "seq 0 was never requested"),
    "finish of nobody": ([], ev.Finished(0, ""), "seq 0 was never requested"),
    "preempt of nobody": ([], ev.Preempted(0, "swap", ""), "seq 0 was never requested"),
    "preempted somehow": ([ASKED], ev.Preempted(0, "magic", ""), "preempt: unknown way 'magic'"),
    "child that is there": (FORKED, ev.Forked(0, 1), "fork: seq 1 has blocks already"),
    "child that is swapped": (
        [*SWAPPED, OTHER],
        ev.Forked(5, 0),
        "fork: seq 0 has blocks already",
    ),
    "hit, not next": (CACHED, ev.PrefixHit(0, 1, (0,)), "hit: entry 1 of seq 0 is not next"),
    "hit after a gap": (
        [*CACHED, OTHER, ev.BlockAllocated(5, 0, 2, "")],
        ev.PrefixHit(5, 1, (0,)),
        "hit: the blocks of seq 5 before entry 1 are not full",
    ),
    "hit of nothing": (CACHED, ev.PrefixHit(0, 0, (1,)), "hit: block 1 has no published content"),
    "hit outside": (CACHED, ev.PrefixHit(0, 0, (4,)), "block 4 is not in a pool of 4"),
    "hit before": (CACHED, ev.PrefixHit(0, 0, (-1,)), "block -1 is not in a pool of 4"),
    "hit while swapped": (SWAPPED, ev.PrefixHit(0, 0, (0,)), "seq 0 is swapped out"),
    "alloc, not next": (TWO_BLOCKS, ev.BlockAllocated(0, 1, 2, ""), "entry 1 of seq 0 is not next"),
    "allocated twice": (TWO_BLOCKS, ev.BlockAllocated(0, 2, 1, ""), "block 1 is handed out while"),
    "alloc outside": (TWO_BLOCKS, ev.BlockAllocated(0, 2, 4, ""), "block 4 is not in a pool of 4"),
    "alloc with its hash": (
        CACHED,
        ev.BlockAllocated(0, 0, 0, ""),
        "block 0 is handed out with its old hash",
    ),
    "share, not next": (FORKED, ev.BlockShared(1, 0, 0), "share: entry 0 of seq 1 is not next"),
    "share without a parent": (
        [*PUBLISHED, OTHER],
        ev.BlockShared(5, 0, 0),
        "share: block 0 is not entry 0 of seq 5's parent",
    ),
    "share of another's block": (
        [*PUBLISHED, ev.Forked(0, 1)],
        ev.BlockShared(1, 0, 1),
        "share: block 1 is not entry 0 of seq 1's parent",
    ),
    "share of too much": (FORKED, ev.BlockShared(1, 2, 2), "share: block 2 is not entry 2"),
    "copy of another block": (FORKED, ev.BlockCopied(1, 1, 0, 2, ""), "copy: entry 1 of seq 1 is"),
    "copy of no entry": (FORKED, ev.BlockCopied(1, 2, 1, 2, ""), "copy: entry 2 of seq 1 is not"),
    "copy before": (FORKED, ev.BlockCopied(1, -1, 1, 2, ""), "copy: entry -1 of seq 1 is not"),
    "copy of one's own": (PUBLISHED, ev.BlockCopied(0, 1, 1, 2, ""), "block 1 is not shared"),
    "copy onto a block in use": (FORKED, ev.BlockCopied(1, 1, 1, 0, ""), "block 0 is handed out"),
    "copy onto itself": (FORKED, ev.BlockCopied(1, 1, 1, 1, ""), "block 1 is handed out while"),
    "copy for nobody": (FORKED, ev.BlockCopied(9, 0, 1, 2, ""), "seq 9 has no blocks"),
    "prefill with a gap": (TWO_BLOCKS, ev.Prefilled(0, 1, (1,), ("",)), "seq 0 has 0 tokens, not"),
    "prefill again": (THREE_TOKENS, ev.Prefilled(0, 0, (1,), ("",)), "seq 0 has 3 tokens, not 0"),
    "prefill for nobody": ([ASKED], ev.Prefilled(0, 0, (), ()), "seq 0 has no blocks"),
    "prefill over the end": (
        THREE_TOKENS,
        ev.Prefilled(0, 3, (1, 2), ("", "")),
        "write: no block for position 4 of seq 0",
    ),
    "write over the end": (
        THREE_TOKENS,
        ev.Written((0, 0), (1, 2), ("", "")),
        "write: no block for position 4 of seq 0",
    ),
    "write for nobody": ([ASKED], ev.Written((0,), (1,), ("",)), "seq 0 has no blocks"),
    "write while swapped": (SWAPPED, ev.Written((0,), (1,), ("",)), "seq 0 has no blocks"),
    "write to a shared block": (
        FORKED,
        ev.Written((1,), (5,), ("",)),
        "write: seq 1 writes to block 1, shared by 2",
    ),
    "write to a block that does not fit": (
        [*PUBLISHED, ev.Forked(0, 1), OTHER, ev.BlockAllocated(1, 0, 2, "")],
        ev.Written((1,), (5,), ("",)),
        "write: no block for position 3 of seq 1",
    ),
    "write with a hole": (
        [*THREE_TOKENS, ev.Forked(0, 1), *(ev.BlockAllocated(1, i, 2 + i, "") for i in (0, 1))],
        ev.Written((1,), (5,), ("",)),
        "write: block 3 holds 0, not 1",
    ),
    "published half full": (THREE_TOKENS, ev.BlockPublished(1, "aa", ""), "block 1 holds 1 of 2"),
    "published free": (CACHED, ev.BlockPublished(1, "bb", ""), "publish: block 1 is free"),
    "published outside": (CACHED, ev.BlockPublished(-1, "bb", ""), "block -1 is not in a pool"),
    "published twice": (PUBLISHED, ev.BlockPublished(0, "bb", ""), "block 0 has a hash already"),
    "hash of another": (
        [*PUBLISHED, ev.Written((0,), (5,), ("",))],
        ev.BlockPublished(1, "aa", ""),
        "publish: hash 'aa' is known already",
    ),
    "evicted in use": (PUBLISHED, ev.BlockEvicted(0, "aa", 0), "evict: block 0 is in use"),
    "evicted by another name": (CACHED, ev.BlockEvicted(0, "bb", 0), "block 0 has another hash"),
    "evicted without content": (CACHED, ev.BlockEvicted(1, "", 0), "block 1 has another hash"),
    "release head first": (PUBLISHED, ev.Released(0, (0, 1), ""), "blocks 0, 1 are not the tail"),
    "release of another's": (PUBLISHED, ev.Released(0, (2,), ""), "blocks 2 are not the tail"),
    "release twice": (CACHED, ev.Released(0, (1, 0), ""), "blocks 1, 0 are not the tail"),
    "release of too much": (PUBLISHED, ev.Released(0, (1, 0, 0), ""), "are not the tail of seq 0"),
    "slab for one who has blocks": (TWO_BLOCKS, ev.SlabReserved(0, 2, 2, 3), "has blocks already"),
    "slab of nothing": ([ASKED], ev.SlabReserved(0, 0, 0, 0), "0 blocks from 0 on are not in a"),
    "slab before": ([ASKED], ev.SlabReserved(0, -1, 2, 3), "2 blocks from -1 on are not in a pool"),
    "slab over the end": ([ASKED], ev.SlabReserved(0, 3, 2, 3), "from 3 on are not in a pool of 4"),
    "endless slab": ([ASKED], ev.SlabReserved(0, 0, 2**62, 3), "are not in a pool of 4"),
    "slab that is too short": ([ASKED], ev.SlabReserved(0, 0, 1, 3), "3 tokens do not fit into 1"),
    "slab for no token": (
        [ASKED],
        ev.SlabReserved(0, 0, 1, 0),
        "0 tokens do not fit into 1 blocks",
    ),
    "slab for nobody": ([], ev.SlabReserved(0, 0, 2, 3), "seq 0 was never requested"),
    "slab over another's": (
        [*TWO_BLOCKS, OTHER],
        ev.SlabReserved(5, 1, 2, 3),
        "block 1 is handed out while in use",
    ),
    "swap-out of others": (PUBLISHED, ev.SwappedOut(0, ((0, 0),)), "swap_out: blocks 0 are not"),
    "swap-out elsewhere": (PUBLISHED, ev.SwappedOut(0, ((0, 0), (1, 2))), "swap block 2 is not in"),
    "swap-out before": (PUBLISHED, ev.SwappedOut(0, ((0, -1), (1, 0))), "swap block -1 is not in"),
    "swap-out of two into one": (
        PUBLISHED,
        ev.SwappedOut(0, ((0, 1), (1, 1))),
        "swap_out: swap block 1 holds something else than block 1",
    ),
    "swap-in of others": (SWAPPED, ev.SwappedIn(0, ((1, 1), (0, 2))), "swap_in: blocks 1, 0 are"),
    "swap-in of what runs": (PUBLISHED, ev.SwappedIn(0, ((0, 1), (1, 2))), "swap_in: blocks 0, 1"),
    "swap-in outside": (SWAPPED, ev.SwappedIn(0, ((0, 1), (1, 4))), "block 4 is not in a pool"),
    "swap-in onto a cached block": (
        SWAPPED,
        ev.SwappedIn(0, ((0, 0), (1, 2))),
        "block 0 is handed out with its old hash",
    ),
    "swap-in of two into one": (
        SWAPPED,
        ev.SwappedIn(0, ((0, 2), (1, 2))),
        "swap_in: block 2 holds something else than swap block 1",
    ),
}


@pytest.mark.parametrize(
    ("before", "event", "rule"), CONTRADICTIONS.values(), ids=CONTRADICTIONS.keys()
)
def test_a_contradiction_is_told_with_the_rule_it_breaks(before, event, rule):
    state = replayed(*before)
    with pytest.raises(IntegrityError) as raised:
        state.apply(event)
    assert rule in str(raised.value)
    assert "\n" not in str(raised.value)
    assert isinstance(raised.value, TraceError)


def test_a_slab_is_a_table_of_neighbours():
    state = replayed(ASKED, ev.SlabReserved(0, 2, 2, 3))
    assert state.tables == {0: [2, 3]}
    assert state.ref_counts == [0, 0, 1, 1]
    state.apply(ev.Prefilled(0, 0, (7, 8, 9), ("x", "y", "z")))
    state.apply(ev.Released(0, (3, 2), "finished"))
    assert state.tables == {}
    assert state.ref_counts == [0] * 4


def test_long_and_strange_values_make_short_messages():
    state = replayed(ev.Requested(0, "a", 99), num_blocks=99)
    for index in range(50):
        state.apply(ev.BlockAllocated(0, index, index, ""))
    with pytest.raises(IntegrityError, match=r"blocks 0, 1, 2, 3, 4, 5, 6, 7, \.\.\. are not"):
        state.apply(ev.Released(0, tuple(range(50)), ""))
    state.apply(ev.Written((0,) * 100, (1,) * 100, ("",) * 100))
    state.apply(ev.BlockPublished(0, "\n\x1b" * 99, ""))
    for event in (ev.BlockPublished(1, "\n\x1b" * 99, ""), ev.Preempted(0, "\n" * 999, "")):
        with pytest.raises(IntegrityError) as raised:
            state.apply(event)
        assert str(raised.value).isprintable()
        assert len(str(raised.value)) < 100


SMALL = st.integers(-1, 4)
MANY = st.lists(SMALL, max_size=3).map(tuple)
WORDS = st.sampled_from(["", "aa", "swap"])


@st.composite
def any_events(draw: st.DrawFn) -> ev.Event:
    cls = draw(st.sampled_from(list(ev.EVENT_TYPES.values())))
    number = draw(st.integers(0, 3))
    by_type = {
        "int": SMALL,
        "str": WORDS,
        "tuple[int, ...]": st.lists(SMALL, min_size=number, max_size=number).map(tuple),
        "tuple[str, ...]": st.just(("",) * number),
        "tuple[tuple[int, int], ...]": st.lists(st.tuples(SMALL, SMALL), max_size=2).map(tuple),
    }
    return cls(*(draw(by_type[str(f.type)]) for f in ev._FIELDS[cls.kind]))


@settings(max_examples=300)
@given(start=st.sampled_from([[], FORKED, CACHED, SWAPPED]), events=st.lists(any_events()))
def test_any_events_at_all_are_applied_or_refused(start, events):
    state = replayed(*start)
    for event in events:
        try:
            state.apply(event)
        except IntegrityError:
            return
        state.snapshot()


def test_a_replay_of_many_blocks_equals_the_manager():
    m = Watched(300, 2, num_swap_blocks=100)
    for seq in range(20):
        m.admit(seq, [*range(10), seq])
        m.fork(seq, 100 + seq)
        m.append(100 + seq, 1, 2, 3)
        if seq % 3 == 0:
            m.swap_out([seq, 100 + seq])
        if seq % 5 == 0:
            m.free(seq)
        m.check()


def test_a_recorded_kernel_changes_nothing_but_its_blocks_must_exist():
    state = replayed(*FORKED)
    before = state.snapshot()
    run = ("f", (0, 0)), (7, "k = ...", "load", "k_cache", (3,), (0,), 64)
    state.apply(ev.KernelAccess(*run[0], (1,), *run[1]))
    assert state.snapshot() == before
    with pytest.raises(IntegrityError, match=r"block 99 is not in a pool"):
        state.apply(ev.KernelAccess(*run[0], (99,), *run[1]))
