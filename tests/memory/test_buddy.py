"""The buddy allocator against plain facts: nothing overlaps, everything comes back.

Planted and caught while this was written: a buddy that is searched at the wrong order, halves that
are not cut, a slab that grows together with a buddy in use, `num_free` that forgets the rounding,
the highest instead of the lowest run.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.errors import ConfigError, OutOfBlocksError
from minipaged.memory.buddy import BuddyPool, order_for

SIZES = st.integers(1, 80)


def facts(pool: BuddyPool) -> object:
    return pool.num_free, list(pool.ref_count), pool.free_slabs()


@given(num_blocks=SIZES, wishes=st.lists(st.integers(-20, 40), max_size=60))
def test_slabs_never_overlap_and_always_come_back(num_blocks, wishes):
    """Take a slab for a wish above zero, otherwise give one of those that are held back."""
    pool = BuddyPool(num_blocks)
    fresh = facts(pool)
    held: list[range] = []
    for wish in wishes:
        if wish > 0:
            before = facts(pool)
            if pool.count_slabs(wish):
                held.append(pool.allocate(wish))
                assert len(held[-1]) == 1 << order_for(wish) >= wish
                assert held[-1][0] % len(held[-1]) == 0
            else:
                with pytest.raises(OutOfBlocksError):
                    pool.allocate(wish)
                assert facts(pool) == before
        elif held:
            pool.release(held.pop(-wish % len(held))[0])
        in_use = sorted(block for slab in held for block in slab)
        assert in_use == sorted(set(in_use)), "two slabs overlap"
        assert sorted([*in_use, *pool.free_order()]) == list(range(num_blocks))
        assert [block for block in range(num_blocks) if pool.ref_count[block]] == in_use
        assert pool.num_free == num_blocks - len(in_use)
        assert_grown_together(pool)
    for slab in held:
        pool.release(slab[0])
    assert facts(pool) == fresh


def assert_grown_together(pool: BuddyPool) -> None:
    """No two buddies are free side by side."""
    free = {(run[0], len(run)) for run in pool.free_slabs()}
    assert not [(first, size) for first, size in free if (first ^ size, size) in free]


@given(num_blocks=SIZES, taken=st.lists(st.integers(1, 20), max_size=10), size=st.integers(1, 40))
def test_the_count_of_slabs_is_what_can_be_taken(num_blocks, taken, size):
    pool = BuddyPool(num_blocks)
    assert pool.most_slabs(size) == pool.count_slabs(size)
    for wish in taken:
        if pool.count_slabs(wish):
            pool.allocate(wish)
    promised = pool.count_slabs(size)
    for _ in range(promised):
        pool.allocate(size)
    assert pool.count_slabs(size) == 0


@pytest.mark.parametrize("exponent", [0, 1, 5, 14])
def test_all_freed_is_one_block_again(exponent):
    pool = BuddyPool(2**exponent)
    firsts = [pool.allocate(1)[0] for _ in range(2**exponent)]
    assert firsts == list(range(2**exponent))
    for first in [*firsts[::2], *firsts[1::2]]:
        pool.release(first)
    assert pool.free_slabs() == [range(2**exponent)]


def test_other_sizes_are_the_powers_that_add_up_to_them():
    runs = BuddyPool(15_728).free_slabs()
    assert [len(run) for run in runs] == [8192, 4096, 2048, 1024, 256, 64, 32, 16]
    assert BuddyPool(15_728).most_slabs(2048) == 7


def test_the_lowest_of_the_shortest_runs_is_taken():
    pool = BuddyPool(16)
    slabs = [pool.allocate(4) for _ in range(4)]
    pool.release(12)
    pool.release(4)
    assert pool.allocate(3) == slabs[1]
    pool.release(0)
    pool.release(4)  # 0 to 7 in one piece, 12 to 15 alone
    assert pool.allocate(2) == range(12, 14)
    assert pool.allocate(8) == range(8)


def test_room_in_pieces_is_no_room():
    pool = BuddyPool(8)
    for _ in range(4):
        pool.allocate(2)
    pool.release(0)
    pool.release(6)
    assert pool.num_free == 4
    with pytest.raises(OutOfBlocksError, match="4 of 8 free, at most 2 in one piece"):
        pool.allocate(4)


def test_what_is_wrong_is_refused():
    pool = BuddyPool(8)
    pool.allocate(4)
    before = facts(pool)
    for first in (1, 4, -4, 8):
        with pytest.raises(ValueError, match=f"no slab begins at block {first}"):
            pool.release(first)
    assert facts(pool) == before
    pool.release(0)
    with pytest.raises(ValueError, match="no slab begins at block 0"):
        pool.release(0)
    with pytest.raises(ConfigError, match="at least 1, not 0"):
        BuddyPool(0)


def test_nothing_is_found_as_nothing_is_cached():
    pool = BuddyPool(8)
    pool.allocate(8)
    assert (pool.find("aa"), pool.hash_of) == (None, {})
