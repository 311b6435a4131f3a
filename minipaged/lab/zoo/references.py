"""Faults of reference counts: a block is freed too early, too often, or never.

Each function is the wrong code; the comment beside it is the right one.
"""

from __future__ import annotations

from collections.abc import Sequence

from minipaged.engine.scheduler import Scheduler
from minipaged.engine.sequence import Request
from minipaged.engine.sequence import Sequence as Text
from minipaged.lab.zoo.bug import Bug, Hits, replaces
from minipaged.memory.block_pool import BlockPool
from minipaged.memory.block_table import BlockTable as Table
from minipaged.memory.events import BlockCopied, Finished, PrefixHit
from minipaged.memory.kv_cache_manager import BlockMove
from minipaged.memory.kv_cache_manager import KVCacheManager as Manager

_FORK, _FINISH = Manager.fork, Scheduler.finish


@replaces(
    Manager,
    "_copy_on_write",
    name="double-free",
    source="https://github.com/vllm-project/vllm/pull/3347",
    shows="A copy-on-write like any other. The manager counts one holder of the source too few, "
    "and will give the block away under the last one.",
    caught_by="same-state",
)
def double_free(m: Manager, seq: int, table: Table, source: int) -> BlockMove:
    """Copy-on-write gives the shared block back twice.

    vLLM's append_slot took a reference from the block that it copied, and the table that named the
    block was freed in full later: 'ValueError: Double free!' killed the server, with several
    samples or beams behind a sliding window.
    """
    index = table.num_tokens // m.block_size
    why = f"copy-on-write: block {source} is shared"
    target = m.pool.allocate(for_seq=seq)
    m.pool.release([source, source])  # right: release([source])
    table.block_ids[index] = target
    m._notify(BlockCopied(seq, index, source, target, why))
    return BlockMove(source, target)


@replaces(
    BlockPool,
    "release",
    name="freed-while-shared",
    source="https://github.com/sgl-project/sglang/issues/6888",
    shows="One of two sharers leaves. The events still count the other, the manager does not: "
    "it gives the block away.",
    caught_by="same-state",
)
def freed_while_shared(pool: BlockPool, blocks: Sequence[int]) -> None:
    """A block becomes free while one sequence still holds it.

    SGLang's check at idle found more free KV tokens than the pool has: some counted as free and as
    cached. Here a block is freed under somebody who holds it: two texts then write to one place.
    """
    for block in blocks:
        pool.ref_count[block] -= 1
        if pool.ref_count[block] <= 1:  # right: == 0
            pool.ref_count[block] = 0
            if block not in pool._free and block not in pool._free_cached:
                pool._append_free(block)


@replaces(
    BlockPool,
    "share",
    name="in-use-and-free",
    source="https://github.com/NVIDIA/TensorRT-LLM/pull/12648",
    shows="A hit on a free block like any other. It is still queued as free, and the next "
    "request may get it too.",
    caught_by="free-list",
)
def in_use_and_free(pool: BlockPool, block: int) -> None:
    """A block is in use and in the free list at the same time.

    TensorRT-LLM pinned the block of its reuse tree, not the one that held the data. The unpinning
    put a block into the free queue that stood there already; getFreeBlock then gave the same block
    out twice.
    """
    # right: if ref_count == 0, take it out of the free list first
    pool.ref_count[block] += 1


@replaces(
    Manager,
    "_take_hits",
    name="hit-not-locked",
    source="https://github.com/sgl-project/mini-sglang/pull/52",
    shows="A hit of n blocks, of which the manager counts n - 1: the last may be handed to "
    "somebody else.",
    caught_by="same-state",
)
def hit_not_locked(m: Manager, seq: int, table: Table, hits: Hits) -> None:
    """The last block of a prefix hit gets no reference.

    mini-sglang walked from the hit node to the root to lock it, but stepped to the parent first:
    the node itself was never locked, so it could be evicted while a request used it.
    """
    for block, _ in hits[:-1]:  # right: for block, _ in hits
        m.pool.share(block)
    table.block_ids = [block for block, _ in hits]
    table.hashes = [content_hash for _, content_hash in hits]
    table.num_published = len(hits)
    table.num_tokens = len(hits) * m.block_size
    m._notify(PrefixHit(seq, 0, tuple(table.block_ids)))


@replaces(
    Manager,
    "fork",
    name="fork-counts-twice",
    source="https://github.com/vllm-project/vllm/pull/3347",
    shows="A fork like any other. When all samples have gone, one block will still count as used.",
    caught_by="same-state",
)
def fork_counts_twice(m: Manager, parent: int, child: int) -> None:
    """A fork counts a shared block once too often.

    In vLLM a fork raised the count of every entry of a table, although a sliding window names the
    same block several times and frees it once. Such a block never becomes free again.
    """
    _FORK(m, parent, child)
    # right: one reference for each entry, no more
    m.pool.share(m.block_table(parent)[0])


@replaces(
    Scheduler,
    "finish",
    name="abort-leaks",
    source="https://github.com/vllm-project/vllm/issues/46283",
    shows="A sequence is marked finished, and its blocks stay in its colour for ever.",
    caught_by="returned",
)
def leaks(s: Scheduler, request: Request, text: Text, reason: str) -> None:
    """An aborted request keeps its blocks.

    In vLLM an abort held back the blocks of a request whose KV was still on its way from another
    machine. Where that machine never answered they were never freed, until nothing could be
    admitted any more. SGLang and others had leaks of the same kind.
    """
    if reason != "abort":  # right: whatever the reason
        _FINISH(s, request, text, reason)
        return
    text.finish_reason = reason
    if s.manager.has(text.seq_id):
        s._notify(Finished(text.seq_id, reason))
    for queue in (s.waiting, s.running, s.swapped):
        if request in queue and not request.live:
            queue.remove(request)


BUGS: tuple[Bug, ...] = (
    double_free,
    freed_while_shared,
    in_use_and_free,
    hit_not_locked,
    fork_counts_twice,
    leaks,
)
