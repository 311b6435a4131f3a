"""Logical to physical: which block holds which tokens of one sequence.

A sequence sees its KV cache as one row of positions 0, 1, 2, ... The table cuts that row into
blocks of `block_size` tokens and names the physical block for each, as a page table does for pages.
A *slot* is one token's place in the whole cache: `slot = block_id * block_size + offset`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


def blocks_for(num_tokens: int, block_size: int) -> int:
    """Give how many blocks `num_tokens` tokens fill, the last one perhaps in part.

    When is a new block needed? A token is sampled first; its KV is written when it is fed to the
    model in the next step. The block must exist at that write and not before: with 4 tokens a
    block, feeding the 4th token (position 3) still fits, the 5th (position 4) opens block 1.

    >>> [blocks_for(n, block_size=4) for n in (0, 1, 4, 5, 8, 9)]
    [0, 1, 1, 2, 2, 3]
    """
    return -(-num_tokens // block_size)


def blocks_at_most(
    num_prompt_tokens: int, max_tokens: int, num_sequences: int, block_size: int
) -> int:
    """Give the most blocks that a request can ever hold: if every sample runs to its end.

    The full blocks of the prompt are shared by all `num_sequences` samples; each has its own for
    the rest. The last token is sampled but never fed back, so it needs no slot.

    >>> blocks_at_most(num_prompt_tokens=6, max_tokens=7, num_sequences=3, block_size=4)
    7
    """
    shared = num_prompt_tokens // block_size
    each = blocks_for(num_prompt_tokens + max(max_tokens, 1) - 1, block_size) - shared
    return shared + num_sequences * each


def slot_mapping(block_ids: Sequence[int], start: int, stop: int, block_size: int) -> list[int]:
    """Give the physical slot of every position in `[start, stop)`.

    >>> slot_mapping([7, 2], start=2, stop=6, block_size=4)
    [30, 31, 8, 9]

    Raises:
        ValueError: A position has no block; nothing wraps around to the last one.
    """
    if not 0 <= start <= stop <= len(block_ids) * block_size:
        raise ValueError(f"positions {start} to {stop} do not lie in {len(block_ids)} blocks")
    return [
        block_ids[position // block_size] * block_size + position % block_size
        for position in range(start, stop)
    ]


@dataclass(slots=True)
class BlockTable:
    """The blocks of one sequence and how many tokens in them have their KV.

    Blocks may be reserved ahead: `num_tokens <= len(block_ids) * block_size`. `tail` keeps the ids
    of the tokens in the last block that is not full yet, `hashes` the chained hash of each full
    one, of which the first `num_published` were offered to the prefix cache.
    """

    block_ids: list[int] = field(default_factory=list)
    num_tokens: int = 0
    tail: list[int] = field(default_factory=list)
    hashes: list[str] = field(default_factory=list)
    num_published: int = 0

    def written_blocks(self, block_size: int) -> list[int]:
        """Give the blocks that hold at least one computed token."""
        return self.block_ids[: blocks_for(self.num_tokens, block_size)]

    def forked(self, block_size: int) -> BlockTable:
        """Give a copy for a child. Blocks reserved but not written yet stay the parent's alone."""
        return BlockTable(
            self.written_blocks(block_size),
            self.num_tokens,
            self.tail.copy(),
            self.hashes.copy(),
            self.num_published,
        )
