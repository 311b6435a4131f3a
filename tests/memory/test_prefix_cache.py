from __future__ import annotations

import struct
from hashlib import blake2b
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.memory.block_pool import BlockPool
from minipaged.memory.prefix_cache import ROOT, PrefixCache, hash_block, prefix_hashes

TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=14)


def test_the_hash_is_blake2b_over_the_parent_and_little_endian_ids():
    parent = hash_block(ROOT, [1, 2])
    assert parent == blake2b(struct.pack("<2q", 1, 2), digest_size=16).hexdigest()
    content = bytes.fromhex(parent) + struct.pack("<2q", 3, -4)
    assert hash_block(parent, [3, -4]) == blake2b(content, digest_size=16).hexdigest()


def test_every_byte_of_an_id_counts():
    ids = [0, 1, 255, 256, 2**16, 2**31, 2**32, 2**33, 2**62]
    assert len({hash_block(ROOT, [i]) for i in ids}) == len(ids)


def test_order_and_borders_of_tokens_count():
    hashes = [hash_block(ROOT, ids) for ids in ([1, 2], [2, 1], [1], [1, 2, 0], [258], [1, 0])]
    assert len(set(hashes)) == len(hashes)


@given(first=TOKENS, second=TOKENS, block_size=st.integers(1, 4))
def test_equal_hashes_mean_equal_prefixes(first, second, block_size):
    for index, (a, b) in enumerate(
        zip(prefix_hashes(first, block_size), prefix_hashes(second, block_size), strict=False)
    ):
        stop = (index + 1) * block_size
        assert (a == b) == (first[:stop] == second[:stop])


@given(tokens=TOKENS, block_size=st.integers(1, 4))
def test_only_full_blocks_are_hashed_and_each_follows_its_parent(tokens, block_size):
    hashes = list(prefix_hashes(tokens, block_size))
    assert len(hashes) == len(tokens) // block_size
    for index, (parent, own) in enumerate(pairwise([ROOT, *hashes])):
        block = tokens[index * block_size : (index + 1) * block_size]
        assert own == hash_block(parent, block)


@given(tokens=TOKENS, block_size=st.integers(1, 4), split=st.integers(0, 6))
def test_hashing_may_go_on_from_a_parent(tokens, block_size, split):
    hashes = list(prefix_hashes(tokens, block_size))
    head = hashes[:split]
    parent = head[-1] if head else ROOT
    rest = list(prefix_hashes(tokens[len(head) * block_size :], block_size, parent))
    assert [*head, *rest] == hashes


def cache_of(tokens: list[int], block_size: int, num_known: int) -> PrefixCache:
    """Give a cache that knows the first `num_known` full blocks of `tokens` as blocks 0, 1, ..."""
    pool = BlockPool(20)
    for content_hash in list(prefix_hashes(tokens, block_size))[:num_known]:
        assert pool.publish(pool.allocate(0), content_hash)
    return PrefixCache(pool, block_size)


@pytest.mark.parametrize(
    ("num_tokens", "num_hits"), [(1, 0), (3, 0), (4, 0), (5, 1), (7, 1), (8, 1), (9, 2), (12, 2)]
)
def test_a_hit_leaves_at_least_one_token_to_compute(num_tokens, num_hits):
    tokens = list(range(12))
    hits = cache_of(tokens, block_size=4, num_known=3).longest_hit(tokens[:num_tokens])
    assert [block for block, _ in hits] == list(range(num_hits))
    assert [h for _, h in hits] == list(prefix_hashes(tokens, 4))[:num_hits]


def test_a_hit_ends_at_the_first_block_that_differs_or_is_gone():
    tokens = list(range(13))
    cache = cache_of(tokens, block_size=4, num_known=3)
    other = [*tokens[:4], 99, *tokens[5:]]
    assert [block for block, _ in cache.longest_hit(other)] == [0]
    assert cache.longest_hit([99, *tokens[1:]]) == []
    pool = BlockPool(3)
    first, second, third = prefix_hashes(tokens, 4)
    for content_hash in (first, third):
        pool.publish(pool.allocate(0), content_hash)
    assert PrefixCache(pool, 4).longest_hit(tokens) == [(0, first)]
    assert second not in pool.hash_of.values()
