"""What paging replaced: one contiguous slab for each sequence, reserved before it starts.

`ContiguousManager` has the methods of `KVCacheManager`, so the scheduler, a trace and every view
work on it unchanged. A slab comes from a buddy allocator, is as long as a policy says, holds one
sequence alone and stays until that ends. So nobody is preempted, nothing is shared and nothing is
cached: n samples are n slabs, all taken when the request starts, and a fork copies the prompt.

How a policy learns the lengths: whoever adds a request to the scheduler calls `announce` with its
sequences, its prompt and the number of tokens that it will generate. Requests start first come,
first served, so the next to start is always the first that was announced and holds no slab. A
policy that needs no lengths (Max) works without announcements, for requests of one sequence.

The unit is a block. With `block_size=1` it is a slot, which is how the paper counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from minipaged.errors import ConfigError, OutOfBlocksError, RequestRefusedError
from minipaged.memory.block_pool import BlockPool
from minipaged.memory.block_table import blocks_for, slot_mapping
from minipaged.memory.buddy import BuddyPool
from minipaged.memory.events import (
    Event,
    Forked,
    Observer,
    Prefilled,
    Released,
    SlabReserved,
    Written,
    ignore,
)
from minipaged.memory.kv_cache_manager import AllocStatus, BlockMove
from minipaged.memory.reservation import ReservationPolicy
from minipaged.memory.snapshot import MemorySnapshot


@dataclass(slots=True)
class Slab:
    """The blocks of one sequence, the tokens that it reserved, and those that have their KV."""

    blocks: range
    num_reserved: int
    token_ids: list[int] = field(default_factory=list)


class _Group(NamedTuple):
    """A request that was announced: its sequences, and the tokens that each reserves."""

    seqs: tuple[int, ...]
    num_reserved: int


class ContiguousManager:
    """One slab a sequence, in a pool that a buddy allocator divides.

    >>> from minipaged.memory.reservation import ReserveMax
    >>> manager = ContiguousManager(num_blocks=16, block_size=1, policy=ReserveMax(8))
    >>> manager.allocate(0, [11, 12, 13])  # three tokens, and a slab for eight
    0
    >>> manager.block_table(0), manager.pool.num_free
    ([0, 1, 2, 3, 4, 5, 6, 7], 8)
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        policy: ReservationPolicy,
        *,
        notify: Observer = ignore,
        token_text: Callable[[int], str] = str,
    ) -> None:
        if block_size < 1:
            raise ConfigError(f"block_size must be at least 1 token, not {block_size}")
        self.block_size = block_size
        self.policy = policy
        self.pool = BuddyPool(num_blocks)
        self.swap_pool = BlockPool(0)
        self._slabs: dict[int, Slab] = {}
        self._announced: dict[tuple[int, ...], _Group] = {}
        self._copies: list[BlockMove] = []
        self._notify = notify
        self._token_text = token_text

    @property
    def allocator(self) -> str:
        """What a trace's header calls this allocator."""
        return self.policy.name

    # --- a request is announced -----------------------------------------------------------------

    def announce(
        self, seqs: Sequence[int], num_prompt_tokens: int, num_new_tokens: int | None = None
    ) -> None:
        """Tell the lengths of a request, in order of arrival, before it can start.

        Args:
            seqs: All its sequences, n for n samples. Each will have a slab of its own.
            num_prompt_tokens: Tokens of the prompt.
            num_new_tokens: Tokens that each sequence will generate; None where nobody knows.

        Raises:
            RequestRefusedError: An empty pool could not hold its slabs. Nothing is announced.
            ConfigError: The policy can't do without `num_new_tokens`.
            ValueError: There is no sequence, or one is named twice or known already.
        """
        known = {seq for group in self._announced for seq in group} | self._slabs.keys()
        if not seqs or len(set(seqs)) < len(seqs) or not known.isdisjoint(seqs):
            raise ValueError(f"seqs {tuple(seqs)} must be new ones, each named once")
        group = _Group(tuple(seqs), self.policy.reserve(num_prompt_tokens, num_new_tokens))
        size, most = self._num_blocks(group), self.pool.most_slabs(self._num_blocks(group))
        if len(seqs) > most:
            raise RequestRefusedError(
                f"needs {len(seqs)} slabs of {size} blocks, the pool has room for {most}: "
                f"{group.num_reserved} tokens reserved, {self.block_size} tokens a block"
            )
        self._announced[group.seqs] = group

    def withdraw(self, seq: int) -> None:
        """Forget a request that was announced and will not start; nothing else to do for others."""
        for seqs in [seqs for seqs in self._announced if seq in seqs]:
            del self._announced[seqs]

    # --- a prompt arrives -----------------------------------------------------------------------

    def can_allocate(
        self, token_ids: Sequence[int], *, at_most: int = 0, extra: int = 0
    ) -> AllocStatus:
        """Tell whether every slab of the request that is next could be taken now.

        A slab has all the room that its sequence will ever need: `at_most` and `extra` ask for
        nothing more.

        Raises:
            ValueError: There is no token.
        """
        if not token_ids:
            raise ValueError("a prompt needs at least one token")
        group = next(iter(self._announced.values()), None) or self._unannounced(0, token_ids)
        size = self._num_blocks(group)
        if len(group.seqs) > self.pool.most_slabs(size):
            return AllocStatus.NEVER
        fits = len(group.seqs) <= self.pool.count_slabs(size)
        return AllocStatus.OK if fits else AllocStatus.LATER

    def count_cached_tokens(self, token_ids: Sequence[int]) -> int:
        """Give how many leading tokens have their KV already: none."""
        return 0

    def allocate(self, seq: int, token_ids: Sequence[int]) -> int:
        """Give a new sequence its slab, and its siblings theirs: they exist from now on, empty.

        Returns:
            How many of the tokens have their KV already: none.

        Raises:
            OutOfBlocksError: Too few slabs are free; `can_allocate` tells in advance.
            ValueError: A sequence has a slab already, or there is no token.
        """
        announced = next((g for g in self._announced.values() if seq in g.seqs), None)
        group = announced or self._unannounced(seq, token_ids)
        if not token_ids or any(s in self._slabs for s in group.seqs):
            raise ValueError(f"seq {seq} needs at least one token and must not have blocks already")
        size = self._num_blocks(group)
        if len(group.seqs) > self.pool.count_slabs(size):
            raise OutOfBlocksError(
                f"seq {seq}: need {len(group.seqs)} x {size} blocks in a row, "
                f"{self.pool.num_free} of {self.pool.num_blocks} free"
            )
        self._announced.pop(group.seqs, None)
        for sibling in sorted(group.seqs, key=seq.__ne__):
            self._reserve(sibling, seq, group.num_reserved)
        return 0

    # --- a sequence grows -----------------------------------------------------------------------

    def append_slots(self, seq: int, num_new_tokens: int = 1) -> list[BlockMove]:
        """Make sure that the next `num_new_tokens` positions lie in the slab.

        Returns:
            Copies that forks left to do, of this sequence and of others: they must run before
            anything is written.

        Raises:
            OutOfBlocksError: The sequence outgrows what it reserved.
            ValueError: The sequence has no slab, or there is no new token.
        """
        self._check_room(seq, num_new_tokens)
        copies, self._copies = self._copies, []
        return copies

    def blocks_to_append(self, growth: Mapping[int, int]) -> int:
        """Give how many free blocks it takes to append to these sequences: none, ever.

        Raises:
            OutOfBlocksError: A sequence outgrows what it reserved.
            ValueError: A sequence has no slab, or there is no new token.
        """
        for seq, num_new_tokens in growth.items():
            self._check_room(seq, num_new_tokens)
        return 0

    def commit(self, chunks: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Note that the KV of these tokens exists now.

        Raises:
            ValueError: A sequence stands there twice, or has no token or no slab.
            OutOfBlocksError: A sequence outgrows what it reserved.
        """
        twice = [seq for seq, times in Counter(seq for seq, _ in chunks).items() if times > 1]
        if twice:
            raise ValueError(f"seq {twice[0]} is named twice")
        for seq, token_ids in chunks:
            self._check_room(seq, len(token_ids))
        events = self._write_events(chunks)
        for seq, token_ids in chunks:
            self._slabs[seq].token_ids.extend(token_ids)
        for event in events:
            self._notify(event)

    # --- sequences part and end -----------------------------------------------------------------

    def fork(self, parent: int, child: int) -> None:
        """Copy what `parent` has into the slab that `child` got when the request started.

        The blocks to copy come with the next `append_slots`, whoever asks.

        Raises:
            ValueError: The child has no slab, or has tokens already. Beams are born in the middle
                of a search, when there may be no slab left: they can't run here.
        """
        source = self._slab(parent)
        target = self._slabs.get(child)
        if target is None or target.token_ids or source.num_reserved != target.num_reserved:
            raise ValueError(
                f"seq {child} has no empty slab: one for each sample must be announced, "
                "and beams can't run on contiguous memory"
            )
        target.token_ids = source.token_ids.copy()
        written = blocks_for(len(source.token_ids), self.block_size)
        origin = {move.target: move.source for move in self._copies}  # all copies run at once
        self._copies += [
            BlockMove(origin.get(block, block), to)
            for block, to in zip(source.blocks[:written], target.blocks[:written], strict=True)
        ]
        self._notify(Prefilled(child, 0, *self._texts(target.token_ids)))

    def free(self, seq: int, why: str = "finished") -> None:
        """Give the slab of a sequence back.

        Raises:
            ValueError: The sequence has none.
        """
        blocks = self._slab(seq).blocks
        self._copies = [move for move in self._copies if move.target not in blocks]
        self.pool.release(blocks[0])
        del self._slabs[seq]
        self._notify(Released(seq, tuple(reversed(blocks)), why))

    # --- nothing moves out ----------------------------------------------------------------------

    def can_swap_out(self, seqs: Iterable[int]) -> bool:
        """Tell whether these sequences can be moved to the swap pool: there is none."""
        return False

    def swap_out(self, seqs: Sequence[int]) -> list[BlockMove]:
        """Raise OutOfBlocksError: there is no swap pool."""
        raise OutOfBlocksError("contiguous memory has no swap blocks")

    def blocks_to_swap_in(self, seqs: Iterable[int]) -> int:
        """Raise ValueError: no sequence is ever swapped out."""
        raise ValueError("contiguous memory has no swap blocks")

    def swap_in(self, seqs: Sequence[int]) -> list[BlockMove]:
        """Raise ValueError: no sequence is ever swapped out."""
        raise ValueError("contiguous memory has no swap blocks")

    # --- looking --------------------------------------------------------------------------------

    def block_table(self, seq: int) -> list[int]:
        """Give the blocks of a sequence, in logical order: neighbours."""
        return list(self._slab(seq).blocks)

    def num_tokens(self, seq: int) -> int:
        """Give how many tokens of a sequence have their KV."""
        return len(self._slab(seq).token_ids)

    def num_reserved(self, seq: int) -> int:
        """Give how many tokens a sequence reserved; its slab may be longer."""
        return self._slab(seq).num_reserved

    def slot_mapping(self, seq: int, start: int, stop: int) -> list[int]:
        """Give the physical slots of the positions `[start, stop)` of a sequence."""
        return slot_mapping(self._slab(seq).blocks, start, stop, self.block_size)

    def has(self, seq: int) -> bool:
        """Tell whether a sequence has a slab."""
        return seq in self._slabs

    def snapshot(self) -> MemorySnapshot:
        """Give the state as a value that no later change touches."""
        return MemorySnapshot(
            block_size=self.block_size,
            ref_counts=tuple(self.pool.ref_count),
            tables={seq: tuple(slab.blocks) for seq, slab in self._slabs.items()},
            num_tokens={seq: len(slab.token_ids) for seq, slab in self._slabs.items()},
        )

    # --- inside ---------------------------------------------------------------------------------

    def _slab(self, seq: int) -> Slab:
        if seq not in self._slabs:
            raise ValueError(f"seq {seq} has no blocks")
        return self._slabs[seq]

    def _unannounced(self, seq: int, token_ids: Sequence[int]) -> _Group:
        return _Group((seq,), self.policy.reserve(len(token_ids), None))

    def _num_blocks(self, group: _Group) -> int:
        return blocks_for(group.num_reserved, self.block_size)

    def _reserve(self, seq: int, leader: int, num_reserved: int) -> None:
        blocks = self.pool.allocate(blocks_for(num_reserved, self.block_size))
        self._slabs[seq] = Slab(blocks, num_reserved)
        if seq != leader:
            self._notify(Forked(leader, seq))
        self._notify(SlabReserved(seq, blocks[0], len(blocks), num_reserved))

    def _check_room(self, seq: int, num_new_tokens: int) -> None:
        slab = self._slab(seq)
        if num_new_tokens < 1:
            raise ValueError(f"a sequence grows by at least 1 token, not {num_new_tokens}")
        wanted = len(slab.token_ids) + num_new_tokens
        if wanted > slab.num_reserved:
            raise OutOfBlocksError(
                f"seq {seq} wants to hold {wanted} tokens, and reserved {slab.num_reserved}"
            )

    def _write_events(self, chunks: Sequence[tuple[int, Sequence[int]]]) -> list[Event]:
        """Give what a step writes: an event for each run of tokens, one for all single tokens."""
        events: list[Event] = [
            Prefilled(seq, len(self._slabs[seq].token_ids), *self._texts(token_ids))
            for seq, token_ids in chunks
            if len(token_ids) > 1
        ]
        single = [(seq, token_ids[0]) for seq, token_ids in chunks if len(token_ids) == 1]
        if single:
            seqs, token_ids = zip(*single, strict=True)
            events.append(Written(seqs, *self._texts(token_ids)))
        return events

    def _texts(self, token_ids: Sequence[int]) -> tuple[tuple[int, ...], tuple[str, ...]]:
        return tuple(token_ids), tuple(map(self._token_text, token_ids))
