"""Faults of the prefix cache's index: what a block is known by, and from when to when."""

from __future__ import annotations

from minipaged.lab.zoo.bug import Bug, Tokens, replaces
from minipaged.memory import prefix_cache
from minipaged.memory.block_pool import BlockPool
from minipaged.memory.block_table import BlockTable as Table
from minipaged.memory.events import BlockEvicted, BlockPublished
from minipaged.memory.kv_cache_manager import KVCacheManager as Manager
from minipaged.memory.prefix_cache import ROOT, hash_block, prefix_hashes

_ALLOCATE, _PUBLISH = Manager.allocate, Manager._publish


@replaces(
    Manager,
    "allocate",
    name="published-early",
    source="https://github.com/vllm-project/vllm/pull/37152",
    shows="A request takes blocks, and the run ends as they would be published before any prefill.",
    caught_by="replay",
)
def published_early(m: Manager, seq: int, token_ids: Tokens) -> int:
    """A block can be found before its KV was computed.

    vLLM puts new blocks into its hash table when they are scheduled. A request of the same step, it
    was reported, can hit them and read memory that no one has written yet: wrong tokens even at
    temperature 0. nano-vllm and ATOM moved the hashing behind the forward pass.
    """
    cached = _ALLOCATE(m, seq, token_ids)
    parent = ROOT
    # right: in commit, when the KV exists
    for index, own in enumerate(prefix_hashes(token_ids, m.block_size)):
        block = m.block_table(seq)[index]
        if m.pool.publish(block, own):
            m._notify(BlockPublished(block, own, parent))
        parent = own
    return cached


@replaces(
    Manager,
    "_publish",
    name="partial-block",
    source="https://github.com/NVIDIA/TensorRT-LLM/pull/10922",
    shows="The run ends as a block with empty slots would be published.",
    caught_by="replay",
)
def partial_block(m: Manager, table: Table) -> None:
    """A block that is not full yet is published.

    TensorRT-LLM stored a paused request's last block, half filled, for reuse. When the block filled
    up its key changed, and the tree kept an entry under the old one: 'Assertion failed: isLeaf()'.
    """
    _PUBLISH(m, table)
    # right: a block of fewer than block_size tokens has no hash
    if table.tail:
        parent = table.hashes[-1] if table.hashes else ROOT
        block = table.block_ids[len(table.hashes)]
        content_hash = hash_block(parent, table.tail)
        if m.pool.publish(block, content_hash):
            m._notify(BlockPublished(block, content_hash, parent))


@replaces(
    BlockPool,
    "_forget",
    name="stale-hash",
    source="https://github.com/GeeeekExplorer/nano-vllm/issues/163",
    shows="A block is evicted, and the run ends as a later request would hit it all the same.",
    caught_by="replay",
)
def stale_hash(pool: BlockPool, block: int, for_seq: int) -> None:
    """A reused block can still be found by its old content.

    nano-vllm reset a block that it took from the free list, but left its old hash in the map: the
    next prompt with that prefix was given a block full of other people's tokens. vLLM's second
    block manager and kvcached had the same fault.
    """
    content_hash = pool.hash_of.pop(block)
    # right: del pool._block_of[content_hash]
    pool._notify(BlockEvicted(block, content_hash, for_seq))


@replaces(
    prefix_cache,
    "hash_block",
    name="unchained-hash",
    source="https://github.com/vllm-project/vllm/pull/12603",
    shows="A hit joins blocks that were computed behind different texts, or one block twice.",
    caught_by="tables",
)
def unchained_hash(parent_hash: str, token_ids: Tokens) -> str:
    """A hash covers its own block, but not what came before.

    The KV of a token depends on all tokens before it. In vLLM a block's hash once left out what
    only its predecessors told apart (which image stood there), so two requests with different
    beginnings shared a block.
    """
    return hash_block(ROOT, token_ids)  # right: parent_hash, not ROOT


@replaces(
    prefix_cache,
    "hash_block",
    name="weak-hash",
    source="https://github.com/NVIDIA/Megatron-LM/pull/4158",
    shows="A prompt hits a block whose tokens are others than its own.",
    caught_by="contents",
)
def weak_hash(parent_hash: str, token_ids: Tokens) -> str:
    """Two different blocks have the same hash.

    Megatron-LM hashed a block as a polynomial of its tokens: raise one by 31, lower the next by 1,
    and the hash is the same. vLLM used Python's hash(), which is predictable too, and changed to
    SHA-256: whoever can make two prompts collide reads another user's cache.
    """
    # right: a cryptographic hash
    total = int(parent_hash or "0", 16) * 31 + sum(token_ids)
    return f"{total % 2**128:032x}"


@replaces(
    BlockPool,
    "publish",
    name="second-overwrites",
    source="https://github.com/GeeeekExplorer/nano-vllm/issues/219",
    shows="Two sequences fill equal blocks, and the run ends as the second would be published too.",
    caught_by="replay",
)
def second_overwrites(pool: BlockPool, block: int, own: str) -> bool:
    """A second block with the same content takes over the hash of the first.

    Two equal prompts in one step compute the same blocks twice. In nano-vllm the later one
    overwrites the entry of the earlier; kvcached dropped the second without a trace, and vLLM's
    accounting stopped the engine.
    """
    if block in pool.hash_of:  # right: or own in pool._block_of
        return False
    pool._block_of[own] = block
    pool.hash_of[block] = own
    return True


BUGS: tuple[Bug, ...] = (
    published_early,
    partial_block,
    stale_hash,
    unchained_hash,
    weak_hash,
    second_overwrites,
)
