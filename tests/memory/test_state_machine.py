"""Random runs of the manager against an obvious twin.

The twin is a Python list of slots. Every token that is computed is written to its slot, as the
tuple of all tokens up to it: that is what its KV depends on. Block copies and swaps are carried
out. After every step each sequence must read back its own tokens through its table, all invariants
must hold, a replay of the events must give the manager's snapshot, and the free list must be in the
order that the events imply. A failed operation must change nothing, and must fail for a reason
that the twin knows.

These bugs were planted one by one (`PLANTED`), and each is caught:

- a hit on a free block leaves it in the free list, so it is handed out again
- a release frees a block that one other sequence still holds
- no copy-on-write: a sequence writes to a block that others hold
- a prompt's blocks are published when they are allocated, not when they are computed
- a reused block keeps its old hash
- hits that lie in the free list are counted as free as well
- a fork shares blocks that are reserved, but not written
- a swap-in gives every sequence of a group blocks of its own
- a swap-out stores a shared block once for each sequence
- a hit covers the whole prompt and leaves no token to compute
- a hash covers its own block only, not those before
- a second block with the same content takes over the hash of the first
- a sequence's blocks are freed head first
- a cached block is evicted while one without content is free
- appending checks for room block by block: it fails with half of the work done
- one block too few is counted where several samples part from a shared block
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from watched import Watched

from minipaged.errors import OutOfBlocksError
from minipaged.memory import events as ev
from minipaged.memory import kv_cache_manager as manager_module
from minipaged.memory.block_pool import BlockPool
from minipaged.memory.block_table import BlockTable
from minipaged.memory.kv_cache_manager import AllocStatus, BlockMove, KVCacheManager
from minipaged.memory.prefix_cache import ROOT, PrefixCache, hash_block

PICK = st.integers(0, 11)
TOKENS = st.lists(st.integers(0, 1), max_size=5)
Slot = tuple[int, ...] | None


class FreeOrder:
    """In which order the free blocks must stand, worked out from the events alone."""

    def __init__(self, num_blocks: int) -> None:
        self.plain = list(range(num_blocks))
        self.cached: list[int] = []
        self.evicted: list[int] = []
        self.references: Counter[int] = Counter()
        self.has_hash: set[int] = set()

    def expected(self) -> list[int]:
        assert self.evicted == []
        return self.plain + self.cached

    def apply(self, event: ev.Event) -> None:
        if isinstance(event, ev.BlockAllocated):
            self.take(event.block)
        elif isinstance(event, ev.BlockCopied):
            self.take(event.target)
            self.references[event.source] -= 1
        elif isinstance(event, ev.BlockShared):
            self.references[event.block] += 1
        elif isinstance(event, ev.PrefixHit):
            self.hit(event.blocks)
        elif isinstance(event, ev.BlockPublished):
            self.has_hash.add(event.block)
        elif isinstance(event, ev.BlockEvicted):
            assert self.cached.pop(0) == event.block
            self.has_hash.remove(event.block)
            self.evicted.append(event.block)
        elif isinstance(event, ev.Released) and not event.why.startswith("swapped"):
            self.release(event.blocks)
        elif isinstance(event, ev.SwappedOut):
            self.release([block for block, _ in reversed(event.moves)])
        elif isinstance(event, ev.SwappedIn):
            for _, block in event.moves:
                if self.references[block] == 0:
                    self.take(block)
                else:
                    self.references[block] += 1

    def take(self, block: int) -> None:
        assert (self.plain or self.evicted).pop(0) == block
        self.references[block] = 1

    def hit(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            if self.references[block] == 0:
                self.cached.remove(block)
            self.references[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self.references[block] -= 1
            if self.references[block] == 0:
                (self.cached if block in self.has_hash else self.plain).append(block)


class Machine(RuleBasedStateMachine):
    """Sequences come, grow, part, leave and return; `seen` counts what happened in all runs."""

    seen: ClassVar[Counter[str]] = Counter()

    @initialize(
        num_blocks=st.sampled_from([5, 8, 12, 20]),
        block_size=st.integers(1, 3),
        num_swap_blocks=st.sampled_from([0, 3, 8, 12]),
        caching=st.sampled_from([True, True, True, False]),
    )
    def build(self, num_blocks: int, block_size: int, num_swap_blocks: int, caching: bool) -> None:
        self.m = Watched(
            num_blocks,
            block_size,
            num_swap_blocks=num_swap_blocks,
            enable_prefix_caching=caching,
        )
        self.size = block_size
        self.memory: list[Slot] = [None] * (num_blocks * block_size)
        self.swap_memory: list[Slot] = [None] * (num_swap_blocks * block_size)
        self.text: dict[int, list[int]] = {}  # all tokens that a sequence knows
        self.computed: dict[int, int] = {}  # how many of them have their KV
        self.swapped: set[int] = set()
        self.history: list[list[int]] = [[]]
        self.order = FreeOrder(num_blocks)
        self.num_ordered = 0
        self.next_seq = 0

    # --- what the twin knows ----------------------------------------------------------------------

    @property
    def running(self) -> list[int]:
        return [seq for seq in self.text if seq not in self.swapped]

    def references(self) -> Counter[int]:
        return Counter(block for seq in self.running for block in self.m.block_table(seq))

    def num_free(self) -> int:
        return self.m.pool.num_blocks - len(self.references())

    def cached_prefix(self, tokens: list[int]) -> list[int]:
        """Give the published blocks that hold the beginning of `tokens`, but never all of them."""
        blocks: list[int] = []
        for stop in range(self.size, len(tokens), self.size):
            holders = [
                block
                for block in self.m.pool.hash_of
                if self.memory[(block + 1) * self.size - 1] == tuple(tokens[:stop])
            ]
            if not holders:
                break
            blocks += holders
        return blocks

    def blocks_to_grow(self, seq: int, num_tokens: int) -> int:
        table, start = self.m.block_table(seq), self.computed[seq]
        touched = {position // self.size for position in range(start, start + num_tokens)}
        new = sum(index >= len(table) for index in touched)
        references = self.references()
        written = start // self.size if start % self.size else None
        shared = written is not None and references[table[written]] > 1
        return new + shared

    def write(self, seq: int, num_tokens: int) -> list[int]:
        start = self.computed[seq]
        slots = self.m.slot_mapping(seq, start, start + num_tokens)
        for position, slot in enumerate(slots, start):
            self.memory[slot] = tuple(self.text[seq][: position + 1])
        self.computed[seq] += num_tokens
        return self.text[seq][start : start + num_tokens]

    def move(self, moves: list[BlockMove], source: list[Slot], target: list[Slot]) -> None:
        for move in moves:
            a, b = move.source * self.size, move.target * self.size
            target[b : b + self.size] = source[a : a + self.size]

    def distinct(self, tables: dict[int, tuple[int, ...]], seqs: list[int]) -> int:
        return len({block for seq in seqs for block in tables.get(seq, ())})

    def family(self, tables: dict[int, tuple[int, ...]], seq: int) -> list[int]:
        """Give the sequences that share a block with this one, itself first."""
        own = set(tables.get(seq, ()))
        return [seq, *(other for other, table in tables.items() if other != seq and own & {*table})]

    def pick(self, among: list[int], numbers: Iterable[int]) -> list[int]:
        return list(dict.fromkeys(among[number % len(among)] for number in numbers))

    # --- what happens -----------------------------------------------------------------------------

    @rule(old=PICK, cut=PICK, tail=TOKENS, at_once=st.sampled_from([True, True, False]))
    def allocate(self, old: int, cut: int, tail: list[int], at_once: bool) -> None:
        tokens = [*self.history[old % len(self.history)][:cut], *tail] or [1]
        seq, self.next_seq = self.next_seq, self.next_seq + 1
        hits = self.cached_prefix(tokens)
        free_hits = len(hits) - sum(block in self.references() for block in hits)
        needed = -(-len(tokens) // self.size) - len(hits)
        fits = needed + free_hits <= self.num_free()
        assert (self.m.can_allocate(tokens) is AllocStatus.OK) == fits
        if not fits:
            self.seen["no room to allocate"] += 1
            with self.m.refused(OutOfBlocksError):
                self.m.allocate(seq, tokens)
            return
        self.seen["hit in use"] += len(hits) > free_hits
        self.seen["hit that was free"] += free_hits > 0
        assert self.m.start(seq, tokens) == len(hits) * self.size
        self.text[seq], self.computed[seq] = tokens, len(hits) * self.size
        self.history.append(tokens)
        if at_once:
            self.m.commit([(seq, self.write(seq, len(tokens) - self.computed[seq]))])

    @precondition(lambda self: self.running)
    @rule(token=PICK)
    def decode(self, token: int) -> None:
        """Compute one more token of every running sequence."""
        self.step(list(range(len(self.running))), 1, token)

    @precondition(lambda self: self.running)
    @rule(picks=st.lists(PICK, min_size=1, max_size=4), num=st.integers(1, 9), token=PICK)
    def step(self, picks: list[int], num: int, token: int) -> None:
        """Compute missing tokens, or new ones, of several sequences at once."""
        growth: dict[int, int] = {}
        for seq in self.pick(self.running, picks):
            missing = len(self.text[seq]) - self.computed[seq]
            growth[seq] = min(num, missing) if missing else (num - 1) % (3 * self.size) + 1
        needed = self.m.blocks_to_append(growth)
        free = self.num_free()
        for seq, num_tokens in growth.items():
            if not self.reserve_for(seq, num_tokens):
                assert needed > free
                return
        assert needed == free - self.num_free()
        for seq, num_tokens in growth.items():
            lacking = self.computed[seq] + num_tokens - len(self.text[seq])
            self.text[seq] += [(token + seq) % 2] * lacking
        self.m.commit([(seq, self.write(seq, num)) for seq, num in growth.items()])
        self.history += [self.text[seq].copy() for seq in growth]
        self.seen["several at once"] += len(growth) > 1

    @precondition(lambda self: self.running)
    @rule(pick=PICK, num=st.integers(1, 9))
    def reserve(self, pick: int, num: int) -> None:
        """Take blocks ahead of time."""
        self.reserve_for(self.running[pick % len(self.running)], (num - 1) % (3 * self.size) + 1)

    def reserve_for(self, seq: int, num_tokens: int) -> bool:
        needed = self.blocks_to_grow(seq, num_tokens)
        if needed > self.num_free():
            self.seen["no room to append"] += 1
            with self.m.refused(OutOfBlocksError):
                self.m.append_slots(seq, num_tokens)
            return False
        free = self.num_free()
        moves = self.m.append_slots(seq, num_tokens)
        self.seen["copy-on-write"] += len(moves)
        self.move(moves, self.memory, self.memory)
        assert free - self.num_free() == needed
        return True

    @precondition(lambda self: self.running)
    @rule(pick=PICK, num_children=st.integers(1, 2))
    def fork(self, pick: int, num_children: int) -> None:
        parent = self.running[pick % len(self.running)]
        for _ in range(num_children):
            self.fork_once(parent)

    def fork_once(self, parent: int) -> None:
        child, self.next_seq = self.next_seq, self.next_seq + 1
        free = self.num_free()
        self.m.fork(parent, child)
        self.text[child], self.computed[child] = self.text[parent].copy(), self.computed[parent]
        assert self.num_free() == free
        self.seen["fork inside a block"] += self.computed[child] % self.size > 0
        self.seen["fork with blocks reserved"] += len(self.m.block_table(parent)) > len(
            self.m.block_table(child)
        )

    @precondition(lambda self: len(self.text) > 1)
    @rule(picks=st.lists(PICK, min_size=1, max_size=3))
    def free(self, picks: list[int]) -> None:
        for seq in self.pick(list(self.text), picks):
            self.free_once(seq)

    def free_once(self, seq: int) -> None:
        self.m.free(seq, "swapped: aborted" if seq in self.swapped else "finished")
        self.seen["freed while swapped out"] += seq in self.swapped
        self.swapped.discard(seq)
        del self.text[seq], self.computed[seq]

    @precondition(lambda self: len(self.text) > 4)
    @rule()
    def free_all(self) -> None:
        for seq in list(self.text):
            self.free_once(seq)
        assert self.m.pool.num_free == self.m.pool.num_blocks
        assert self.m.swap_pool.num_free == self.m.swap_pool.num_blocks

    @precondition(lambda self: self.running)
    @rule(picks=st.lists(PICK, min_size=1, max_size=3), together=st.booleans())
    def swap_out(self, picks: list[int], together: bool) -> None:
        seqs = self.pick(self.running, picks)
        self.swap_these_out(self.family(self.m.snapshot().tables, seqs[0]) if together else seqs)

    @precondition(lambda self: self.running)
    @rule(pick=PICK)
    def swap_out_and_in(self, pick: int) -> None:
        (seq,) = self.pick(self.running, [pick])
        seqs = self.family(self.m.snapshot().tables, seq)
        self.swap_these_out(seqs)
        if seq in self.swapped:
            self.everything_holds()
            self.swap_these_in(seqs)

    def swap_these_out(self, seqs: list[int]) -> None:
        written = {
            block
            for seq in seqs
            for block in self.m.block_table(seq)[: -(-self.computed[seq] // self.size)]
        }
        fits = len(written) <= self.m.swap_pool.num_free
        assert self.m.can_swap_out(seqs) == fits
        if not fits:
            self.seen["no room to swap out"] += 1
            with self.m.refused(OutOfBlocksError):
                self.m.swap_out(seqs)
            return
        moves = self.m.swap_out(seqs)
        assert len(moves) == len(written)
        self.move(moves, self.memory, self.swap_memory)
        self.swapped.update(seqs)
        tables = self.m.snapshot().swap_tables
        self.seen["swapped out together"] += self.distinct(tables, seqs) < sum(
            len(tables.get(seq, ())) for seq in seqs
        )

    @precondition(lambda self: self.swapped)
    @rule(picks=st.lists(PICK, min_size=1, max_size=3), together=st.booleans())
    def swap_in(self, picks: list[int], together: bool) -> None:
        seqs = self.pick(sorted(self.swapped), picks)
        tables = self.m.snapshot().swap_tables
        self.swap_these_in(self.family(tables, seqs[0]) if together else seqs)

    def swap_these_in(self, seqs: list[int]) -> None:
        needed = self.distinct(self.m.snapshot().swap_tables, seqs)
        assert self.m.blocks_to_swap_in(seqs) == needed
        free = self.num_free()
        if needed > free:
            self.seen["no room to swap in"] += 1
            with self.m.refused(OutOfBlocksError):
                self.m.swap_in(seqs)
            return
        moves = self.m.swap_in(seqs)
        self.move(moves, self.swap_memory, self.memory)
        self.swapped.difference_update(seqs)
        assert free - self.num_free() == needed
        tables = self.m.snapshot().tables
        self.seen["swapped in"] += 1
        self.seen["swapped in together"] += self.distinct(tables, seqs) < sum(
            len(tables.get(seq, ())) for seq in seqs
        )

    @precondition(lambda self: self.text)
    @rule(pick=PICK)
    def mistake(self, pick: int) -> None:
        """Do what no caller may do: nothing changes."""
        (seq,) = self.pick(list(self.text), [pick])
        calls: list[Callable[[], Any]] = [
            lambda: self.m.allocate(seq, [1]),
            lambda: self.m.allocate(self.next_seq, []),
            lambda: self.m.fork(seq, seq),
            lambda: self.m.free(self.next_seq),
            lambda: self.m.append_slots(seq, 0),
            lambda: self.m.swap_out([seq, seq]),
            lambda: self.m.swap_in([seq, seq]),
            lambda: self.m.commit([(seq, [1] * 99)]),
            lambda: self.m.commit([(seq, [1]), (seq, [1])]),
        ]
        for call in calls:
            with self.m.refused(ValueError):
                call()

    # --- what must hold ---------------------------------------------------------------------------

    @invariant()
    def everything_holds(self) -> None:
        self.m.check()
        for event in self.m.events[self.num_ordered :]:
            self.order.apply(event)
            self.seen["evicted"] += isinstance(event, ev.BlockEvicted)
        self.num_ordered = len(self.m.events)
        assert self.m.pool.free_order() == self.order.expected()

    @invariant()
    def every_sequence_reads_its_own_tokens(self) -> None:
        snapshot = self.m.snapshot()
        for seq, text in self.text.items():
            away = seq in self.swapped
            table = (snapshot.swap_tables if away else snapshot.tables).get(seq, ())
            memory = self.swap_memory if away else self.memory
            assert snapshot.num_tokens.get(seq, 0) == self.computed[seq]
            for position in range(self.computed[seq]):
                block, offset = table[position // self.size], position % self.size
                assert memory[block * self.size + offset] == tuple(text[: position + 1])

    @invariant()
    def only_computed_blocks_can_be_found(self) -> None:
        for block in self.m.pool.hash_of:
            content = self.memory[block * self.size : (block + 1) * self.size]
            assert None not in content
            lengths = [len(tokens) for tokens in content]
            assert lengths == list(range(lengths[0], lengths[0] + self.size))


def run(max_examples: int, **options: Any) -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=max(max_examples, settings.default.max_examples),
            stateful_step_count=40,
            suppress_health_check=list(HealthCheck),
            **options,
        ),
    )


def test_the_manager_equals_its_twin_and_everything_happens_on_the_way():
    Machine.seen.clear()
    run(max_examples=250)
    assert {name for name, times in Machine.seen.items() if times >= 3} >= {
        "hit in use",
        "hit that was free",
        "evicted",
        "copy-on-write",
        "fork inside a block",
        "fork with blocks reserved",
        "several at once",
        "swapped out together",
        "swapped in",
        "swapped in together",
        "freed while swapped out",
        "no room to allocate",
        "no room to append",
        "no room to swap out",
        "no room to swap in",
    }


# --- planted bugs ---------------------------------------------------------------------------------


def share_leaves_it_free(pool: BlockPool, block: int) -> None:
    pool.ref_count[block] += 1


def release_at_one(pool: BlockPool, blocks: list[int]) -> None:
    for block in blocks:
        pool.ref_count[block] -= 1
        if pool.ref_count[block] <= 1:
            pool.ref_count[block] = 0
            if block not in pool._free and block not in pool._free_cached:
                pool._append_free(block)


def never_shared(m: KVCacheManager, table: BlockTable) -> None:
    return None


def publish_at_allocation(m: KVCacheManager, seq: int, token_ids: list[int]) -> int:
    cached = ALLOCATE(m, seq, token_ids)
    parent = m._tables[seq].hashes[-1] if m._tables[seq].hashes else ROOT
    for start in range(cached, len(token_ids) - m.block_size + 1, m.block_size):
        block = m._tables[seq].block_ids[start // m.block_size]
        own_hash = hash_block(parent, token_ids[start : start + m.block_size])
        if m.pool.publish(block, own_hash):
            m._notify(ev.BlockPublished(block, own_hash, parent))
        parent = own_hash
    return cached


def forget_nothing(pool: BlockPool, block: int, for_seq: int) -> None:
    pool._notify(ev.BlockEvicted(block, pool.hash_of[block], for_seq))


def lacks_without_hits(m: KVCacheManager, token_ids: Any, hits: Any, extra: int = 0) -> int:
    return -(-len(token_ids) // m.block_size) - len(hits) + extra - m.pool.num_free


def fork_everything(table: BlockTable, block_size: int) -> BlockTable:
    return BlockTable(
        list(table.block_ids),
        table.num_tokens,
        list(table.tail),
        list(table.hashes),
        table.num_published,
    )


def swap_in_one_by_one(m: KVCacheManager, seqs: list[int]) -> list[BlockMove]:
    manager_module._check_distinct(seqs)
    if m.blocks_to_swap_in(seqs) > m.pool.num_free:
        raise OutOfBlocksError("too few")
    return [move for seq in seqs for move in SWAP_IN(m, [seq])]


def swap_out_one_by_one(m: KVCacheManager, seqs: list[int]) -> list[BlockMove]:
    manager_module._check_distinct(seqs)
    if not m.can_swap_out(seqs):
        raise OutOfBlocksError("too few")
    return [move for seq in seqs for move in SWAP_OUT(m, [seq])]


def hit_everything(cache: PrefixCache, token_ids: list[int]) -> Any:
    return LONGEST_HIT(cache, [*token_ids, 0])


def hash_of_one_block(token_ids: list[int], block_size: int, parent: str = ROOT) -> Any:
    for start in range(0, len(token_ids) - block_size + 1, block_size):
        yield hash_block(ROOT, token_ids[start : start + block_size])


def publish_over(pool: BlockPool, block: int, content_hash: str) -> bool:
    if block in pool.hash_of:
        return False
    pool._block_of[content_hash] = block
    pool.hash_of[block] = content_hash
    return True


def free_head_first(m: KVCacheManager, seq: int, why: str = "finished") -> None:
    tables, pool = (m._swapped, m.swap_pool) if seq in m._swapped else (m._tables, m.pool)
    if seq not in tables:
        raise ValueError(seq)
    blocks = tables.pop(seq).block_ids
    pool.release(blocks)
    if blocks:
        m._notify(ev.Released(seq, tuple(blocks[::-1]), why))


def cached_first(pool: BlockPool, for_seq: int) -> int:
    if pool._free_cached:
        block = pool._free_cached.popleft()
        pool._forget(block, for_seq)
        pool.ref_count[block] = 1
        return block
    return ALLOCATE_BLOCK(pool, for_seq)


def append_block_by_block(m: KVCacheManager, seq: int, num_new_tokens: int = 1) -> list[BlockMove]:
    table = m._table(seq)
    if num_new_tokens < 1:
        raise ValueError(num_new_tokens)
    source = m._shared_block(table)
    moves = [] if source is None else [m._copy_on_write(seq, table, source)]
    m._grow(seq, table, table.num_tokens + num_new_tokens, "append")
    return moves


def forget_one_copy(m: KVCacheManager, growth: dict[int, int]) -> int:
    sources = [m._shared_block(m._table(seq)) for seq in growth]
    return BLOCKS_TO_APPEND(m, growth) - (len(sources) - sources.count(None) > 1)


ALLOCATE, BLOCKS_TO_APPEND = KVCacheManager.allocate, KVCacheManager.blocks_to_append
SWAP_IN, SWAP_OUT = KVCacheManager.swap_in, KVCacheManager.swap_out
LONGEST_HIT, ALLOCATE_BLOCK = PrefixCache.longest_hit, BlockPool.allocate

PLANTED = [
    (BlockPool, "share", share_leaves_it_free),
    (BlockPool, "release", release_at_one),
    (KVCacheManager, "_shared_block", never_shared),
    (KVCacheManager, "allocate", publish_at_allocation),
    (BlockPool, "_forget", forget_nothing),
    (KVCacheManager, "_lacks", lacks_without_hits),
    (BlockTable, "forked", fork_everything),
    (KVCacheManager, "swap_in", swap_in_one_by_one),
    (KVCacheManager, "swap_out", swap_out_one_by_one),
    (PrefixCache, "longest_hit", hit_everything),
    (manager_module, "prefix_hashes", hash_of_one_block),
    (BlockPool, "publish", publish_over),
    (KVCacheManager, "free", free_head_first),
    (BlockPool, "allocate", cached_first),
    (KVCacheManager, "append_slots", append_block_by_block),
    (KVCacheManager, "blocks_to_append", forget_one_copy),
]


@pytest.mark.parametrize(
    ("owner", "name", "bug"), PLANTED, ids=[bug.__name__ for *_, bug in PLANTED]
)
def test_a_planted_bug_is_caught(monkeypatch, owner, name, bug):
    monkeypatch.setattr(owner, name, bug)
    with pytest.raises(Exception):  # noqa: B017, PT011 (whatever breaks first)
        run(max_examples=500, phases=[Phase.generate], report_multiple_bugs=False)
