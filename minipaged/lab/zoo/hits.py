"""Faults around hits and evictions: what is counted, taken and given up, in which order."""

from __future__ import annotations

from collections.abc import Sequence

from minipaged.lab.zoo.bug import Bug, replaces
from minipaged.memory.block_pool import BlockPool
from minipaged.memory.block_table import BlockTable, blocks_for
from minipaged.memory.events import BlockAllocated, Released
from minipaged.memory.kv_cache_manager import KVCacheManager
from minipaged.memory.prefix_cache import PrefixCache

_LONGEST_HIT = PrefixCache.longest_hit
_TAKE_HITS, _ALLOCATE_BLOCK = KVCacheManager._take_hits, BlockPool.allocate


@replaces(
    PrefixCache,
    "longest_hit",
    name="full-hit",
    source="https://github.com/vllm-project/vllm/pull/3239",
    shows="A request runs and holds blocks, but no step computes anything for it.",
    caught_by="progress",
)
def full_hit(cache: PrefixCache, token_ids: Sequence[int]) -> list[tuple[int, str]]:
    """A prompt that is cached in full leaves no token to compute.

    The model must run on one token at least to give the next. vLLM's first prefix cache marked the
    whole prompt as computed, and the runner built tensors of size 0. HF's continuous batching and
    nano-vllm met the same edge.
    """
    return _LONGEST_HIT(cache, [*token_ids, 0])  # right: all tokens but the last


@replaces(
    KVCacheManager,
    "_lacks",
    name="hits-count-as-free",
    source="https://github.com/ROCm/ATOM/pull/902",
    shows="A request is admitted into a pool that is almost full, and the run ends half-way.",
    caught_by="no-error",
)
def hits_count_as_free(
    m: KVCacheManager, token_ids: Sequence[int], hits: Sequence[tuple[int, str]], extra: int = 0
) -> int:
    """Hits that lie in the free list are counted as free as well.

    ATOM and nano-vllm asked whether the new blocks fit into the free list, and forgot that the hits
    come out of the same list: the promise was too large, and 'no free blocks' came in the middle of
    an allocation. vLLM's can_allocate and allocate differed in a like way.
    """
    needed = blocks_for(len(token_ids), m.block_size) - len(hits) + extra
    return needed - m.pool.num_free  # right: needed - (num_free - hits that are free)


@replaces(
    KVCacheManager,
    "allocate",
    name="hit-evicted",
    source="https://github.com/vllm-project/vllm/pull/10507",
    shows="Blocks are evicted to make room for a request, and one of them is its own hit.",
    caught_by="replay",
)
def hit_evicted(m: KVCacheManager, seq: int, token_ids: Sequence[int]) -> int:
    """New blocks are taken before the hits are: a hit may be evicted for them.

    A refactoring of vLLM's v1 manager did so, and a reviewer saw it before it was merged: hits that
    nobody holds yet are the first to go when the pool is short.
    """
    hits = m._hits(token_ids)
    table = m._tables[seq] = BlockTable()
    num_new = blocks_for(len(token_ids), m.block_size) - len(hits)
    new = [m.pool.allocate(for_seq=seq) for _ in range(num_new)]  # right: after the hits
    if hits:
        m._take_hits(seq, table, hits)
    for block in new:
        table.block_ids.append(block)
        m._notify(BlockAllocated(seq, len(table.block_ids) - 1, block, "prompt"))
    return table.num_tokens


@replaces(
    KVCacheManager,
    "_take_hits",
    name="hit-forgets",
    source="https://github.com/ROCm/ATOM/pull/902",
    shows="A request shares a cached block, and the run ends as the block would be evicted for it.",
    caught_by="replay",
)
def hit_forgets(
    m: KVCacheManager, seq: int, table: BlockTable, hits: Sequence[tuple[int, str]]
) -> None:
    """A hit on a free block clears what makes it findable.

    ATOM, like nano-vllm before it, took a cached block out of the free list with the function for
    new blocks, which resets it: the first hit destroyed the cache for all others.
    """
    were_free = [block for block, _ in hits if m.pool.ref_count[block] == 0]
    _TAKE_HITS(m, seq, table, hits)
    for block in were_free:  # right: the content stays findable
        m.pool._forget(block, for_seq=seq)


@replaces(
    BlockPool,
    "allocate",
    name="cached-first",
    source="https://github.com/vllm-project/vllm/pull/42656",
    shows="Evictions, although the pool has blocks that are free and empty.",
    caught_by="order",
)
def cached_first(pool: BlockPool, for_seq: int) -> int:
    """A cached block is evicted while a block without content is free.

    vLLM queued half-filled blocks, which nobody can find again, like cached ones. They pushed real
    cache entries out: a hit rate that was lower than the memory allowed.
    """
    if pool._free_cached:  # right: only if pool._free is empty
        block = pool._free_cached.popleft()
        pool._forget(block, for_seq)
        pool.ref_count[block] = 1
        return block
    return _ALLOCATE_BLOCK(pool, for_seq)


@replaces(
    KVCacheManager,
    "free",
    name="head-first",
    source="https://github.com/llm-d/llm-d-inference-sim/issues/704",
    shows="The run ends as a sequence would release its first block first. Left alone, "
    "evictions begin with the heads of texts, and what is cached behind them is lost.",
    caught_by="replay",
)
def head_first(m: KVCacheManager, seq: int, why: str = "finished") -> None:
    """A sequence's blocks are freed head first.

    A block without its predecessor can't be hit. llm-d's simulator dropped the blocks of a prompt
    in any order: in 144 of 200 runs the first one went, and the rest was cached for nothing. vLLM
    frees the tail first, so the head is evicted last.
    """
    tables, pool = (m._swapped, m.swap_pool) if seq in m._swapped else (m._tables, m.pool)
    blocks = tables.pop(seq).block_ids  # right: block_ids[::-1]
    pool.release(blocks)
    if blocks:
        m._notify(Released(seq, tuple(blocks), why))


BUGS: tuple[Bug, ...] = (
    full_hit,
    hits_count_as_free,
    hit_evicted,
    hit_forgets,
    cached_first,
    head_first,
)
