"""What must hold after every operation of an engine, checked from outside.

None of this knows the bugs: these are the promises of memory and scheduler, and a trace's replay
and a readable KV cache (`CheckedKV`) as witnesses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from minipaged.engine.scheduler import Scheduler
from minipaged.memory.checked_kv import CheckedKV
from minipaged.memory.events import BlockAllocated, BlockCopied, BlockEvicted, Event, SwappedIn
from minipaged.memory.integrity import check_finished, check_manager, check_snapshot
from minipaged.memory.kv_cache_manager import KVCacheManager
from minipaged.memory.replay import IntegrityError, Replay

INVARIANTS = {
    "replay": "every event follows from the state before it",
    "order": "nothing is evicted while a block without content is free",
    "no-error": "what was promised can be done: no operation fails half-way",
    "same-state": "the events give the same state as the manager has",
    "tables": "reference counts, tables and hashes agree",
    "free-list": "the free list holds the blocks without references, each once",
    "returned": "who has finished holds no block",
    "progress": "who runs has something to compute, and every step computes something",
    "contents": "every sequence reads back its own keys and values",
}


class BrokenInvariantError(IntegrityError):
    """An invariant does not hold any more; `invariant` is its name in `INVARIANTS`."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(message)
        self.invariant = invariant


class Witness:
    """A replay of the events so far that also sees to the order of evictions.

    `BlockPool` promises to take free blocks without content first. That is a policy and no law of
    paging, so `Replay` doesn't ask for it.
    """

    def __init__(self, num_blocks: int, block_size: int, num_swap_blocks: int) -> None:
        self.state = Replay(num_blocks, block_size, num_swap_blocks)
        self._passed_over: set[int] = set()
        self._evicted: set[int] = set()

    def see(self, event: Event) -> None:
        """Take one event.

        Raises:
            BrokenInvariantError: It contradicts the state, or there was no need for an eviction.
        """
        if isinstance(event, BlockEvicted):
            self._passed_over |= self._empty() - self._evicted
            self._evicted.add(event.block)
        _check("replay", lambda: self.state.apply(event))
        if isinstance(event, BlockAllocated | BlockCopied | SwappedIn):  # what evictions were for
            still_empty = self._passed_over & self._empty()
            self._passed_over, self._evicted = set(), set()
            if still_empty:
                message = (
                    f"a cached block is evicted, but block {min(still_empty)} is free and empty"
                )
                raise BrokenInvariantError("order", message)

    def _empty(self) -> set[int]:
        counts, hashes = self.state.ref_counts, self.state.hashes
        return {b for b, n in enumerate(counts) if n == 0 and b not in hashes}


def check_all(
    manager: KVCacheManager,
    scheduler: Scheduler,
    state: Replay,
    kv: CheckedKV,
    texts: dict[int, list[int]],
) -> None:
    """Check everything that must hold between two operations.

    Args:
        manager: The memory.
        scheduler: Who decides about it.
        state: A replay of all events so far.
        kv: Where the computed KV lies.
        texts: All tokens of each sequence, as the outside world knows them.

    Raises:
        BrokenInvariantError: The first invariant that does not hold.
    """
    snapshot = manager.snapshot()
    if state.snapshot() != snapshot:
        raise BrokenInvariantError("same-state", _difference(state, manager))
    _check("tables", lambda: check_snapshot(snapshot))
    _check("free-list", lambda: check_manager(manager))
    _check("returned", lambda: check_finished(state))
    _check("progress", lambda: _check_progress(scheduler))
    _check("contents", lambda: kv.check(snapshot, texts))


def _check(invariant: str, check: Callable[[], None]) -> None:
    try:
        check()
    except IntegrityError as e:
        raise BrokenInvariantError(invariant, str(e)) from e


def _check_progress(scheduler: Scheduler) -> None:
    for request in scheduler.running:
        if not any(request.num_tokens_to_compute(s) > 0 for s in request.computing):
            raise IntegrityError(
                f"request {request.request_id} runs, but all of its tokens count as computed"
            )


def _difference(state: Replay, manager: KVCacheManager) -> str:
    """Tell the first thing that the events and the manager see differently."""
    pools = (("block", state.ref_counts, manager.pool.ref_count),)
    swap = (("swap block", state.swap_ref_counts, manager.swap_pool.ref_count),)
    for name, told, counted in (*pools, *swap):
        block = _first_difference(told, counted)
        if block is not None:
            return f"{name} {block}: ref_count {counted[block]}, by the events {told[block]}"
    return "tables, lengths or hashes are not what the events tell"


def _first_difference(told: Sequence[int], counted: Sequence[int]) -> int | None:
    pairs = enumerate(zip(told, counted, strict=True))
    return next((block for block, (a, b) in pairs if a != b), None)
