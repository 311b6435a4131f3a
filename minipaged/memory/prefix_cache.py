"""Finding blocks that were computed before: chained hashes of full blocks.

The KV of a token depends on every token before it, so a block is known by the hash of its own
tokens *and* of the block before: equal hashes mean equal prefixes. blake2b with 128 bits makes a
chance collision out of reach. Only full blocks are hashed: a prefix shorter than a block never
hits.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b

from minipaged.memory.block_pool import BlockPool

ROOT = ""


def hash_block(parent_hash: str, token_ids: Sequence[int]) -> str:
    """Give the hash (32 hex digits) of a full block whose predecessor has `parent_hash`.

    >>> first = hash_block(ROOT, [1, 2])
    >>> hash_block(first, [1, 2]) == first, len(first)
    (False, 32)
    """
    content = struct.pack(f"<{len(token_ids)}q", *token_ids)
    return blake2b(bytes.fromhex(parent_hash) + content, digest_size=16).hexdigest()


def prefix_hashes(token_ids: Sequence[int], block_size: int, parent: str = ROOT) -> Iterator[str]:
    """Yield the chained hash of each full block of `token_ids`, which follow block `parent`."""
    for start in range(0, len(token_ids) - block_size + 1, block_size):
        parent = hash_block(parent, token_ids[start : start + block_size])
        yield parent


class PrefixCache:
    """Longest-prefix lookup over the blocks that a pool knows by hash."""

    def __init__(self, pool: BlockPool, block_size: int) -> None:
        self._pool = pool
        self._block_size = block_size

    def longest_hit(self, token_ids: Sequence[int]) -> list[tuple[int, str]]:
        """Give (block, hash) of the longest run of known blocks that `token_ids` begins with.

        At least one token is always left to compute, as the model must run once to give a next
        token: a prompt of exactly two blocks hits one at most.
        """
        hits = []
        for content_hash in prefix_hashes(token_ids[:-1], self._block_size):
            block = self._pool.find(content_hash)
            if block is None:
                break
            hits.append((block, content_hash))
        return hits
