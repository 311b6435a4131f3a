"""What the scheduler asks of whoever manages memory: paged or contiguous, it makes no difference.

`KVCacheManager` explains each of these; `ContiguousManager` answers the same questions for slabs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from typing import Protocol

from minipaged.memory.kv_cache_manager import AllocStatus, BlockMove
from minipaged.memory.snapshot import MemorySnapshot


class Pool(Protocol):
    """A fixed number of blocks, each with a count of who holds it."""

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool."""
        ...

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds."""
        ...

    @property
    def ref_count(self) -> MutableSequence[int]:
        """Holders of each block."""
        ...

    @property
    def hash_of(self) -> dict[int, str]:
        """Hashes of the blocks whose content can be found."""
        ...

    def find(self, content_hash: str) -> int | None:
        """Give the block with this content."""
        ...

    def free_order(self) -> list[int]:
        """Give the free blocks."""
        ...


class MemoryManager(Protocol):
    """Blocks for sequences; every operation does all of its work, or raises and changes nothing."""

    @property
    def block_size(self) -> int:
        """Tokens in a block."""
        ...

    @property
    def pool(self) -> Pool:
        """The blocks."""
        ...

    @property
    def swap_pool(self) -> Pool:
        """The blocks to swap to."""
        ...

    def can_allocate(
        self, token_ids: Sequence[int], *, at_most: int = 0, extra: int = 0
    ) -> AllocStatus:
        """Tell whether the request that is next may start."""
        ...

    def count_cached_tokens(self, token_ids: Sequence[int]) -> int:
        """Give how many leading tokens have their KV already."""
        ...

    def allocate(self, seq: int, token_ids: Sequence[int]) -> int:
        """Give a new sequence room for its prompt."""
        ...

    def append_slots(self, seq: int, num_new_tokens: int = 1) -> list[BlockMove]:
        """Make room for the next tokens; the moves must run before they are written."""
        ...

    def blocks_to_append(self, growth: Mapping[int, int]) -> int:
        """Give how many free blocks it takes to append `growth[seq]` tokens to each sequence."""
        ...

    def commit(self, chunks: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Note that the KV of these tokens exists now."""
        ...

    def fork(self, parent: int, child: int) -> None:
        """Start `child` with what `parent` has."""
        ...

    def free(self, seq: int, why: str = "finished") -> None:
        """Give everything of a sequence back."""
        ...

    def can_swap_out(self, seqs: Iterable[int]) -> bool:
        """Tell whether the swap pool has room for these sequences."""
        ...

    def swap_out(self, seqs: Sequence[int]) -> list[BlockMove]:
        """Move the sequences of one request to the swap pool."""
        ...

    def blocks_to_swap_in(self, seqs: Iterable[int]) -> int:
        """Give how many free blocks it takes to bring these sequences back."""
        ...

    def swap_in(self, seqs: Sequence[int]) -> list[BlockMove]:
        """Bring the sequences of one request back."""
        ...

    def block_table(self, seq: int) -> list[int]:
        """Give the blocks of a running sequence, in logical order."""
        ...

    def num_tokens(self, seq: int) -> int:
        """Give how many tokens of a running sequence have their KV."""
        ...

    def slot_mapping(self, seq: int, start: int, stop: int) -> list[int]:
        """Give the slots of the positions `[start, stop)` of a running sequence."""
        ...

    def has(self, seq: int) -> bool:
        """Tell whether a sequence holds blocks."""
        ...

    def snapshot(self) -> MemorySnapshot:
        """Give the state as a value."""
        ...
