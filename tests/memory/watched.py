"""A manager under watch: each change is replayed and checked, a failure must change nothing."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from minipaged.memory.events import Event, Requested
from minipaged.memory.integrity import check_manager
from minipaged.memory.kv_cache_manager import KVCacheManager
from minipaged.memory.replay import Replay


def state_of(manager: KVCacheManager) -> Any:
    """Give everything that a manager knows as a value: a failed operation must leave it alone."""
    pools = [
        (list(p.ref_count), dict(p.hash_of), dict(p._block_of), p.free_order(), p.num_free_cached)
        for p in (manager.pool, manager.swap_pool)
    ]
    return pools, copy.deepcopy((manager._tables, manager._swapped))


class Watched(KVCacheManager):
    """A manager whose events are kept in `events`; `requested` plays the scheduler's part."""

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        self.events: list[Event] = []
        super().__init__(num_blocks, block_size, notify=self.events.append, **options)
        self.replay = Replay(num_blocks, block_size, options.get("num_swap_blocks", 0))
        self._replayed = 0

    def admit(self, seq: int, token_ids: Sequence[int]) -> int:
        """Request, allocate and compute a prompt; give how many of its tokens were cached."""
        cached = self.start(seq, token_ids)
        self.commit([(seq, token_ids[cached:])])
        return cached

    def start(self, seq: int, token_ids: Sequence[int]) -> int:
        """Request and allocate a prompt that is not computed yet."""
        self.events.append(Requested(seq, f"seq {seq}", len(token_ids)))
        return self.allocate(seq, token_ids)

    def append(self, seq: int, *token_ids: int) -> list[tuple[int, int]]:
        """Make room for some tokens and compute them; give the block copies that it took."""
        moves = self.append_slots(seq, len(token_ids))
        self.commit([(seq, token_ids)])
        return [tuple(move) for move in moves]

    def check(self) -> None:
        """Check all invariants, and that a replay of the events gives the same state."""
        check_manager(self)
        for event in self.events[self._replayed :]:
            self.replay.apply(event)
        self._replayed = len(self.events)
        assert self.replay.snapshot() == self.snapshot()

    @contextmanager
    def refused(self, error: type[Exception], match: str | None = None) -> Iterator[None]:
        """Expect an error that changes nothing and notifies nobody."""
        before, num_events = state_of(self), len(self.events)
        with pytest.raises(error, match=match):
            yield
        assert state_of(self) == before
        assert len(self.events) == num_events
