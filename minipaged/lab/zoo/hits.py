"""Faults around hits and evictions: what is counted, taken and given up, in which order."""

from __future__ import annotations

from minipaged.lab.zoo.bug import Bug, Hits, Tokens, replaces
from minipaged.memory.block_pool import BlockPool
from minipaged.memory.block_table import BlockTable as Table
from minipaged.memory.block_table import blocks_for
from minipaged.memory.events import BlockAllocated, Released
from minipaged.memory.kv_cache_manager import KVCacheManager as Manager
from minipaged.memory.prefix_cache import PrefixCache

_LONGEST_HIT = PrefixCache.longest_hit
_TAKE_HITS, _ALLOCATE_BLOCK = Manager._take_hits, BlockPool.allocate


@replaces(
    PrefixCache,
    "longest_hit",
    name="full-hit",
    source="https://github.com/vllm-project/vllm/pull/3239",
    shows="A request runs and holds blocks, but no step computes anything for it.",
    caught_by="progress",
)
def full_hit(cache: PrefixCache, token_ids: Tokens) -> Hits:
    """A prompt that is cached in full leaves no token to compute.

    The model must run on one token at least to give the next. vLLM's first prefix cache marked the
    whole prompt as computed, and the runner built tensors of size 0. HF's continuous batching and
    nano-vllm met the same edge.
    """
    # right: all tokens but the last
    return _LONGEST_HIT(cache, [*token_ids, 0])


@replaces(
    Manager,
    "_lacks",
    name="hits-count-as-free",
    source="https://github.com/ROCm/ATOM/pull/902",
    shows="A request is admitted into a pool that is almost full, and the run ends half-way.",
    caught_by="no-error",
)
def hits_free(m: Manager, tokens: Tokens, hits: Hits, extra: int = 0) -> int:
    """Hits that lie in the free list are counted as free as well.

    ATOM and nano-vllm asked whether the new blocks fit into the free list, and forgot that the hits
    come out of the same list: the promise was too large, and 'no free blocks' came in the middle of
    an allocation. vLLM's can_allocate and allocate differed in a like way.
    """
    needed = blocks_for(len(tokens), m.block_size) - len(hits) + extra
    # right: needed - (num_free - hits that are free)
    return needed - m.pool.num_free


@replaces(
    Manager,
    "allocate",
    name="hit-evicted",
    source="https://github.com/vllm-project/vllm/pull/10507",
    shows="Blocks are evicted to make room for a request, and one of them is its own hit.",
    caught_by="replay",
)
def hit_evicted(m: Manager, seq: int, token_ids: Tokens) -> int:
    """New blocks are taken before the hits are: a hit may be evicted for them.

    A refactoring of vLLM's v1 manager did so, and a reviewer saw it before it was merged: hits that
    nobody holds yet are the first to go when the pool is short.
    """
    hits = m._hits(token_ids)
    table = m._tables[seq] = Table()
    num_new = blocks_for(len(token_ids), m.block_size) - len(hits)
    # right: after the hits
    new = [m.pool.allocate(for_seq=seq) for _ in range(num_new)]
    if hits:
        m._take_hits(seq, table, hits)
    for index, block in enumerate(new, len(hits)):
        table.block_ids.append(block)
        m._notify(BlockAllocated(seq, index, block, "prompt"))
    return table.num_tokens


@replaces(
    Manager,
    "_take_hits",
    name="hit-forgets",
    source="https://github.com/ROCm/ATOM/pull/902",
    shows="A request shares a cached block, and the run ends as the block would be evicted for it.",
    caught_by="replay",
)
def hit_forgets(m: Manager, seq: int, table: Table, hits: Hits) -> None:
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
    Manager,
    "free",
    name="head-first",
    source="https://github.com/llm-d/llm-d-inference-sim/issues/704",
    shows="The run ends as a sequence would release its first block first. Left alone, "
    "evictions begin with the heads of texts, and what is cached behind them is lost.",
    caught_by="replay",
)
def head_first(m: Manager, seq: int, why: str = "finished") -> None:
    """A sequence's blocks are freed head first.

    A block without its predecessor can't be hit. llm-d's simulator dropped the blocks of a prompt
    in any order: in 144 of 200 runs the first one went, and the rest was cached for nothing. vLLM
    frees the tail first, so the head is evicted last.
    """
    away = seq in m._swapped
    tables, pool = (m._swapped, m.swap_pool) if away else (m._tables, m.pool)
    blocks = tables.pop(seq).block_ids  # right: block_ids[::-1]
    pool.release(blocks)
    if blocks:
        m._notify(Released(seq, tuple(blocks), why))


BUGS: tuple[Bug, ...] = (
    full_hit,
    hits_free,
    hit_evicted,
    hit_forgets,
    cached_first,
    head_first,
)
