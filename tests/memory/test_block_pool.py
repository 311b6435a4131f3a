from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged.errors import ConfigError, OutOfBlocksError
from minipaged.memory.block_pool import BlockPool
from minipaged.memory.events import BlockEvicted


def state(pool: BlockPool) -> tuple[object, ...]:
    hashes = dict(pool.hash_of)
    found = {content_hash: pool.find(content_hash) for content_hash in hashes.values()}
    return list(pool.ref_count), hashes, found, pool.free_order(), pool.num_free_cached


def pool_with_cached_blocks(events: list[object] | None = None) -> BlockPool:
    """Give 4 blocks: 0 and 1 free with content (1 freed first), 2 and 3 free without."""
    pool = BlockPool(4, [].append if events is None else events.append)
    for block, content_hash in ((0, "aa"), (1, "bb")):
        assert pool.allocate(for_seq=0) == block
        assert pool.publish(block, content_hash)
    pool.release([1, 0])
    return pool


def test_a_new_pool_hands_out_its_blocks_in_order():
    pool = BlockPool(3)
    assert pool.num_free == 3
    assert [pool.allocate(0) for _ in range(3)] == [0, 1, 2]
    assert pool.num_free == 0
    assert list(pool.ref_count) == [1, 1, 1]


def test_an_empty_pool_has_nothing_to_give():
    pool = BlockPool(1)
    pool.allocate(0)
    before = state(pool)
    with pytest.raises(OutOfBlocksError, match=r"^need 1 block, 0 of 1 free$"):
        pool.allocate(1)
    assert state(pool) == before


@pytest.mark.parametrize("num_blocks", [-1, -7])
def test_a_negative_size_is_refused(num_blocks):
    with pytest.raises(ConfigError, match=str(num_blocks)):
        BlockPool(num_blocks)


def test_blocks_come_back_least_recently_freed_first():
    pool = BlockPool(4)
    for _ in range(4):
        pool.allocate(0)
    pool.release([2, 0])
    pool.release([3])
    assert pool.free_order() == [2, 0, 3]
    assert [pool.allocate(0) for _ in range(3)] == [2, 0, 3]


def test_blocks_without_content_go_before_cached_ones():
    pool = pool_with_cached_blocks()
    assert pool.free_order() == [2, 3, 1, 0]
    assert (pool.num_free, pool.num_free_cached) == (4, 2)


def test_eviction_takes_the_hash_and_says_for_whom():
    events: list[object] = []
    pool = pool_with_cached_blocks(events)
    assert [pool.allocate(5) for _ in range(2)] == [2, 3]
    assert events == []
    assert pool.allocate(for_seq=9) == 1
    assert events == [BlockEvicted(1, "bb", 9)]
    assert pool.find("bb") is None
    assert pool.hash_of == {0: "aa"}
    assert pool.publish(1, "cc")


def test_sharing_a_cached_block_takes_it_out_of_the_free_list_and_keeps_its_content():
    pool = pool_with_cached_blocks()
    pool.share(1)
    assert pool.free_order() == [2, 3, 0]
    assert pool.ref_count[1] == 1
    assert pool.find("bb") == 1
    assert [pool.allocate(0) for _ in range(3)] == [2, 3, 0]


def test_sharing_a_free_block_without_content_is_refused():
    pool = pool_with_cached_blocks()
    before = state(pool)
    with pytest.raises(ValueError, match="block 2 is free and holds nothing"):
        pool.share(2)
    assert state(pool) == before


@pytest.mark.parametrize("block", [-1, 4, 99])
@pytest.mark.parametrize(
    "call",
    [
        lambda pool, block: pool.share(block),
        lambda pool, block: pool.release([block]),
        lambda pool, block: pool.release([0, block]),
        lambda pool, block: pool.publish(block, "dd"),
    ],
)
def test_blocks_that_do_not_exist_are_refused(call, block):
    pool = pool_with_cached_blocks()
    pool.share(0)
    before = state(pool)
    with pytest.raises(ValueError, match=f"block {block} is not in a pool of 4"):
        call(pool, block)
    assert state(pool) == before


def test_releasing_more_than_there_is_changes_nothing():
    pool = BlockPool(3)
    for _ in range(3):
        pool.allocate(0)
    pool.share(1)
    before = state(pool)
    for blocks in ([0, 0], [1, 2, 1, 1], [0, 1, 2, 2]):
        with pytest.raises(ValueError, match="references to release"):
            pool.release(blocks)
        assert state(pool) == before
    pool.release([0])
    with pytest.raises(ValueError, match="block 0: 1 references to release, 0 held"):
        pool.release([0])


def test_releasing_nothing_is_allowed():
    pool = pool_with_cached_blocks()
    before = state(pool)
    pool.release([])
    assert state(pool) == before


def test_only_a_block_in_use_can_be_published():
    pool = pool_with_cached_blocks()
    before = state(pool)
    with pytest.raises(ValueError, match="block 3 is free"):
        pool.publish(3, "dd")
    assert state(pool) == before


def test_a_hash_and_a_block_are_published_once():
    pool = BlockPool(2)
    pool.allocate(0)
    pool.allocate(0)
    assert pool.publish(0, "aa") is True
    assert pool.publish(1, "aa") is False
    assert pool.publish(0, "bb") is False
    assert pool.hash_of == {0: "aa"}
    assert (pool.find("aa"), pool.find("bb")) == (0, None)


class PoolTwin:
    """The obvious pool: two lists of free blocks, a counter of references, a dictionary."""

    def __init__(self, num_blocks: int) -> None:
        self.plain = list(range(num_blocks))
        self.cached: list[int] = []
        self.references: Counter[int] = Counter()
        self.hash_of: dict[int, str] = {}

    def allocate(self) -> int:
        if self.plain:
            block = self.plain.pop(0)
        else:
            block = self.cached.pop(0)
            del self.hash_of[block]
        self.references[block] = 1
        return block

    def share(self, block: int) -> None:
        if block in self.cached:
            self.cached.remove(block)
        self.references[block] += 1

    def release(self, blocks: list[int]) -> None:
        for block in blocks:
            self.references[block] -= 1
            if self.references[block] == 0:
                (self.cached if block in self.hash_of else self.plain).append(block)

    def publish(self, block: int, content_hash: str) -> bool:
        if block in self.hash_of or content_hash in self.hash_of.values():
            return False
        self.hash_of[block] = content_hash
        return True


STEP = st.tuples(
    st.sampled_from(["allocate", "allocate", "share", "release", "publish"]),
    st.lists(st.integers(0, 4), min_size=1, max_size=4),
    st.sampled_from(["aa", "bb", "cc"]),
)


@settings(max_examples=200)
@given(num_blocks=st.integers(1, 5), steps=st.lists(STEP, max_size=40))
def test_equals_the_obvious_pool(num_blocks, steps):
    pool, twin = BlockPool(num_blocks), PoolTwin(num_blocks)
    for action, numbers, content_hash in steps:
        blocks = [number % num_blocks for number in numbers]
        block = blocks[0]
        held = twin.references[block] > 0
        if action == "allocate":
            if twin.plain or twin.cached:
                assert pool.allocate(0) == twin.allocate()
            else:
                with pytest.raises(OutOfBlocksError):
                    pool.allocate(0)
        elif action == "share":
            if held or block in twin.cached:
                pool.share(block)
                twin.share(block)
            else:
                with pytest.raises(ValueError, match="free"):
                    pool.share(block)
        elif action == "release":
            if all(twin.references[b] >= times for b, times in Counter(blocks).items()):
                pool.release(blocks)
                twin.release(blocks)
            else:
                with pytest.raises(ValueError, match="to release"):
                    pool.release(blocks)
        elif held:
            assert pool.publish(block, content_hash) == twin.publish(block, content_hash)
        assert pool.free_order() == twin.plain + twin.cached
        assert pool.num_free == len(twin.plain) + len(twin.cached)
        assert pool.num_free_cached == len(twin.cached)
        assert list(pool.ref_count) == [twin.references[b] for b in range(num_blocks)]
        assert pool.hash_of == twin.hash_of
        for known in ("aa", "bb", "cc"):
            owners = [b for b, h in twin.hash_of.items() if h == known]
            assert pool.find(known) == (owners[0] if owners else None)
