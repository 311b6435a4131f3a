from __future__ import annotations

import dataclasses

import pytest
from watched import Watched

from minipaged.memory.snapshot import MemorySnapshot

SNAPSHOT = MemorySnapshot(
    block_size=4,
    ref_counts=(2, 1, 0, 0, 1, 0),
    hashes={0: "aa", 2: "bb"},
    tables={0: (0, 1), 1: (0, 4)},
    num_tokens={0: 6, 1: 5, 7: 3},
    swap_ref_counts=(1, 0),
    swap_tables={7: (0,)},
)


def test_numbers():
    assert SNAPSHOT.num_blocks == 6
    assert SNAPSHOT.num_used == 3
    assert SNAPSHOT.num_free == 3
    assert SNAPSHOT.num_cached == 1
    assert SNAPSHOT.num_shared == 1
    assert SNAPSHOT.num_blocks_saved == 1
    assert SNAPSHOT.num_empty_slots == 2 + 3


def test_an_empty_memory():
    nothing = MemorySnapshot(4, (0, 0))
    assert (nothing.num_used, nothing.num_free, nothing.num_empty_slots) == (0, 2, 0)
    assert (nothing.num_cached, nothing.num_shared, nothing.num_blocks_saved) == (0, 0, 0)


def test_reserved_blocks_are_empty_slots():
    m = Watched(8, 4)
    m.admit(0, [1, 2, 3])
    assert m.snapshot().num_empty_slots == 1
    m.append_slots(0, 6)
    assert m.snapshot().num_empty_slots == 1 + 8
    m.fork(0, 1)
    assert m.snapshot().num_empty_slots == 1 + 8  # a shared block counts once
    assert m.snapshot().num_shared == m.snapshot().num_blocks_saved == 1


def test_snapshots_are_compared_by_value():
    assert dataclasses.replace(SNAPSHOT) == SNAPSHOT
    assert dataclasses.replace(SNAPSHOT, hashes={}) != SNAPSHOT
    with pytest.raises(dataclasses.FrozenInstanceError):
        SNAPSHOT.block_size = 8  # type: ignore[misc]
