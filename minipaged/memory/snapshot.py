"""The state of memory at one moment, as a plain value.

The manager, a replayed trace and `LLM.memory()` all give this type, so they can be compared with
`==`. The order of the free list is not part of it: an `alloc` event names its block.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class MemorySnapshot:
    """Reference counts, hashes and tables; swap pool included.

    Sequences that hold no block are left out. `num_tokens` counts the tokens of a sequence whose KV
    exists, in the pool or in the swap pool.
    """

    block_size: int
    ref_counts: tuple[int, ...]
    hashes: dict[int, str] = field(default_factory=dict)
    tables: dict[int, tuple[int, ...]] = field(default_factory=dict)
    num_tokens: dict[int, int] = field(default_factory=dict)
    swap_ref_counts: tuple[int, ...] = ()
    swap_tables: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool."""
        return len(self.ref_counts)

    @property
    def num_used(self) -> int:
        """Blocks with at least one reference."""
        return self.num_blocks - self.ref_counts.count(0)

    @property
    def num_shared(self) -> int:
        """Blocks with two references or more."""
        return sum(count > 1 for count in self.ref_counts)

    @property
    def num_cached(self) -> int:
        """Free blocks that still hold a findable prefix."""
        return sum(self.ref_counts[block] == 0 for block in self.hashes)

    @property
    def num_free(self) -> int:
        """Blocks without a reference, cached ones included."""
        return self.ref_counts.count(0)

    @property
    def num_blocks_saved(self) -> int:
        """Blocks that sharing saves: references beyond the first of each block."""
        return sum(count - 1 for count in self.ref_counts if count > 1)

    @property
    def num_empty_slots(self) -> int:
        """Slots in used blocks that hold no token yet: reserved for later, or wasted in the end."""
        filled: dict[int, int] = {}
        for seq, table in self.tables.items():
            for index, block in enumerate(table):
                tokens = min(
                    max(self.num_tokens[seq] - index * self.block_size, 0), self.block_size
                )
                filled[block] = max(filled.get(block, 0), tokens)
        return len(filled) * self.block_size - sum(filled.values())
