"""What a sequence may do with memory: allocate, append, fork, free, swap.

The manager owns the block tables; a sequence is an integer here. Every operation is atomic: it does
all of its work, or raises and changes nothing. Nothing here touches a tensor: block copies and
swaps come back as pairs of block ids, for whoever holds the data.
"""

from __future__ import annotations

import enum
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from minipaged.errors import ConfigError, OutOfBlocksError
from minipaged.memory.block_pool import BlockPool
from minipaged.memory.block_table import BlockTable, blocks_for, slot_mapping
from minipaged.memory.events import (
    BlockAllocated,
    BlockCopied,
    BlockPublished,
    BlockShared,
    Event,
    Forked,
    Observer,
    Prefilled,
    PrefixHit,
    Released,
    SwappedIn,
    SwappedOut,
    Written,
    ignore,
)
from minipaged.memory.prefix_cache import ROOT, PrefixCache, prefix_hashes
from minipaged.memory.snapshot import MemorySnapshot


class AllocStatus(enum.Enum):
    """May a prompt have its blocks? Now, once others are done, or never in this pool."""

    OK = enum.auto()
    LATER = enum.auto()
    NEVER = enum.auto()


class BlockMove(NamedTuple):
    """The content of `source` belongs into `target` before anything new is written."""

    source: int
    target: int


class KVCacheManager:
    """Block tables over one pool of blocks, and a second pool to swap to.

    >>> manager = KVCacheManager(num_blocks=8, block_size=4)
    >>> manager.allocate(0, [11, 12, 13, 14, 15])  # five tokens: two blocks, no cached token
    0
    >>> manager.commit([(0, [11, 12, 13, 14, 15])])  # the model ran: their KV exists
    >>> manager.fork(0, 1)
    >>> manager.append_slots(1)  # block 1 is half full and shared: copy-on-write
    [BlockMove(source=1, target=2)]
    >>> manager.block_table(0), manager.block_table(1)
    ([0, 1], [0, 2])
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        num_swap_blocks: int = 0,
        enable_prefix_caching: bool = True,
        notify: Observer = ignore,
        token_text: Callable[[int], str] = str,
    ) -> None:
        if block_size < 1:
            raise ConfigError(f"block_size must be at least 1 token, not {block_size}")
        if num_blocks < 1:
            raise ConfigError(f"num_blocks must be at least 1, not {num_blocks}")
        self.block_size = block_size
        self.pool = BlockPool(num_blocks, notify)
        self.swap_pool = BlockPool(num_swap_blocks)
        self.enable_prefix_caching = enable_prefix_caching
        self._prefix_cache = PrefixCache(self.pool, block_size)
        self._tables: dict[int, BlockTable] = {}
        self._swapped: dict[int, BlockTable] = {}
        self._notify = notify
        self._token_text = token_text

    # --- a prompt arrives ---------------------------------------------------------------------

    def can_allocate(
        self, token_ids: Sequence[int], *, at_most: int = 0, extra: int = 0
    ) -> AllocStatus:
        """Tell whether `allocate` would succeed with `extra` blocks left over.

        `at_most` is the most blocks that the whole request can ever hold (see `blocks_at_most`).

        Raises:
            ValueError: There is no token.
        """
        if not token_ids:
            raise ValueError("a prompt needs at least one token")
        if max(at_most, blocks_for(len(token_ids), self.block_size)) > self.pool.num_blocks:
            return AllocStatus.NEVER
        hits = self._hits(token_ids)
        return AllocStatus.OK if self._lacks(token_ids, hits, extra) <= 0 else AllocStatus.LATER

    def count_cached_tokens(self, token_ids: Sequence[int]) -> int:
        """Give how many leading tokens have their KV already, in blocks that can be shared."""
        return len(self._hits(token_ids)) * self.block_size

    def allocate(self, seq: int, token_ids: Sequence[int]) -> int:
        """Give a new sequence the blocks of its prompt; known prefix blocks are shared.

        Returns:
            How many of the tokens have their KV already (tokens, a multiple of the block size).

        Raises:
            OutOfBlocksError: Too few blocks are free; `can_allocate` tells in advance.
            ValueError: The sequence has blocks already, or there is no token.
        """
        if not token_ids or seq in self._tables or seq in self._swapped:
            raise ValueError(f"seq {seq} needs at least one token and must not have blocks already")
        hits = self._hits(token_ids)
        if self._lacks(token_ids, hits) > 0:
            needed = blocks_for(len(token_ids), self.block_size) - len(hits)
            raise OutOfBlocksError(self._too_few(seq, needed))
        table = self._tables[seq] = BlockTable()
        if hits:
            self._take_hits(seq, table, hits)
        self._grow(seq, table, len(token_ids), "prompt")
        return table.num_tokens

    # --- a sequence grows ---------------------------------------------------------------------

    def append_slots(self, seq: int, num_new_tokens: int = 1) -> list[BlockMove]:
        """Make sure that the next `num_new_tokens` positions can be written by this sequence alone.

        Takes as many new blocks as that needs. If the block of the first position is shared, the
        sequence gets a copy of its own: the returned move must run before the write.

        Raises:
            OutOfBlocksError: Too few blocks are free.
            ValueError: The sequence is not running, or there is no new token.
        """
        table = self._table(seq)
        num_new_blocks = self._num_new_blocks(table, num_new_tokens)
        source = self._shared_block(table)
        needed = num_new_blocks + (source is not None)
        if needed == 0:
            return []
        if needed > self.pool.num_free:
            raise OutOfBlocksError(self._too_few(seq, needed))
        moves = [] if source is None else [self._copy_on_write(seq, table, source)]
        if num_new_blocks:
            self._grow(seq, table, table.num_tokens + num_new_tokens, "append")
        return moves

    def blocks_to_append(self, growth: Mapping[int, int]) -> int:
        """Give how many free blocks it takes to append `growth[seq]` tokens to each sequence.

        Of n sequences that share a block and all write to it, the last one needs no copy.
        """
        needed = 0
        leaving: Counter[int] = Counter()
        for seq, num_new_tokens in growth.items():
            table = self._table(seq)
            needed += self._num_new_blocks(table, num_new_tokens)
            source = self._shared_block(table)
            if source is not None and self.pool.ref_count[source] - leaving[source] > 1:
                leaving[source] += 1
                needed += 1
        return needed

    def commit(self, chunks: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Note that the KV of these tokens exists now, and publish the blocks that this filled.

        Args:
            chunks: (sequence, token ids) for each sequence of a step. `allocate` or `append_slots`
                made room for them.

        Raises:
            ValueError: A sequence stands there twice, has no token or more than its slots, or would
                write to a block that others hold as well; or a token id is no 64-bit integer.
        """
        self._check_chunks(chunks)
        events = self._write_events(chunks)  # before any change: a token's text may be unknown
        for seq, token_ids in chunks:
            self._write(self._tables[seq], token_ids)
        for event in events:
            self._notify(event)
        for seq, _ in chunks:
            self._publish(self._tables[seq])

    # --- sequences part and end ---------------------------------------------------------------

    def fork(self, parent: int, child: int) -> None:
        """Start `child` with the blocks of `parent`; who writes to a shared one gets a copy.

        On a block boundary nobody ever does: the next token opens a new block, and nothing is
        copied.

        Raises:
            ValueError: The parent is not running, or the child has blocks already.
        """
        table = self._table(parent)
        if child in self._tables or child in self._swapped:
            raise ValueError(f"seq {child} exists already")
        copy = self._tables[child] = table.forked(self.block_size)
        self._notify(Forked(parent, child))
        for index, block in enumerate(copy.block_ids):
            self.pool.share(block)
            self._notify(BlockShared(child, index, block))

    def free(self, seq: int, why: str = "finished") -> None:
        """Give every block of a sequence back, running or swapped out, tail first.

        Raises:
            ValueError: The sequence has no blocks.
        """
        tables, pool = (
            (self._swapped, self.swap_pool) if seq in self._swapped else (self._tables, self.pool)
        )
        if seq not in tables:
            raise ValueError(f"seq {seq} has no blocks")
        blocks = tables[seq].block_ids[::-1]
        pool.release(blocks)
        del tables[seq]
        if blocks:
            self._notify(Released(seq, tuple(blocks), why))

    # --- moving out and back ------------------------------------------------------------------

    def can_swap_out(self, seqs: Iterable[int]) -> bool:
        """Tell whether the swap pool has room for the written blocks of these sequences."""
        return len(self._written_blocks(seqs)) <= self.swap_pool.num_free

    def swap_out(self, seqs: Sequence[int]) -> list[BlockMove]:
        """Move the sequences of one request to the swap pool, each distinct block once.

        Their sharing is kept there. Blocks that others use stay theirs; hashes stay behind, so the
        content can still be found until it is evicted.

        Returns:
            Moves (block, swap block) to run before anything else in this step.

        Raises:
            OutOfBlocksError: The swap pool is too small.
            ValueError: A sequence is not running, or named twice.
        """
        _check_distinct(seqs)
        blocks = self._written_blocks(seqs)
        if len(blocks) > self.swap_pool.num_free:
            raise OutOfBlocksError(
                f"need {len(blocks)} swap blocks, "
                f"{self.swap_pool.num_free} of {self.swap_pool.num_blocks} free"
            )
        swap_block_of = {block: self.swap_pool.allocate(for_seq=seqs[0]) for block in blocks}
        seen: set[int] = set()
        for seq in seqs:
            self._release_unwritten(seq)
            table = self._swapped[seq] = self._tables.pop(seq)
            moves = tuple((block, swap_block_of[block]) for block in table.block_ids)
            for block, swap_block in moves:
                if block in seen:
                    self.swap_pool.share(swap_block)
                seen.add(block)
            self.pool.release(table.block_ids[::-1])
            table.block_ids = [swap_block for _, swap_block in moves]
            self._notify(SwappedOut(seq, moves))
        return [BlockMove(block, swap_block) for block, swap_block in swap_block_of.items()]

    def blocks_to_swap_in(self, seqs: Iterable[int]) -> int:
        """Give how many free blocks it takes to bring these sequences back."""
        return len(dict.fromkeys(b for seq in seqs for b in self._swapped_table(seq).block_ids))

    def swap_in(self, seqs: Sequence[int]) -> list[BlockMove]:
        """Bring the sequences of one request back into blocks of their own, sharing kept.

        Returns:
            Moves (swap block, block) to run before anything else in this step.

        Raises:
            OutOfBlocksError: Too few blocks are free.
            ValueError: A sequence is not swapped out, or named twice.
        """
        _check_distinct(seqs)
        needed = self.blocks_to_swap_in(seqs)
        if needed > self.pool.num_free:
            raise OutOfBlocksError(self._too_few(seqs[0], needed))
        block_of: dict[int, int] = {}
        for seq in seqs:
            table = self._tables[seq] = self._swapped.pop(seq)
            for swap_block in table.block_ids:
                if swap_block in block_of:
                    self.pool.share(block_of[swap_block])
                else:
                    block_of[swap_block] = self.pool.allocate(for_seq=seq)
            self.swap_pool.release(table.block_ids[::-1])
            moves = tuple((swap_block, block_of[swap_block]) for swap_block in table.block_ids)
            table.block_ids = [block for _, block in moves]
            table.num_published = 0  # offered again at the next commit: the old block may be gone
            self._notify(SwappedIn(seq, moves))
        return [BlockMove(swap_block, block) for swap_block, block in block_of.items()]

    # --- looking ------------------------------------------------------------------------------

    def block_table(self, seq: int) -> list[int]:
        """Give the physical blocks of a running sequence, in logical order."""
        return list(self._table(seq).block_ids)

    def num_tokens(self, seq: int) -> int:
        """Give how many tokens of a running sequence have their KV."""
        return self._table(seq).num_tokens

    def slot_mapping(self, seq: int, start: int, stop: int) -> list[int]:
        """Give the physical slots of the positions `[start, stop)` of a running sequence."""
        return slot_mapping(self._table(seq).block_ids, start, stop, self.block_size)

    def has(self, seq: int) -> bool:
        """Tell whether a sequence holds blocks, here or in the swap pool."""
        return seq in self._tables or seq in self._swapped

    def snapshot(self) -> MemorySnapshot:
        """Give the state of both pools as a value that no later change touches."""
        everyone = self._tables | self._swapped
        return MemorySnapshot(
            block_size=self.block_size,
            ref_counts=tuple(self.pool.ref_count),
            hashes=dict(self.pool.hash_of),
            tables={s: tuple(t.block_ids) for s, t in self._tables.items() if t.block_ids},
            num_tokens={s: t.num_tokens for s, t in everyone.items() if t.block_ids},
            swap_ref_counts=tuple(self.swap_pool.ref_count),
            swap_tables={s: tuple(t.block_ids) for s, t in self._swapped.items() if t.block_ids},
        )

    # --- inside -------------------------------------------------------------------------------

    def _table(self, seq: int) -> BlockTable:
        try:
            return self._tables[seq]
        except KeyError:
            state = "is swapped out" if seq in self._swapped else "has no blocks"
            raise ValueError(f"seq {seq} {state}") from None

    def _swapped_table(self, seq: int) -> BlockTable:
        if seq not in self._swapped:
            raise ValueError(f"seq {seq} is not swapped out")
        return self._swapped[seq]

    def _too_few(self, seq: int, needed: int) -> str:
        pool = self.pool
        return f"seq {seq}: need {needed} blocks, {pool.num_free} of {pool.num_blocks} free"

    def _hits(self, token_ids: Sequence[int]) -> list[tuple[int, str]]:
        return self._prefix_cache.longest_hit(token_ids) if self.enable_prefix_caching else []

    def _lacks(
        self, token_ids: Sequence[int], hits: Sequence[tuple[int, str]], extra: int = 0
    ) -> int:
        """Give by how many blocks the pool is too small; hits leave the free list as well."""
        free_hits = sum(self.pool.ref_count[block] == 0 for block, _ in hits)
        needed = blocks_for(len(token_ids), self.block_size) - len(hits) + extra
        return needed - (self.pool.num_free - free_hits)

    def _take_hits(self, seq: int, table: BlockTable, hits: Sequence[tuple[int, str]]) -> None:
        for block, _ in hits:
            self.pool.share(block)
        table.block_ids = [block for block, _ in hits]
        table.hashes = [content_hash for _, content_hash in hits]
        table.num_published = len(hits)
        table.num_tokens = len(hits) * self.block_size
        self._notify(PrefixHit(seq, 0, tuple(table.block_ids)))

    def _grow(self, seq: int, table: BlockTable, num_tokens: int, why: str) -> None:
        for index in range(len(table.block_ids), blocks_for(num_tokens, self.block_size)):
            block = self.pool.allocate(for_seq=seq)
            table.block_ids.append(block)
            self._notify(BlockAllocated(seq, index, block, why))

    def _num_new_blocks(self, table: BlockTable, num_new_tokens: int) -> int:
        if num_new_tokens < 1:
            raise ValueError(f"a sequence grows by at least 1 token, not {num_new_tokens}")
        num_tokens = table.num_tokens + num_new_tokens
        return max(0, blocks_for(num_tokens, self.block_size) - len(table.block_ids))

    def _shared_block(self, table: BlockTable) -> int | None:
        """Give the block that the next token would be written to, if others hold it as well."""
        if table.num_tokens % self.block_size == 0:
            return None
        block = table.block_ids[table.num_tokens // self.block_size]
        return block if self.pool.ref_count[block] > 1 else None

    def _copy_on_write(self, seq: int, table: BlockTable, source: int) -> BlockMove:
        index = table.num_tokens // self.block_size
        why = f"copy-on-write: block {source} is shared by {self.pool.ref_count[source]}"
        target = self.pool.allocate(for_seq=seq)
        self.pool.release([source])
        table.block_ids[index] = target
        self._notify(BlockCopied(seq, index, source, target, why))
        return BlockMove(source, target)

    def _check_chunks(self, chunks: Sequence[tuple[int, Sequence[int]]]) -> None:
        _check_distinct([seq for seq, _ in chunks])
        for seq, token_ids in chunks:
            table = self._table(seq)
            room = len(table.block_ids) * self.block_size - table.num_tokens
            if not 0 < len(token_ids) <= room or self._shared_block(table) is not None:
                raise ValueError(f"seq {seq}: no slots of its own for {len(token_ids)} tokens")

    def _write_events(self, chunks: Sequence[tuple[int, Sequence[int]]]) -> list[Event]:
        """Give what a step writes: an event for each run of tokens, one for all single tokens."""
        events: list[Event] = [
            Prefilled(seq, self._tables[seq].num_tokens, *self._tokens_and_texts(token_ids))
            for seq, token_ids in chunks
            if len(token_ids) > 1
        ]
        single = [(seq, token_ids[0]) for seq, token_ids in chunks if len(token_ids) == 1]
        if single:
            seqs, token_ids = zip(*single, strict=True)
            events.append(Written(seqs, *self._tokens_and_texts(token_ids)))
        return events

    def _tokens_and_texts(
        self, token_ids: Sequence[int]
    ) -> tuple[tuple[int, ...], tuple[str, ...]]:
        try:
            tokens = tuple(array("q", token_ids))
        except (TypeError, OverflowError) as e:
            raise ValueError(f"a token id must be a 64-bit integer: {e}") from e
        return tokens, tuple(map(self._token_text, tokens))

    def _write(self, table: BlockTable, token_ids: Sequence[int]) -> None:
        table.num_tokens += len(token_ids)
        table.tail.extend(token_ids)
        if len(table.tail) < self.block_size:
            return
        full = len(table.tail) // self.block_size * self.block_size
        if self.enable_prefix_caching:
            parent = table.hashes[-1] if table.hashes else ROOT
            table.hashes.extend(prefix_hashes(table.tail[:full], self.block_size, parent))
        del table.tail[:full]

    def _publish(self, table: BlockTable) -> None:
        for index in range(table.num_published, len(table.hashes)):
            block, content_hash = table.block_ids[index], table.hashes[index]
            if self.pool.publish(block, content_hash):
                parent = table.hashes[index - 1] if index else ROOT
                self._notify(BlockPublished(block, content_hash, parent))
        table.num_published = len(table.hashes)

    def _written_blocks(self, seqs: Iterable[int]) -> list[int]:
        """Give the distinct written blocks of these sequences, in order of first appearance."""
        tables = [self._table(seq) for seq in seqs]
        return list(
            dict.fromkeys(b for table in tables for b in table.written_blocks(self.block_size))
        )

    def _release_unwritten(self, seq: int) -> None:
        table = self._tables[seq]
        written = table.written_blocks(self.block_size)
        unwritten = table.block_ids[len(written) :][::-1]
        if unwritten:
            self.pool.release(unwritten)
            table.block_ids = written
            self._notify(Released(seq, tuple(unwritten), "reserved, not written"))


def _check_distinct(seqs: Sequence[int]) -> None:
    if len(set(seqs)) != len(seqs):
        twice = next(seq for seq, times in Counter(seqs).items() if times > 1)
        raise ValueError(f"seq {twice} is named twice")
