from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.memory.free_list import FreeList


def test_full_holds_every_block_lowest_first():
    assert list(FreeList.full(4)) == [0, 1, 2, 3]
    assert len(FreeList.full(4)) == 4


@pytest.mark.parametrize("capacity", [0, 1])
def test_smallest_lists(capacity):
    free = FreeList.full(capacity)
    assert list(free) == list(range(capacity))
    assert [free.popleft() for _ in range(capacity)] == list(range(capacity))
    assert list(free) == []
    assert not free


def test_a_new_list_is_empty():
    free = FreeList(3)
    assert list(free) == []
    assert len(free) == 0
    assert [block in free for block in range(3)] == [False] * 3


@given(
    capacity=st.integers(1, 6),
    full=st.booleans(),
    steps=st.lists(st.tuples(st.sampled_from("arp"), st.integers(0, 5)), max_size=40),
)
def test_equals_a_plain_list(capacity, full, steps):
    free = FreeList.full(capacity) if full else FreeList(capacity)
    twin = list(range(capacity)) if full else []
    for action, number in steps:
        block = number % capacity
        if action == "a" and block not in twin:
            free.append(block)
            twin.append(block)
        elif action == "r" and block in twin:
            free.remove(block)
            twin.remove(block)
        elif action == "p" and twin:
            assert free.popleft() == twin.pop(0)
        assert list(free) == twin
        assert len(free) == len(twin)
        assert [block in free for block in range(capacity)] == [b in twin for b in range(capacity)]


def test_a_block_is_never_in_it_twice():
    free = FreeList(2)
    free.append(1)
    with pytest.raises(AssertionError, match="block 1 would be free twice"):
        free.append(1)
    assert list(free) == [1]


def test_what_is_not_there_cannot_be_taken():
    free = FreeList(2)
    with pytest.raises(AssertionError, match="empty"):
        free.popleft()
    with pytest.raises(AssertionError, match="block 0 is not in the list"):
        free.remove(0)
    assert list(free) == []
    assert len(free) == 0
