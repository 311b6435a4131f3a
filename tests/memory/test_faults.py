"""One test for each rule that some real KV-cache manager once broke; the names are the rules."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from watched import Watched

from minipaged.errors import OutOfBlocksError
from minipaged.memory.block_pool import BlockPool
from minipaged.memory.block_table import blocks_at_most, blocks_for
from minipaged.memory.events import BlockAllocated, BlockCopied, PrefixHit
from minipaged.memory.integrity import check_snapshot
from minipaged.memory.kv_cache_manager import AllocStatus
from minipaged.memory.prefix_cache import ROOT, hash_block, prefix_hashes
from minipaged.memory.replay import IntegrityError
from minipaged.memory.snapshot import MemorySnapshot

B = 4
P = list(range(100, 140))
BORDERS = [1, B - 1, B, B + 1, 2 * B]


class TestBlocksAndReferenceCounts:
    def test_a_block_freed_twice_in_one_call_is_an_error_that_changes_nothing(self):
        pool = BlockPool(2)
        pool.allocate(0)
        pool.allocate(0)
        with pytest.raises(ValueError, match="block 1: 2 references to release, 1 held"):
            pool.release([0, 1, 1])
        assert list(pool.ref_count) == [1, 1]
        assert pool.free_order() == []

    def test_a_block_freed_twice_in_two_calls_is_an_error_that_changes_nothing(self):
        pool = BlockPool(2)
        pool.allocate(0)
        pool.release([0])
        with pytest.raises(ValueError, match="block 0"):
            pool.release([0])
        assert pool.free_order() == [1, 0]

    def test_a_sequence_freed_twice_is_an_error_that_changes_nothing(self):
        m = Watched(4, B)
        m.admit(0, P[:5])
        m.free(0)
        with m.refused(ValueError, "seq 0 has no blocks"):
            m.free(0)

    def test_a_block_is_counted_once_for_each_appearance_in_tables(self):
        m = Watched(8, B)
        m.admit(0, P[:9])
        m.fork(0, 1)
        m.admit(2, P[:9])
        assert m.pool.ref_count[0] == 3
        appearances = Counter(b for t in m.snapshot().tables.values() for b in t)
        assert all(m.pool.ref_count[b] == n for b, n in appearances.items())
        for seq, left in ((1, 2), (0, 1), (2, 0)):
            m.free(seq)
            assert m.pool.ref_count[0] == left
        assert m.pool.num_free == 8

    def test_a_block_twice_in_one_table_is_freed_when_its_last_appearance_goes(self):
        pool = BlockPool(1)
        pool.allocate(0)
        pool.share(0)
        pool.release([0])
        assert (pool.ref_count[0], pool.num_free) == (1, 0)
        pool.release([0])
        assert (pool.ref_count[0], pool.num_free) == (0, 1)
        with pytest.raises(IntegrityError, match="ref_count 1, in tables 2 times"):
            check_snapshot(MemorySnapshot(B, (1,), tables={0: (0, 0)}, num_tokens={0: 5}))

    @pytest.mark.parametrize("caching", [True, False])
    def test_free_and_referenced_blocks_are_the_whole_pool_after_every_step(self, caching):
        m = Watched(6, B, enable_prefix_caching=caching, num_swap_blocks=6)
        steps = [
            lambda: m.admit(0, P[:9]),
            lambda: m.fork(0, 1),
            lambda: m.append(0, 1),
            lambda: m.append(1, 1, 2, 3, 4),
            lambda: m.swap_out([0]),
            lambda: m.free(1),
            lambda: m.swap_in([0]),
            lambda: m.free(0),
        ]
        for step in steps:
            step()
            counts = m.pool.ref_count
            free = m.pool.free_order()
            assert all(counts[block] == 0 for block in free)
            assert sum(count >= 1 for count in counts) + len(free) == 6
            assert len(set(free)) == len(free) == m.pool.num_free
            m.check()

    @pytest.mark.parametrize("moment", range(7))
    def test_an_abort_at_any_moment_returns_every_block(self, moment):
        m = Watched(12, B, num_swap_blocks=12)
        steps = [
            lambda: m.start(0, P[:10]),
            lambda: m.commit([(0, P[:3])]),
            lambda: m.commit([(0, P[3:10])]),
            lambda: [m.fork(0, child) for child in (1, 2)],
            lambda: [m.append(seq, seq) for seq in (0, 1, 2)],
            lambda: m.append_slots(1, 9),
            lambda: m.swap_out([0, 1, 2]),
        ]
        for step in steps[: moment + 1]:
            step()
        for seq in range(3):
            if m.has(seq):
                m.free(seq, "aborted")
        m.check()
        assert (m.pool.num_free, m.swap_pool.num_free) == (12, 12)
        assert m.snapshot().tables == m.snapshot().swap_tables == m.snapshot().num_tokens == {}

    def test_the_manager_never_names_a_block_that_the_tensors_do_not_have(self):
        m = Watched(5, B)
        m.admit(0, P[: 5 * B])
        assert sorted(m.block_table(0)) == list(range(5))
        slots = m.slot_mapping(0, 0, 5 * B)
        assert sorted(slots) == list(range(5 * B))
        with m.refused(OutOfBlocksError):
            m.append_slots(0)


class TestBlockBoundaries:
    def test_a_block_is_opened_by_the_write_of_its_first_token_and_not_before(self):
        m = Watched(8, B)
        m.admit(0, P[: B - 1])
        for position in range(B - 1, 3 * B + 1):
            assert len(m.block_table(0)) == blocks_for(position, B)
            m.append_slots(0)
            assert len(m.block_table(0)) == position // B + 1
            m.commit([(0, [position])])
            assert len(m.block_table(0)) == position // B + 1

    @pytest.mark.parametrize("num_tokens", BORDERS)
    def test_a_last_block_never_holds_no_token(self, num_tokens):
        m = Watched(8, B)
        m.admit(0, P[:num_tokens])
        table = m.block_table(0)
        assert len(table) == -(-num_tokens // B)
        assert 1 <= num_tokens - (len(table) - 1) * B <= B
        m.fork(0, 1)
        assert m.block_table(1) == table
        m.check()

    @pytest.mark.parametrize("num_tokens", BORDERS)
    @pytest.mark.parametrize("num_new_tokens", [1, B - 1, B, B + 1, 3 * B])
    def test_growing_across_several_blocks_at_once(self, num_tokens, num_new_tokens):
        m = Watched(12, B)
        m.admit(0, P[:num_tokens])
        m.append(0, *range(num_new_tokens))
        assert m.num_tokens(0) == num_tokens + num_new_tokens
        assert len(m.block_table(0)) == blocks_for(num_tokens + num_new_tokens, B)
        slots = m.slot_mapping(0, 0, num_tokens + num_new_tokens)
        assert len(set(slots)) == len(slots)
        m.check()

    def test_a_token_sampled_before_preemption_is_part_of_what_is_recomputed(self):
        m = Watched(8, B)
        m.admit(0, P[:B])
        sampled = [*P[:B], 7]  # sampled, not fed yet: it has no slot
        assert len(m.block_table(0)) == 1
        m.free(0, "preempted")
        cached = m.allocate(0, sampled)
        assert cached == B
        m.commit([(0, sampled[cached:])])
        assert m.num_tokens(0) == B + 1
        m.check()


class TestPrefixCache:
    @pytest.mark.parametrize("num_tokens", [1, B - 1, B, B + 1, 2 * B, 2 * B + 1, 3 * B])
    def test_a_full_hit_leaves_at_least_one_token_to_compute(self, num_tokens):
        m = Watched(16, B)
        m.admit(0, P[:num_tokens])
        cached = m.start(1, P[:num_tokens])
        assert cached == (num_tokens - 1) // B * B
        assert cached <= num_tokens - 1
        m.commit([(1, P[cached:num_tokens])])
        m.check()

    def test_the_index_leads_from_a_hash_to_the_block_that_has_it(self):
        m = Watched(3, B)
        for prompt in (P[:12], P[4:16], P[8:20], P[:12]):
            m.admit(0, prompt)
            m.free(0)
            index = m.pool._block_of
            assert all(m.pool.hash_of[block] == h for h, block in index.items())
            assert len(index) == len(m.pool.hash_of)

    def test_reusing_a_block_removes_its_old_hash(self):
        m = Watched(1, B)
        m.admit(0, P[:B])
        old = hash_block(ROOT, P[:B])
        assert m.pool.find(old) == 0
        m.free(0)
        m.start(1, P[4:8])
        assert m.pool.find(old) is None
        assert m.pool.hash_of == {}
        m.commit([(1, P[4:8])])
        assert m.pool.find(hash_block(ROOT, P[4:8])) == 0
        assert m.count_cached_tokens(P[:5]) == 0

    def test_a_block_is_visible_only_after_its_kv_was_computed(self):
        m = Watched(12, B)
        m.start(0, P[:9])
        assert m.count_cached_tokens(P[:9]) == 0
        m.commit([(0, P[:3])])
        assert m.count_cached_tokens(P[:9]) == 0
        m.commit([(0, P[3:5])])
        assert m.count_cached_tokens(P[:9]) == B
        m.append_slots(0, 12)
        assert m.count_cached_tokens(P[:9]) == B
        assert m.start(1, P[:9]) == B

    def test_two_identical_prompts_in_one_step_leave_the_second_a_private_duplicate(self):
        m = Watched(12, B)
        m.start(0, P[:9])
        m.start(1, P[:9])
        assert set(m.block_table(0)).isdisjoint(m.block_table(1))
        m.commit([(0, P[:9]), (1, P[:9])])
        assert set(m.snapshot().hashes) == set(m.block_table(0)[:2])
        m.check()
        m.free(0)
        m.check()
        m.free(1)
        m.check()
        assert m.admit(2, P[:9]) == 8
        m.check()

    def test_hits_in_the_free_list_are_taken_out_before_new_blocks_are_allocated(self):
        m = Watched(4, B)
        m.admit(0, P[:12])
        m.free(0)  # free: 3 without content, then 2, 1, 0 with
        assert m.admit(1, P[:16]) == 12
        assert m.block_table(1) == [0, 1, 2, 3]
        m.check()

    def test_taking_a_hit_does_not_clear_it(self):
        m = Watched(4, B)
        m.admit(0, P[:9])
        m.free(0)
        hashes = m.snapshot().hashes
        m.start(1, P[:9])
        assert m.snapshot().hashes == hashes
        assert m.admit(2, P[:9]) == 8

    def test_hits_in_the_free_list_count_against_what_is_free(self):
        m = Watched(4, B)
        m.admit(0, P[:8])
        m.free(0)
        m.admit(1, [1] * 5)  # 2 blocks are left, both of them free hits
        assert m.pool.num_free == 2
        assert m.can_allocate(P[:9]) is AllocStatus.LATER
        with m.refused(OutOfBlocksError, "seq 2: need 1 blocks, 2 of 4 free"):
            m.allocate(2, P[:9])

    def test_hits_in_use_cost_nothing(self):
        m = Watched(3, B)
        m.admit(0, P[:8])
        assert m.pool.num_free == 1
        assert m.can_allocate(P[:12]) is AllocStatus.OK
        assert m.start(1, P[:12]) == 8

    def test_a_hash_covers_the_whole_prefix(self):
        m = Watched(12, B)
        m.admit(0, [*P[:4], *P[8:12], 1])
        assert m.admit(1, [*P[4:8], *P[8:12], 1]) == 0
        assert m.count_cached_tokens([*P[8:12], 1]) == 0

    @given(block=st.lists(st.integers(0, 2**62), min_size=B, max_size=B), data=st.data())
    def test_a_hash_covers_every_tokens_full_id(self, block, data):
        index = data.draw(st.integers(0, B - 1))
        bit = data.draw(st.integers(0, 61))
        other = [*block]
        other[index] ^= 1 << bit
        m = Watched(4, B)
        m.admit(0, block)
        assert m.count_cached_tokens([*block, 0]) == B
        assert m.count_cached_tokens([*other, 0]) == 0

    @pytest.mark.parametrize("num_tokens", range(1, B))
    def test_a_prefix_shorter_than_a_block_never_hits(self, num_tokens):
        m = Watched(4, B)
        m.admit(0, P[:num_tokens])
        assert m.snapshot().hashes == {}
        m.free(0)
        assert m.start(1, [*P[:num_tokens], 1]) == 0

    def test_only_full_blocks_are_cached(self):
        m = Watched(8, B)
        m.admit(0, P[: 2 * B + 3])
        assert set(m.snapshot().hashes.values()) == set(prefix_hashes(P[: 2 * B], B))
        m.append(0, P[2 * B + 3])
        assert set(m.snapshot().hashes.values()) == set(prefix_hashes(P[: 3 * B], B))


class TestEvictionOrder:
    def test_of_one_sequence_the_tail_goes_before_the_head(self):
        m = Watched(3, B)
        m.admit(0, P[:12])
        m.free(0)
        assert m.pool.free_order() == [2, 1, 0]
        m.admit(1, [1] * 3)
        assert m.count_cached_tokens(P[:13]) == 8
        m.admit(2, [2] * 3)
        assert m.count_cached_tokens(P[:13]) == 4

    def test_a_swapped_out_sequence_leaves_its_blocks_tail_first_too(self):
        m = Watched(3, B, num_swap_blocks=3)
        m.admit(0, P[:12])
        m.swap_out([0])
        assert m.pool.free_order() == [2, 1, 0]

    def test_the_least_recently_freed_goes_first(self):
        m = Watched(4, B)
        for seq in range(4):
            m.admit(seq, [seq] * B)
        for seq in (2, 0, 3, 1):
            m.free(seq)
        assert m.pool.free_order() == [2, 0, 3, 1]
        m.admit(4, [0] * B + [9])  # a hit on 0, and block 2 is evicted
        assert m.pool.free_order() == [3, 1]
        m.free(4)
        assert m.pool.free_order() == [2, 3, 1, 0]  # block 0 was used: now the last to go

    def test_blocks_without_content_are_reused_before_cached_ones(self):
        m = Watched(4, B)
        m.admit(0, P[:8])
        m.admit(1, [1])
        m.free(0)
        m.free(1)
        assert m.pool.free_order() == [3, 2, 1, 0]
        m.admit(2, [1] * 5)
        assert m.count_cached_tokens(P[:9]) == 8

    def test_an_unpublished_duplicate_holds_no_content_worth_keeping(self):
        m = Watched(4, B)
        m.start(0, P[:B])
        m.start(1, P[:B])
        m.commit([(0, P[:B]), (1, P[:B])])
        m.free(0)
        m.free(1)
        assert m.pool.free_order() == [2, 3, 1, 0]


class TestScheduling:
    """What of the scheduler's rules depends on the manager."""

    @pytest.mark.parametrize("num_tokens", [*BORDERS, 4 * B, 4 * B + 1])
    def test_a_prompt_that_can_never_fit_is_told_from_one_that_must_wait(self, num_tokens):
        m = Watched(4, B)
        m.admit(0, P[: 3 * B])
        status = m.can_allocate([1] * num_tokens)
        needed = blocks_for(num_tokens, B)
        assert status is (
            AllocStatus.OK
            if needed <= 1
            else (AllocStatus.LATER if needed <= 4 else AllocStatus.NEVER)
        )

    def test_a_request_that_outgrows_the_pool_is_told_at_once(self):
        m = Watched(6, B)
        prompt = P[:6]
        for max_tokens, n, status in (
            (19, 1, AllocStatus.OK),  # 24 slots
            (20, 1, AllocStatus.NEVER),
            (7, 2, AllocStatus.OK),  # 1 shared + 2 x 2
            (8, 2, AllocStatus.NEVER),
            (3, 5, AllocStatus.OK),  # 1 shared + 5 x 1
            (3, 6, AllocStatus.NEVER),
        ):
            at_most = blocks_at_most(len(prompt), max_tokens, n, B)
            assert m.can_allocate(prompt, at_most=at_most) is status

    @pytest.mark.parametrize("n", [1, 2, 3])
    @pytest.mark.parametrize("num_prompt_tokens", BORDERS)
    @pytest.mark.parametrize("max_tokens", [1, 2, B, B + 1])
    def test_what_was_promised_at_most_is_enough_and_needed(self, n, num_prompt_tokens, max_tokens):
        at_most = blocks_at_most(num_prompt_tokens, max_tokens, n, B)
        m = Watched(at_most, B)
        m.admit(0, P[:num_prompt_tokens])
        for child in range(1, n):
            m.fork(0, child)
        for token in range(max_tokens - 1):
            for seq in range(n):
                m.append(seq, 10 * seq + token)
        m.check()
        used = m.snapshot().num_used
        if max_tokens > 1 or num_prompt_tokens % B == 0 or n == 1:
            assert used == at_most
        else:
            assert used < at_most  # nobody has written yet: the last block is still shared

    @pytest.mark.parametrize("how", ["recompute", "swap"])
    @pytest.mark.parametrize("caching", [True, False])
    def test_preempting_and_continuing_works_for_several_samples(self, how, caching):
        m = Watched(10, B, num_swap_blocks=10, enable_prefix_caching=caching)
        texts = dict.fromkeys(range(3), P[:6])
        m.admit(0, texts[0])
        for child in (1, 2):
            m.fork(0, child)
        for token in range(3):
            for seq in range(3):
                m.append(seq, 10 * seq + token)
                texts[seq] = [*texts[seq], 10 * seq + token]
        m.check()
        used = m.snapshot().num_used
        if how == "swap":
            m.swap_out([0, 1, 2])
            m.check()
            m.admit(7, [1] * 30)
            m.free(7)
            m.swap_in([0, 1, 2])
        else:
            for seq in (2, 1, 0):
                m.free(seq, "preempted")
            cached = m.allocate(0, P[:6])
            m.commit([(0, P[cached:6])])
            for child in (1, 2):
                m.fork(0, child)
            for seq in range(3):
                m.append(seq, *texts[seq][6:])
        m.check()
        assert m.snapshot().num_used == used
        assert m.snapshot().num_blocks_saved == 2
        assert {seq: m.num_tokens(seq) for seq in range(3)} == dict.fromkeys(range(3), 9)

    def test_no_room_to_swap_is_known_before_anything_is_touched(self):
        m = Watched(8, B, num_swap_blocks=2)
        m.admit(0, P[:9])
        assert not m.can_swap_out([0])
        with m.refused(OutOfBlocksError, "need 3 swap blocks, 2 of 2 free"):
            m.swap_out([0])
        m.free(0, "preempted")  # what the scheduler does then: recompute
        m.check()

    def test_tokens_to_compute_are_those_after_the_hit(self):
        m = Watched(8, B)
        m.admit(0, P[:9])
        start = len(m.events)
        assert m.count_cached_tokens(P[:11]) == 8
        cached = m.start(1, P[:11])
        assert cached == m.num_tokens(1) == 8
        hit, *allocated = m.events[start + 1 :]
        assert isinstance(hit, PrefixHit)
        assert [e.index for e in allocated if isinstance(e, BlockAllocated)] == [2]
        m.commit([(1, P[cached:11])])
        assert m.num_tokens(1) == 11

    @given(data=st.data())
    def test_can_allocate_and_allocate_use_the_same_rule(self, data):
        m = Watched(data.draw(st.integers(1, 5)), 2)
        prompts = st.lists(st.integers(0, 1), min_size=1, max_size=9)
        running: list[int] = []
        for seq in range(data.draw(st.integers(1, 8))):
            prompt = data.draw(prompts)
            cached = m.count_cached_tokens(prompt)
            status = m.can_allocate(prompt)
            if status is AllocStatus.OK:
                assert m.admit(seq, prompt) == cached
                running.append(seq)
            else:
                with m.refused(OutOfBlocksError):
                    m.allocate(seq, prompt)
            assert (status is AllocStatus.NEVER) == (blocks_for(len(prompt), 2) > m.pool.num_blocks)
            if running and data.draw(st.booleans()):
                m.free(running.pop(data.draw(st.integers(0, len(running) - 1))))
        m.check()

    def test_copies_of_one_step_do_not_read_what_another_wrote(self):
        m = Watched(16, B)
        m.admit(0, P[:6])
        for child in range(1, 4):
            m.fork(0, child)
        m.admit(4, P[10:17])
        m.fork(4, 5)
        moves = [move for seq in range(6) for move in m.append_slots(seq)]
        targets = [move.target for move in moves]
        assert len(moves) == 4
        assert len(set(targets)) == len(targets)
        assert set(targets).isdisjoint(move.source for move in moves)
        m.commit([(seq, [seq]) for seq in range(6)])
        m.check()
        assert sum(isinstance(e, BlockCopied) for e in m.events) == 4
