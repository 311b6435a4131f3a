from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged.errors import ConfigError, OutOfBlocksError, RequestRefusedError
from minipaged.memory.contiguous import ContiguousManager
from minipaged.memory.events import Event, Forked, Prefilled, Released, Requested, SlabReserved
from minipaged.memory.integrity import check_manager, check_trace
from minipaged.memory.kv_cache_manager import AllocStatus
from minipaged.memory.replay import Replay
from minipaged.memory.reservation import ReserveMax, ReserveOracle, ReservePow2
from minipaged.memory.trace import Trace, TraceHeader

POLICIES = (ReserveMax(32), ReservePow2(32), ReserveOracle())


class Slabs(ContiguousManager):
    """A manager whose events are kept and replayed."""

    def __init__(self, num_blocks: int = 16, block_size: int = 1, policy: Any = None) -> None:
        self.events: list[Event] = []
        policy = policy or ReserveMax(8)
        super().__init__(num_blocks, block_size, policy, notify=self._keep)
        self.replay = Replay(num_blocks, block_size)

    def _keep(self, event: Event) -> None:
        self.events.append(event)
        self.replay.apply(event)

    def ask(self, seqs: list[int], num_prompt: int, num_new: int | None = None) -> list[int]:
        """Announce and request; give a prompt of that length."""
        self.announce(seqs, num_prompt, num_new)
        self._keep(Requested(seqs[0], "", num_prompt))
        return list(range(100, 100 + num_prompt))

    def admit(self, seqs: list[int], num_prompt: int, num_new: int | None = None) -> None:
        """Ask, allocate, compute the prompt, and fork the samples."""
        prompt = self.ask(seqs, num_prompt, num_new)
        self.allocate(seqs[0], prompt)
        self.commit([(seqs[0], prompt)])
        for child in seqs[1:]:
            self.fork(seqs[0], child)
        self.check()

    def append(self, *seqs: int) -> list[tuple[int, int]]:
        moves = [tuple(move) for seq in seqs for move in self.append_slots(seq)]
        self.commit([(seq, [seq]) for seq in seqs])
        self.check()
        return moves

    def check(self) -> None:
        check_manager(self)
        assert self.replay.snapshot() == self.snapshot()

    @contextmanager
    def refused(self, error: type[Exception], match: str) -> Iterator[None]:
        """Expect an error that changes nothing and notifies nobody."""
        before, num_events, runs = self.snapshot(), len(self.events), self.pool.free_slabs()
        announced = dict(self._announced)
        with pytest.raises(error, match=match):
            yield
        assert (self.snapshot(), len(self.events)) == (before, num_events)
        assert (self.pool.free_slabs(), self._announced) == (runs, announced)


# --- how much is reserved


@pytest.mark.parametrize(
    ("policy", "num_prompt", "num_new", "tokens"),
    [
        (ReserveMax(2048), 1, 1, 2048),
        (ReserveMax(2048), 1024, 1025, 2048),
        (ReserveMax(2048), 100, None, 2048),
        (ReservePow2(2048), 100, 25, 132),
        (ReservePow2(2048), 100, 32, 132),
        (ReservePow2(2048), 100, 33, 164),
        (ReservePow2(2048), 100, 1, 101),
        (ReservePow2(2048), 1000, 1000, 2024),
        (ReservePow2(2048), 1000, 1049, 2048),
        (ReserveOracle(), 100, 25, 124),
        (ReserveOracle(), 100, 1, 100),
    ],
)
def test_what_a_policy_reserves(policy, num_prompt, num_new, tokens):
    assert policy.reserve(num_prompt, num_new) == tokens


@given(num_prompt=st.integers(1, 1024), num_new=st.integers(1, 1025))
def test_a_reservation_is_never_too_small_nor_above_the_next_policys(num_prompt, num_new):
    needed = num_prompt + num_new - 1
    oracle = ReserveOracle().reserve(num_prompt, num_new)
    pow2 = ReservePow2(2048).reserve(num_prompt, num_new)
    assert needed == oracle <= pow2 <= ReserveMax(2048).reserve(num_prompt, num_new)
    assert pow2 <= num_prompt + 2 * num_new


@pytest.mark.parametrize("policy", [ReserveMax(64), ReservePow2(64)])
def test_a_text_longer_than_the_model_allows_is_refused(policy):
    assert policy.reserve(32, 33) == 64
    with pytest.raises(RequestRefusedError, match=r"needs 65 tokens of KV, .* max_model_len = 64"):
        policy.reserve(32, 34)


@pytest.mark.parametrize("policy", [ReservePow2(64), ReserveOracle()])
def test_a_policy_that_needs_lengths_says_so(policy):
    with pytest.raises(ConfigError, match=f"{policy.name} must know the length of an output"):
        policy.reserve(5, None)


# --- slabs


def test_a_request_gets_one_slab_and_keeps_it():
    manager = Slabs(policy=ReserveOracle())
    prompt = manager.ask([0], 3, 4)
    assert manager.can_allocate(prompt) is AllocStatus.OK
    assert manager.allocate(0, prompt) == 0
    assert manager.events[-1] == SlabReserved(0, 0, 8, 6)
    assert manager.block_table(0) == list(range(8))
    assert (manager.num_tokens(0), manager.num_reserved(0), manager.pool.num_free) == (0, 6, 8)
    manager.commit([(0, prompt)])
    for _ in range(3):
        assert manager.blocks_to_append({0: 1}) == 0
        manager.append(0)
    assert manager.slot_mapping(0, 2, 6) == [2, 3, 4, 5]
    manager.free(0)
    assert manager.events[-1] == Released(0, tuple(range(7, -1, -1)), "finished")
    assert (manager.has(0), manager.pool.num_free) == (False, 16)
    manager.check()


def test_blocks_of_more_than_a_slot():
    manager = Slabs(num_blocks=16, block_size=4, policy=ReserveOracle())
    manager.admit([0], 5, 5)  # nine tokens: three blocks, of a slab of four
    assert manager.events[1] == SlabReserved(0, 0, 4, 9)
    assert manager.slot_mapping(0, 3, 6) == [3, 4, 5]


def test_a_small_request_does_not_overtake_a_large_one():
    manager = Slabs(num_blocks=16, policy=ReserveOracle())
    manager.admit([0], 2, 1)
    large, small = manager.ask([1], 9, 4), manager.ask([2], 2, 1)
    assert manager.can_allocate(large) is AllocStatus.LATER
    manager.withdraw(1)
    assert manager.can_allocate(small) is AllocStatus.OK
    manager.allocate(2, small)
    manager.check()


def test_room_in_pieces_is_later_not_never():
    manager = Slabs(num_blocks=16, policy=ReserveOracle())
    for seq in range(4):
        manager.admit([seq], 3, 2)
    manager.free(0)
    manager.free(2)
    prompt = manager.ask([4], 6, 2)
    assert manager.pool.num_free == 8
    assert manager.can_allocate(prompt) is AllocStatus.LATER
    with manager.refused(OutOfBlocksError, "seq 4: need 1 x 7 blocks in a row, 8 of 16 free"):
        manager.allocate(4, prompt)
    manager.free(1)
    assert manager.can_allocate(prompt) is AllocStatus.OK


def test_max_needs_no_announcement():
    manager = Slabs(num_blocks=20, policy=ReserveMax(8))
    for seq in (0, 1):
        manager._keep(Requested(seq, "", 2))
        assert manager.can_allocate([1, 2]) is AllocStatus.OK
        manager.allocate(seq, [1, 2])
    assert manager.can_allocate([1, 2]) is AllocStatus.LATER
    manager.check()
    assert Slabs(num_blocks=7).can_allocate([1, 2]) is AllocStatus.NEVER


def test_what_could_never_start_is_refused_when_it_is_announced():
    manager = Slabs(num_blocks=20, policy=ReserveMax(8))
    manager.announce([0, 1], 3)
    with manager.refused(RequestRefusedError, "needs 3 slabs of 8 blocks, .* room for 2: 8 tokens"):
        manager.announce([2, 3, 4], 3)
    with manager.refused(RequestRefusedError, "needs 9 tokens of KV"):
        manager.announce([2], 3, 7)


# --- samples


def test_every_sample_has_a_slab_from_the_start_and_a_copy_of_the_prompt():
    manager = Slabs(num_blocks=16, block_size=2, policy=ReserveOracle())
    prompt = manager.ask([0, 1, 2], 5, 4)
    assert manager.can_allocate(prompt) is AllocStatus.OK
    manager.allocate(0, prompt)
    assert manager.events[1:] == [
        SlabReserved(0, 0, 4, 8),
        *(Forked(0, 1), SlabReserved(1, 4, 4, 8)),
        *(Forked(0, 2), SlabReserved(2, 8, 4, 8)),
    ]
    assert manager.pool.num_free == 4
    manager.commit([(0, prompt)])
    manager.fork(0, 1)
    manager.fork(0, 2)
    manager.check()
    assert manager.events[-1] == Prefilled(2, 0, tuple(prompt), tuple(map(str, prompt)))
    moves = manager.append(0, 1, 2)
    assert moves == [(0, 4), (1, 5), (2, 6), (0, 8), (1, 9), (2, 10)]
    assert manager.append(0, 1, 2) == []
    assert max(manager.snapshot().ref_counts) == 1
    tables, contents = manager.replay.tables, manager.replay.contents
    for seq in (0, 1, 2):
        ids = [token.id for block in tables[seq] for token in contents[block]]
        assert ids == [*prompt, seq, seq]


def test_copies_run_before_anybody_writes_even_if_the_parent_is_gone():
    manager = Slabs(num_blocks=8, block_size=2, policy=ReserveOracle())
    manager.admit([0, 1], 3, 2)
    manager.free(0)
    prompt = manager.ask([2], 3, 2)
    manager.allocate(2, prompt)
    assert manager.block_table(2) == [0, 1]  # where the parent was
    assert [tuple(m) for m in manager.append_slots(2, 3)] == [(0, 2), (1, 3)]


def test_a_fork_of_a_fork_copies_from_where_the_tokens_are():
    manager = Slabs(num_blocks=32)
    prompt = manager.ask([0, 1, 2], 2, 2)
    manager.allocate(0, prompt)
    manager.commit([(0, prompt)])
    manager.fork(0, 1)
    manager.fork(1, 2)
    parent, child, grandchild = (manager.block_table(seq)[:2] for seq in (0, 1, 2))
    copies = [tuple(move) for move in manager.append_slots(2)]
    assert copies == list(zip(parent * 2, child + grandchild, strict=True))


def test_nothing_is_copied_into_a_slab_that_was_given_back():
    manager = Slabs()
    manager.admit([0, 1], 3, 2)
    manager.free(1)
    assert manager.append(0) == []


@pytest.mark.parametrize("seqs", [[], [4, 4], [0], [5, 0], [2], [5, 2]])
def test_a_sequence_is_announced_once_and_only_while_it_is_new(seqs):
    manager = Slabs()
    manager.admit([0], 3, 2)
    manager.announce([2], 3, 2)
    with manager.refused(ValueError, "must be new ones, each named once"):
        manager.announce(seqs, 3, 2)


def test_a_fork_that_was_not_announced_is_refused():
    manager = Slabs(num_blocks=32, policy=ReserveMax(8))
    manager.admit([0, 1], 3)
    manager.admit([2], 3)
    for parent, child in ((0, 7), (0, 1), (0, 2), (0, 0)):
        with manager.refused(ValueError, f"seq {child} has no empty slab: .* beams can't run"):
            manager.fork(parent, child)
    with manager.refused(ValueError, "seq 9 has no blocks"):
        manager.fork(9, 1)


# --- what is wrong


def test_a_text_that_outgrows_its_slab_is_an_error_with_the_numbers():
    manager = Slabs(policy=ReserveOracle())
    manager.admit([0], 3, 3)
    manager.append_slots(0, 2)
    for operation in (
        lambda: manager.append_slots(0, 3),
        lambda: manager.blocks_to_append({0: 3}),
        lambda: manager.commit([(0, [1, 2, 3])]),
    ):
        with manager.refused(OutOfBlocksError, "seq 0 wants to hold 6 tokens, and reserved 5"):
            operation()


@pytest.mark.parametrize(
    ("operation", "match"),
    [
        (lambda m: m.can_allocate([]), "at least one token"),
        (lambda m: m.allocate(5, []), "at least one token"),
        (lambda m: m.allocate(0, [1]), "must not have blocks already"),
        (lambda m: m.commit([(0, [1]), (0, [1])]), "seq 0 is named twice"),
        (lambda m: m.commit([(0, [])]), "at least 1 token, not 0"),
        (lambda m: m.commit([(0, [1]), (5, [1])]), "seq 5 has no blocks"),
        (lambda m: m.append_slots(0, 0), "at least 1 token, not 0"),
        (lambda m: m.append_slots(5), "seq 5 has no blocks"),
        (lambda m: m.free(5), "seq 5 has no blocks"),
        (lambda m: m.block_table(5), "seq 5 has no blocks"),
        (lambda m: m.swap_in([0]), "no swap blocks"),
        (lambda m: m.blocks_to_swap_in([0]), "no swap blocks"),
    ],
)
def test_a_callers_mistake_changes_nothing(operation, match):
    manager = Slabs()
    manager.admit([0], 3)
    with manager.refused(ValueError, match):
        operation(manager)


def test_nothing_moves_out():
    manager = Slabs()
    manager.admit([0], 3)
    assert not manager.can_swap_out([0])
    assert manager.count_cached_tokens([100, 101, 102]) == 0
    with manager.refused(OutOfBlocksError, "no swap blocks"):
        manager.swap_out([0])
    with pytest.raises(ConfigError, match="block_size must be at least 1"):
        ContiguousManager(8, 0, ReserveOracle())


# --- a run


@st.composite
def runs(draw: st.DrawFn) -> tuple[Slabs, list[tuple[int, int, int]]]:
    block_size = draw(st.sampled_from([1, 2, 4]))
    manager = Slabs(draw(st.integers(64, 100)), block_size, draw(st.sampled_from(POLICIES)))
    lengths = st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(1, 2))
    return manager, draw(st.lists(lengths, min_size=1, max_size=12))


@settings(max_examples=40)
@given(runs(), st.integers(0, 2**32))
def test_replay_equals_the_manager_after_every_operation(run, seed):
    manager, requests = run
    draw = Random(seed)
    left: dict[int, int] = {}
    numbers = iter(range(1000))
    waiting = [([next(numbers) for _ in range(n)], p, new) for p, new, n in requests]
    for seqs, num_prompt, num_new in waiting:
        manager.ask(seqs, num_prompt, num_new)
    while waiting or left:
        if waiting:
            seqs, num_prompt, num_new = waiting[0]
            prompt = list(range(num_prompt))
            if manager.can_allocate(prompt) is AllocStatus.OK:
                waiting.pop(0)
                manager.allocate(seqs[0], prompt)
                manager.check()
                manager.commit([(seqs[0], prompt)])
                for child in seqs[1:]:
                    manager.fork(seqs[0], child)
                left.update(dict.fromkeys(seqs, num_new - 1))
                manager.check()
                continue
        seq = draw.choice(sorted(left))
        if left[seq]:
            manager.append(seq)
            left[seq] -= 1
        else:
            manager.free(seq)
            del left[seq]
            manager.check()
    assert manager.pool.num_free == manager.pool.num_blocks


def test_a_trace_of_slabs_survives_a_file_and_its_check(tmp_path):
    header = TraceHeader(block_size=2, num_blocks=16, allocator="orca-oracle")
    trace = Trace(header)
    manager = ContiguousManager(16, 2, ReserveOracle(), notify=trace.observe)
    assert manager.allocator == header.allocator
    for seq in (0, 1):
        trace.observe(Requested(seq, "", 3))
        manager.announce([seq], 3, 5)
        manager.allocate(seq, [1, 2, 3])
        manager.commit([(seq, [1, 2, 3])])
        trace.end_step(3, 0)
    manager.free(0)
    trace.end_step(0, 0)
    trace.save(tmp_path / "slabs.jsonl.gz")
    assert Trace.load(tmp_path / "slabs.jsonl.gz") == trace
    assert check_trace(tmp_path / "slabs.jsonl.gz") == (3, 7)
    assert '["reserve",0,0,4,7]' in _lines(trace, tmp_path)


def _lines(trace: Trace, folder: Any) -> str:
    trace.save(folder / "slabs.jsonl")
    return (folder / "slabs.jsonl").read_text(encoding="utf-8")
