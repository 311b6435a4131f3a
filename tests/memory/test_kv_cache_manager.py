from __future__ import annotations

import pytest
from watched import Watched

from minipaged.errors import ConfigError, OutOfBlocksError
from minipaged.memory.events import (
    BlockAllocated,
    BlockCopied,
    BlockEvicted,
    BlockPublished,
    BlockShared,
    Forked,
    Prefilled,
    PrefixHit,
    Released,
    SwappedIn,
    SwappedOut,
    Written,
)
from minipaged.memory.kv_cache_manager import AllocStatus, KVCacheManager
from minipaged.memory.prefix_cache import ROOT, prefix_hashes

P = list(range(100, 120))  # a prompt to cut from


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"num_blocks": 0, "block_size": 4}, "num_blocks must be at least 1, not 0"),
        ({"num_blocks": -3, "block_size": 4}, "not -3"),
        ({"num_blocks": 8, "block_size": 0}, "block_size must be at least 1 token, not 0"),
        ({"num_blocks": 8, "block_size": 4, "num_swap_blocks": -1}, "-1 blocks"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(options, match):
    with pytest.raises(ConfigError, match=match):
        KVCacheManager(**options)


def test_a_prompt_gets_its_blocks_and_its_content_is_published_when_computed():
    m = Watched(8, 4)
    assert m.start(0, P[:6]) == 0
    assert m.block_table(0) == [0, 1]
    assert m.num_tokens(0) == 0
    assert m.has(0)
    assert not m.has(1)
    m.commit([(0, P[:6])])
    assert m.num_tokens(0) == 6
    first = next(prefix_hashes(P, 4))
    assert m.events[1:] == [
        BlockAllocated(0, 0, 0, "prompt"),
        BlockAllocated(0, 1, 1, "prompt"),
        Prefilled(0, 0, tuple(P[:6]), tuple(map(str, P[:6]))),
        BlockPublished(0, first, ROOT),
    ]
    m.check()


def test_a_known_prefix_is_shared():
    m = Watched(8, 4)
    m.admit(0, P[:9])
    start = len(m.events)
    assert m.admit(1, P[:10]) == 8
    assert m.block_table(1) == [0, 1, 3]
    assert m.events[start + 1 : start + 3] == [
        PrefixHit(1, 0, (0, 1)),
        BlockAllocated(1, 2, 3, "prompt"),
    ]
    assert m.events[start + 3].start == 8
    m.check()


def test_a_prefix_is_found_after_its_sequence_has_gone():
    m = Watched(8, 4)
    m.admit(0, P[:9])
    m.free(0)
    assert m.snapshot().num_cached == 2
    assert m.count_cached_tokens(P[:9]) == 8
    assert m.start(1, P[:9]) == 8
    assert m.block_table(1)[:2] == [0, 1]
    m.check()


def test_without_a_prefix_cache_nothing_is_shared():
    m = Watched(8, 4, enable_prefix_caching=False)
    m.admit(0, P[:9])
    assert m.count_cached_tokens(P[:9]) == 0
    assert m.admit(1, P[:9]) == 0
    assert m.snapshot().hashes == {}
    assert m.snapshot().num_shared == 0
    m.check()


def test_a_prompt_may_be_computed_in_chunks():
    m = Watched(8, 4)
    m.start(0, P[:10])
    for start, stop in ((0, 3), (3, 4), (4, 9), (9, 10)):
        m.commit([(0, P[start:stop])])
        m.check()
    published = [e.hash for e in m.events if isinstance(e, BlockPublished)]
    assert published == list(prefix_hashes(P[:10], 4))
    assert m.admit(1, P[:10]) == 8


def test_a_long_chunk_is_hashed_like_its_pieces():
    m = Watched(600, 2)
    tokens = list(range(1000))
    m.admit(0, tokens)
    assert list(m.snapshot().hashes.values()) == list(prefix_hashes(tokens, 2))


def test_a_sequence_grows_token_by_token():
    m = Watched(8, 4)
    m.admit(0, P[:3])
    assert m.append(0, 1) == []
    assert m.block_table(0) == [0]
    assert m.append(0, 2) == []
    assert m.block_table(0) == [0, 1]
    assert m.events[-2:] == [BlockAllocated(0, 1, 1, "append"), Written((0,), (2,), ("2",))]
    m.check()


def test_append_slots_is_a_promise_and_may_be_repeated():
    m = Watched(8, 4)
    m.admit(0, P[:3])
    assert m.append_slots(0, 6) == []
    table = m.block_table(0)
    assert m.append_slots(0, 6) == []
    assert m.append_slots(0, 1) == []
    assert m.block_table(0) == table == [0, 1, 2]
    m.check()


def test_a_step_writes_runs_first_and_then_all_single_tokens_at_once():
    m = Watched(8, 4)
    for seq in range(3):
        m.start(seq, P[seq : seq + 3])
    start = len(m.events)
    m.commit([(0, P[:1]), (1, P[1:4]), (2, P[2:3])])
    assert m.events[start:] == [
        Prefilled(1, 0, (101, 102, 103), ("101", "102", "103")),
        Written((0, 2), (100, 102), ("100", "102")),
    ]
    m.check()


def test_fork_inside_a_block_copies_on_the_first_write():
    m = Watched(8, 4)
    m.admit(0, P[:6])
    start = len(m.events)
    m.fork(0, 1)
    m.fork(0, 2)
    assert m.events[start:][:3] == [Forked(0, 1), BlockShared(1, 0, 0), BlockShared(1, 1, 1)]
    assert m.block_table(1) == m.block_table(2) == [0, 1]
    assert m.append(1, 7) == [(1, 2)]
    why = "copy-on-write: block 1 is shared by 3"
    assert BlockCopied(1, 1, 1, 2, why) in m.events
    assert m.append(0, 8) == [(1, 3)]
    assert m.append(2, 9) == []
    assert [m.block_table(seq) for seq in range(3)] == [[0, 3], [0, 2], [0, 1]]
    m.check()


def test_fork_on_a_block_boundary_copies_nothing():
    m = Watched(8, 4)
    m.admit(0, P[:4])
    m.fork(0, 1)
    assert m.append(0, 7) == []
    assert m.append(1, 8) == []
    assert [m.block_table(seq) for seq in range(2)] == [[0, 1], [0, 2]]
    m.check()


def test_blocks_reserved_but_not_written_stay_the_parents():
    m = Watched(8, 4)
    m.admit(0, P[:4])
    m.append_slots(0, 4)
    m.fork(0, 1)
    assert m.block_table(1) == [0]
    m.append(0, 1)
    m.append(1, 2)
    m.check()


def test_a_parent_without_a_computed_token_shares_nothing():
    m = Watched(8, 4)
    m.start(0, P[:4])
    m.fork(0, 1)
    assert m.block_table(1) == []
    m.fork(0, 2)
    num_events = len(m.events)
    m.free(2)
    assert len(m.events) == num_events  # nothing to release
    m.append(1, 5)
    m.check()


def test_blocks_to_append_tells_exactly_what_append_slots_takes():
    m = Watched(12, 4)
    m.admit(0, P[:6])
    for child in (1, 2):
        m.fork(0, child)
    m.admit(3, [5, 6, 7, 8])
    growth = {0: 1, 1: 3, 2: 7, 3: 1}
    needed = m.blocks_to_append(growth)
    free = m.pool.num_free
    for seq, num_tokens in growth.items():
        m.append_slots(seq, num_tokens)
    assert needed == free - m.pool.num_free == 2 + 1 + 2 + 1
    m.check()


def test_blocks_to_append_knows_holders_that_do_not_grow():
    m = Watched(12, 4)
    m.admit(0, P[:6])
    m.fork(0, 1)
    assert m.blocks_to_append({0: 1}) == 1
    assert m.blocks_to_append({0: 1, 1: 1}) == 1
    m.fork(0, 2)
    assert m.blocks_to_append({0: 1, 1: 1}) == 2


def test_free_gives_everything_back_tail_first():
    m = Watched(8, 4)
    m.admit(0, P[:10])
    m.free(0, "aborted")
    assert m.events[-1] == Released(0, (2, 1, 0), "aborted")
    assert m.pool.free_order() == [3, 4, 5, 6, 7, 2, 1, 0]
    assert not m.has(0)
    m.check()


def test_can_allocate_says_ok_later_or_never():
    m = Watched(4, 4)
    assert m.can_allocate(P[:16]) is AllocStatus.OK
    assert m.can_allocate(P[:17]) is AllocStatus.NEVER
    assert m.can_allocate(P[:1], at_most=4) is AllocStatus.OK
    assert m.can_allocate(P[:1], at_most=5) is AllocStatus.NEVER
    assert m.can_allocate(P[:12], extra=1) is AllocStatus.OK
    assert m.can_allocate(P[:12], extra=2) is AllocStatus.LATER
    m.admit(0, [1] * 5)
    assert m.can_allocate(P[:8]) is AllocStatus.OK
    assert m.can_allocate(P[:9]) is AllocStatus.LATER


def test_out_of_blocks_names_the_numbers():
    m = Watched(4, 4)
    m.admit(0, P[:9])
    with m.refused(OutOfBlocksError, r"^seq 1: need 2 blocks, 1 of 4 free$"):
        m.allocate(1, [1] * 5)
    with m.refused(OutOfBlocksError, r"^seq 0: need 2 blocks, 1 of 4 free$"):
        m.append_slots(0, 8)
    m.fork(0, 1)
    m.append(1, 5)
    with m.refused(OutOfBlocksError, r"^seq 1: need 1 blocks, 0 of 4 free$"):
        m.append_slots(1, 3)
    m.check()


def test_swap_keeps_sharing_and_moves_each_block_once():
    m = Watched(8, 4, num_swap_blocks=4)
    m.admit(0, P[:6])
    m.fork(0, 1)
    m.append(1, 7)
    assert m.can_swap_out([0, 1])
    start = len(m.events)
    moves = [tuple(move) for move in m.swap_out([0, 1])]
    assert moves == [(0, 0), (1, 1), (2, 2)]
    assert m.events[start:] == [
        SwappedOut(0, ((0, 0), (1, 1))),
        SwappedOut(1, ((0, 0), (2, 2))),
    ]
    assert list(m.swap_pool.ref_count) == [2, 1, 1, 0]
    assert m.snapshot().num_used == 0
    assert m.snapshot().swap_tables == {0: (0, 1), 1: (0, 2)}
    assert m.snapshot().num_tokens == {0: 6, 1: 7}
    m.check()
    assert m.blocks_to_swap_in([0, 1]) == 3
    start = len(m.events)
    moves = [tuple(move) for move in m.swap_in([0, 1])]
    targets = dict(moves)
    assert list(targets) == [0, 1, 2]
    assert m.block_table(0) == [targets[0], targets[1]]
    assert m.block_table(1) == [targets[0], targets[2]]
    assert [type(e) for e in m.events[start:]] == [SwappedIn, SwappedIn]
    assert list(m.swap_pool.ref_count) == [0, 0, 0, 0]
    m.check()


def test_swap_leaves_reserved_blocks_behind():
    m = Watched(8, 4, num_swap_blocks=2)
    m.admit(0, P[:6])
    m.append_slots(0, 9)
    assert len(m.block_table(0)) == 4
    assert len(m.swap_out([0])) == 2
    assert m.events[-2] == Released(0, (3, 2), "reserved, not written")
    m.check()
    m.swap_in([0])
    assert len(m.block_table(0)) == 2
    m.append(0, 1, 2, 3)
    m.check()


def test_a_sequence_that_computed_nothing_can_be_swapped():
    m = Watched(4, 4, num_swap_blocks=1)
    m.start(0, P[:6])
    assert m.swap_out([0]) == []
    m.check()
    assert m.swap_in([0]) == []
    m.append(0, *P[:6])
    m.check()


def test_blocks_that_others_use_stay_theirs_when_swapped():
    m = Watched(8, 4, num_swap_blocks=4)
    m.admit(0, P[:9])
    m.admit(1, P[:9])
    m.swap_out([1])
    assert m.block_table(0) == [0, 1, 2]
    m.check()
    m.swap_in([1])
    assert set(m.block_table(1)).isdisjoint(m.block_table(0))
    m.check()


def test_hashes_stay_behind_and_swapped_in_blocks_are_published_only_if_theirs_is_gone():
    m = Watched(4, 4, num_swap_blocks=4)
    first, second = prefix_hashes(P[:8], 4)
    m.admit(0, P[:9])
    m.swap_out([0])
    assert m.count_cached_tokens(P[:9]) == 8
    m.admit(1, [1] * 9)  # takes the two free blocks and evicts block 1, the tail of the prefix
    assert set(m.snapshot().hashes.values()) & {first, second} == {first}
    m.free(1)
    m.swap_in([0])
    m.append(0, 5)
    m.check()
    assert second in m.snapshot().hashes.values()
    assert len(set(m.snapshot().hashes.values())) == len(m.snapshot().hashes)


def test_swapping_in_may_evict_and_what_was_evicted_is_published_again():
    m = Watched(3, 4, num_swap_blocks=2)
    m.admit(0, P[:8])
    hashes = set(m.snapshot().hashes.values())
    m.swap_out([0])
    m.admit(1, [1])
    m.swap_in([0])
    assert [type(e) for e in m.events[-3:]] == [BlockEvicted, BlockEvicted, SwappedIn]
    assert m.snapshot().hashes == {}
    m.free(1)
    m.append(0, 5)
    assert set(m.snapshot().hashes.values()) == hashes
    m.check()


def test_a_swapped_sequence_can_be_freed():
    m = Watched(8, 4, num_swap_blocks=4)
    m.admit(0, P[:6])
    m.fork(0, 1)
    m.swap_out([0, 1])
    m.free(0, "aborted")
    assert m.events[-1] == Released(0, (1, 0), "aborted")
    m.check()
    m.swap_in([1])
    m.free(1)
    m.check()
    assert (m.pool.num_free, m.swap_pool.num_free) == (8, 4)


def test_part_of_a_swapped_group_may_come_back():
    m = Watched(8, 4, num_swap_blocks=4)
    m.admit(0, P[:6])
    m.fork(0, 1)
    m.swap_out([0, 1])
    m.swap_in([1])
    assert m.snapshot().swap_tables == {0: (0, 1)}
    m.append(1, 5)
    m.check()


def test_token_texts_are_looked_up():
    m = Watched(4, 2, token_text={1: "one", 2: "two", 3: "three"}.__getitem__)
    m.admit(0, [1, 2])
    m.append(0, 3)
    assert [e.texts for e in m.events if isinstance(e, Prefilled | Written)] == [
        ("one", "two"),
        ("three",),
    ]


def test_a_snapshot_does_not_change_afterwards():
    m = Watched(4, 2, num_swap_blocks=2)
    m.admit(0, [1, 2, 3])
    before = m.snapshot()
    tables, counts = dict(before.tables), before.ref_counts
    m.append(0, 4, 5)
    m.free(0)
    assert (before.tables, before.ref_counts) == (tables, counts)


def test_a_block_table_that_was_given_away_is_a_copy():
    m = Watched(4, 2)
    m.admit(0, [1, 2, 3])
    m.block_table(0).append(99)
    assert m.block_table(0) == [0, 1]


class TestRefusals:
    """Every mistake of a caller is a ValueError that changes nothing."""

    @pytest.fixture
    def m(self) -> Watched:
        m = Watched(8, 4, num_swap_blocks=4)
        m.admit(0, P[:6])
        m.fork(0, 1)
        m.admit(2, [1, 2])
        m.swap_out([2])
        return m

    def test_allocate(self, m):
        for seq, tokens in ((9, []), (0, [1]), (2, [1])):
            with m.refused(ValueError, f"seq {seq}"):
                m.allocate(seq, tokens)
        with m.refused(ValueError, "at least one token"):
            m.can_allocate([])

    @pytest.mark.parametrize("num_tokens", [0, -1, -9])
    def test_growing_by_nothing(self, m, num_tokens):
        with m.refused(ValueError, f"at least 1 token, not {num_tokens}"):
            m.append_slots(0, num_tokens)
        with m.refused(ValueError, f"at least 1 token, not {num_tokens}"):
            m.blocks_to_append({0: num_tokens})

    def test_sequences_that_do_not_run(self, m):
        calls = [
            m.append_slots,
            m.block_table,
            m.num_tokens,
            lambda seq: m.slot_mapping(seq, 0, 1),
            lambda seq: m.blocks_to_append({0: 1, seq: 1}),
            lambda seq: m.commit([(seq, [1])]),
            lambda seq: m.fork(seq, 9),
            lambda seq: m.swap_out([0, seq]),
            lambda seq: m.can_swap_out([0, seq]),
        ]
        for call in calls:
            for seq, state in ((2, "is swapped out"), (7, "has no blocks"), (-1, "has no blocks")):
                with m.refused(ValueError, f"seq {seq} {state}"):
                    call(seq)

    def test_sequences_that_are_not_swapped_out(self, m):
        for seqs in ([0], [2, 0], [7], [2, 7]):
            with m.refused(ValueError, f"seq {seqs[-1]} is not swapped out"):
                m.swap_in(seqs)
            with m.refused(ValueError, f"seq {seqs[-1]} is not swapped out"):
                m.blocks_to_swap_in(seqs)

    def test_free(self, m):
        with m.refused(ValueError, "seq 7 has no blocks"):
            m.free(7)
        m.free(0)
        with m.refused(ValueError, "seq 0 has no blocks"):
            m.free(0)

    def test_fork_to_a_sequence_that_exists(self, m):
        for child in (0, 1, 2):
            with m.refused(ValueError, f"seq {child} exists already"):
                m.fork(0, child)

    def test_named_twice(self, m):
        with m.refused(ValueError, "seq 0 is named twice"):
            m.swap_out([1, 0, 0])
        with m.refused(ValueError, "seq 2 is named twice"):
            m.swap_in([2, 2])
        m.append_slots(0)
        with m.refused(ValueError, "seq 0 is named twice"):
            m.commit([(0, [1]), (0, [2])])

    def test_commit_without_slots(self, m):
        m.admit(3, [5, 6, 7])
        with m.refused(ValueError, "seq 3: no slots of its own for 0 tokens"):
            m.commit([(3, [])])
        with m.refused(ValueError, "seq 3: no slots of its own for 2 tokens"):
            m.commit([(3, [1, 2])])
        with m.refused(ValueError, "seq 0: no slots of its own for 1 tokens"):
            m.commit([(3, [8]), (0, [1])])  # block 1 is shared with seq 1

    @pytest.mark.parametrize("token", [2**63, -(2**63) - 1, "a", None, 1.5])
    def test_commit_of_what_is_no_token_id(self, m, token):
        m.append_slots(0, 2)
        m.append_slots(1)
        for chunks in ([(0, [token])], [(1, [1]), (0, [token, 1])], [(0, [1, 1]), (1, [token])]):
            with m.refused(ValueError, "64-bit integer"):
                m.commit(chunks)

    def test_commit_of_a_token_without_a_text(self):
        m = Watched(8, 2, token_text={1: "one"}.__getitem__)
        m.start(0, [1, 1])
        m.start(1, [1])
        for chunks in ([(0, [1, 2])], [(0, [1, 1]), (1, [2])], [(1, [1]), (0, [1, 2])]):
            with m.refused(KeyError):
                m.commit(chunks)

    def test_slots_outside_the_table(self, m):
        for start, stop in ((-1, 1), (0, 9), (5, 4)):
            with m.refused(ValueError, "do not lie in 2 blocks"):
                m.slot_mapping(0, start, stop)

    def test_swap_out_without_room(self, m):
        m.admit(3, [9] * 9)
        m.fork(3, 4)
        m.append(4, 5)
        assert not m.can_swap_out([3, 4])
        with m.refused(OutOfBlocksError, r"^need 4 swap blocks, 3 of 4 free$"):
            m.swap_out([3, 4])
        assert m.can_swap_out([3])

    def test_swap_in_without_room(self, m):
        m.admit(3, [9] * 18)
        assert m.pool.num_free == 1
        m.append(3, *[9] * 3)
        with m.refused(OutOfBlocksError, r"^seq 2: need 1 blocks, 0 of 8 free$"):
            m.swap_in([2])

    def test_swapping_nobody(self, m):
        assert m.swap_out([]) == []
        assert m.swap_in([]) == []
        m.check()
