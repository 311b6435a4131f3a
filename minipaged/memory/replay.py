"""Events in, the state of memory out: the same state that the manager had.

`Replay` knows nothing of the manager's code. It applies one event after the other to plain lists
and dictionaries, and refuses an event that contradicts what came before, with the rule that it
breaks. So a trace that replays is a proof, and a view needs nothing but the events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from minipaged.errors import TraceError
from minipaged.memory import events as ev
from minipaged.memory.snapshot import MemorySnapshot


class IntegrityError(TraceError):
    """An event or a state of memory breaks one of its invariants."""


class Token(NamedTuple):
    """One token in a block: its id, and its text as people read it."""

    id: int
    text: str


@dataclass
class SequenceState:
    """What a trace tells about one sequence beside its blocks.

    `status` is waiting, running, preempted, swapped or finished. `output` holds the sampled tokens.
    """

    name: str
    num_prompt_tokens: int
    parent: int | None = None
    status: str = "waiting"
    finish_reason: str = ""
    output: list[Token] = field(default_factory=list)


class Replay:
    """Memory at one moment of a trace; `apply` moves it on by one event.

    `contents[block]` is what lies in a block: its tokens, also after it was freed, until somebody
    else takes it. It is a tuple, so that a copy of the state shares it. `num_tokens[seq]` counts
    tokens whose KV exists, `num_used` the blocks with at least one reference. Of a deep trace,
    `attention[seq][layer, head]` is the share in 1/1000 of each block of a sequence's table.
    """

    def __init__(self, num_blocks: int, block_size: int, num_swap_blocks: int = 0) -> None:
        self.block_size = block_size
        self.ref_counts = [0] * num_blocks
        self.num_used = 0
        self.contents: list[tuple[Token, ...]] = [()] * num_blocks
        self.hashes: dict[int, str] = {}
        self.tables: dict[int, list[int]] = {}
        self.num_tokens: dict[int, int] = {}
        self.swap_ref_counts = [0] * num_swap_blocks
        self.swap_contents: list[tuple[Token, ...]] = [()] * num_swap_blocks
        self.swap_tables: dict[int, list[int]] = {}
        self.sequences: dict[int, SequenceState] = {}
        self.attention: dict[int, dict[tuple[int, int], tuple[int, ...]]] = {}
        self._findable: set[str] = set()
        self._tokens: dict[tuple[int, str], Token] = {}

    def copy(self) -> Replay:
        """Give an independent copy: a place to come back to."""
        twin = Replay(0, self.block_size)
        twin.ref_counts = self.ref_counts.copy()
        twin.num_used = self.num_used
        twin.contents = self.contents.copy()
        twin.hashes = self.hashes.copy()
        twin.tables = {seq: table.copy() for seq, table in self.tables.items()}
        twin.num_tokens = self.num_tokens.copy()
        twin.swap_ref_counts = self.swap_ref_counts.copy()
        twin.swap_contents = self.swap_contents.copy()
        twin.swap_tables = {seq: table.copy() for seq, table in self.swap_tables.items()}
        twin.sequences = {
            seq: replace(state, output=state.output.copy()) for seq, state in self.sequences.items()
        }
        twin.attention = {seq: shares.copy() for seq, shares in self.attention.items()}
        twin._findable = self._findable.copy()
        twin._tokens = self._tokens
        return twin

    def apply(self, event: ev.Event) -> None:
        """Move on by one event.

        Raises:
            IntegrityError: The event contradicts the state; the message names the broken rule. Of
                the state nothing may be expected then.
        """
        _HANDLERS[event.kind](self, event)

    def snapshot(self) -> MemorySnapshot:
        """Give the state as the value that the manager's `snapshot` would give."""
        held = self.tables.keys() | self.swap_tables.keys()
        return MemorySnapshot(
            block_size=self.block_size,
            ref_counts=tuple(self.ref_counts),
            hashes=dict(self.hashes),
            tables={seq: tuple(table) for seq, table in self.tables.items()},
            num_tokens={seq: self.num_tokens[seq] for seq in held},
            swap_ref_counts=tuple(self.swap_ref_counts),
            swap_tables={seq: tuple(table) for seq, table in self.swap_tables.items()},
        )

    # --- requests -----------------------------------------------------------------------------

    def _request(self, event: ev.Requested) -> None:
        _require(event.seq not in self.sequences, f"seq {event.seq} was requested twice")
        _require(event.num_prompt_tokens >= 1, f"seq {event.seq} has an empty prompt")
        self.sequences[event.seq] = SequenceState(event.name, event.num_prompt_tokens)

    def _fork(self, event: ev.Forked) -> None:
        parent = self._sequence(event.parent)
        if event.child not in self.sequences:
            self.sequences[event.child] = SequenceState(
                parent.name, parent.num_prompt_tokens, event.parent, output=list(parent.output)
            )
        child = self.sequences[event.child]
        child.parent, child.status = event.parent, "running"
        has_blocks = event.child in self.tables or event.child in self.swap_tables
        _require(not has_blocks, f"fork: seq {event.child} has blocks already")
        self.num_tokens[event.child] = self.num_tokens.get(event.parent, 0)

    def _sample(self, event: ev.Sampled) -> None:
        for seq, token, text in zip(event.seqs, event.tokens, event.texts, strict=True):
            self._sequence(seq).output.append(self._token(token, text))

    def _preempt(self, event: ev.Preempted) -> None:
        _require(event.how in ("recompute", "swap"), f"preempt: unknown way {event.how!r:.40}")
        self._sequence(event.seq).status = "swapped" if event.how == "swap" else "preempted"

    def _finish(self, event: ev.Finished) -> None:
        sequence = self._sequence(event.seq)
        sequence.status, sequence.finish_reason = "finished", event.why

    # --- blocks -------------------------------------------------------------------------------

    def _hit(self, event: ev.PrefixHit) -> None:
        table = self._table_for(event.seq)
        _require(
            event.first == len(table), f"hit: entry {event.first} of seq {event.seq} is not next"
        )
        _require(
            self.num_tokens[event.seq] == event.first * self.block_size,
            f"hit: the blocks of seq {event.seq} before entry {event.first} are not full",
        )
        for block in event.blocks:
            self._block(block)
            _require(block in self.hashes, f"hit: block {block} has no published content")
        for block in event.blocks:
            self._add_reference(block)
        table.extend(event.blocks)
        self.num_tokens[event.seq] += len(event.blocks) * self.block_size

    def _alloc(self, event: ev.BlockAllocated) -> None:
        table = self._table_for(event.seq)
        _require(
            event.index == len(table), f"alloc: entry {event.index} of seq {event.seq} is not next"
        )
        self._take(event.block)
        table.append(event.block)

    def _reserve(self, event: ev.SlabReserved) -> None:
        first, size = event.first_block, event.num_blocks
        _require(event.seq not in self.tables, f"reserve: seq {event.seq} has blocks already")
        _require(
            first >= 0 and 1 <= size <= len(self.ref_counts) - first,
            f"reserve: {size} blocks from {first} on are not in a pool of {len(self.ref_counts)}",
        )
        _require(
            1 <= event.num_tokens <= size * self.block_size,
            f"reserve: {event.num_tokens} tokens do not fit into {size} blocks",
        )
        table = self._table_for(event.seq)
        for block in range(first, first + size):
            self._take(block)
            table.append(block)

    def _share(self, event: ev.BlockShared) -> None:
        table = self._table_for(event.seq)
        _require(
            event.index == len(table), f"share: entry {event.index} of seq {event.seq} is not next"
        )
        parent = self.sequences[event.seq].parent
        shared = self.tables.get(parent, []) if parent is not None else []
        _require(
            event.index < len(shared) and shared[event.index] == event.block,
            f"share: block {event.block} is not entry {event.index} of seq {event.seq}'s parent",
        )
        self._add_reference(event.block)
        table.append(event.block)

    def _copy(self, event: ev.BlockCopied) -> None:
        table = self._existing_table(event.seq)
        _require(
            0 <= event.index < len(table) and table[event.index] == event.source,
            f"copy: entry {event.index} of seq {event.seq} is not block {event.source}",
        )
        _require(self.ref_counts[event.source] > 1, f"copy: block {event.source} is not shared")
        self._take(event.target)
        self.contents[event.target] = self.contents[event.source]
        self._drop_reference(event.source)
        table[event.index] = event.target

    def _prefill(self, event: ev.Prefilled) -> None:
        self._existing_table(event.seq)
        written = self.num_tokens[event.seq]
        _require(
            event.start == written,
            f"prefill: seq {event.seq} has {written} tokens, not {event.start}",
        )
        for token, text in zip(event.tokens, event.texts, strict=True):
            self._write_token(event.seq, self._token(token, text))

    def _write(self, event: ev.Written) -> None:
        for seq, token, text in zip(event.seqs, event.tokens, event.texts, strict=True):
            self._write_token(seq, self._token(token, text))

    def _publish(self, event: ev.BlockPublished) -> None:
        block = event.block
        _require(self._block(block) > 0, f"publish: block {block} is free")
        _require(
            len(self.contents[block]) == self.block_size,
            f"publish: block {block} holds {len(self.contents[block])} of {self.block_size} tokens",
        )
        _require(block not in self.hashes, f"publish: block {block} has a hash already")
        _require(
            event.hash not in self._findable, f"publish: hash {event.hash!r:.40} is known already"
        )
        self.hashes[block] = event.hash
        self._findable.add(event.hash)

    def _evict(self, event: ev.BlockEvicted) -> None:
        block = event.block
        _require(self._block(block) == 0, f"evict: block {block} is in use")
        _require(self.hashes.get(block) == event.hash, f"evict: block {block} has another hash")
        del self.hashes[block]
        self._findable.discard(event.hash)

    def _release(self, event: ev.Released) -> None:
        swapped = event.seq in self.swap_tables
        tables = self.swap_tables if swapped else self.tables
        counts = self.swap_ref_counts if swapped else self.ref_counts
        table = tables.get(event.seq, [])
        kept = len(table) - len(event.blocks)
        _require(
            kept >= 0 and tuple(reversed(table[kept:])) == event.blocks,
            f"release: {_some(event.blocks)} are not the tail of seq {event.seq}, last first",
        )
        for block in event.blocks:
            _require(counts[block] > 0, f"release: block {block} is free already")
            if swapped:
                counts[block] -= 1
            else:
                self._drop_reference(block)
        del table[kept:]
        self.attention.pop(event.seq, None)
        if not table:
            tables.pop(event.seq, None)
            self.num_tokens.pop(event.seq, None)

    # --- swap ---------------------------------------------------------------------------------

    def _swap_out(self, event: ev.SwappedOut) -> None:
        table = self.tables.get(event.seq, [])
        sources, targets = _columns(event.moves)
        _require(
            sources == table, f"swap_out: {_some(sources)} are not the blocks of seq {event.seq}"
        )
        for source, target in event.moves:
            if self._swap_block(target) == 0:
                self.swap_contents[target] = self.contents[source]
            _require(
                self.swap_contents[target] == self.contents[source],
                f"swap_out: swap block {target} holds something else than block {source}",
            )
            self._drop_reference(source)
            self.swap_ref_counts[target] += 1
        self.tables.pop(event.seq, None)
        self.attention.pop(event.seq, None)
        if targets:
            self.swap_tables[event.seq] = targets
        self._sequence(event.seq).status = "swapped"

    def _swap_in(self, event: ev.SwappedIn) -> None:
        table = self.swap_tables.get(event.seq, [])
        sources, targets = _columns(event.moves)
        _require(
            sources == table, f"swap_in: {_some(sources)} are not the blocks of seq {event.seq}"
        )
        for source, target in event.moves:
            if self._block(target) == 0:
                self._check_takeable(target)
                self.contents[target] = self.swap_contents[source]
            _require(
                self.contents[target] == self.swap_contents[source],
                f"swap_in: block {target} holds something else than swap block {source}",
            )
            self.swap_ref_counts[source] -= 1
            self._add_reference(target)
        self.swap_tables.pop(event.seq, None)
        if targets:
            self.tables[event.seq] = targets
        self._sequence(event.seq).status = "running"

    # --- attention ----------------------------------------------------------------------------

    def _attend(self, event: ev.Attended) -> None:
        table, shares = self._existing_table(event.seq), event.permille
        _require(
            len(shares) <= len(table),
            f"attend: {len(shares)} shares for the {len(table)} blocks of seq {event.seq}",
        )
        _require(
            sum(shares) == 1000 and min(shares) >= 0,
            f"attend: the shares of seq {event.seq} are not positive numbers that add up to 1000",
        )
        self.attention.setdefault(event.seq, {})[event.layer, event.head] = shares

    # --- kernels ------------------------------------------------------------------------------

    def _kernel(self, event: ev.KernelAccess) -> None:
        for block in event.blocks:
            self._block(block)  # a recording changes nothing, but its blocks must exist

    # --- small steps --------------------------------------------------------------------------

    def _token(self, token: int, text: str) -> Token:
        """Give the one object for a token: millions would keep the garbage collector busy."""
        known = self._tokens.get((token, text))
        if known is None:
            known = self._tokens[token, text] = Token(token, text)
        return known

    def _sequence(self, seq: int) -> SequenceState:
        if seq not in self.sequences:
            raise IntegrityError(f"seq {seq} was never requested")
        return self.sequences[seq]

    def _block(self, block: int) -> int:
        """Give the reference count of a block that must exist."""
        _require(
            0 <= block < len(self.ref_counts),
            f"block {block} is not in a pool of {len(self.ref_counts)}",
        )
        return self.ref_counts[block]

    def _swap_block(self, block: int) -> int:
        """Give the reference count of a swap block that must exist."""
        size = len(self.swap_ref_counts)
        _require(0 <= block < size, f"swap block {block} is not in a swap pool of {size}")
        return self.swap_ref_counts[block]

    def _add_reference(self, block: int) -> None:
        self.num_used += self.ref_counts[block] == 0
        self.ref_counts[block] += 1

    def _drop_reference(self, block: int) -> None:
        self.ref_counts[block] -= 1
        self.num_used -= self.ref_counts[block] == 0

    def _check_takeable(self, block: int) -> None:
        _require(self._block(block) == 0, f"block {block} is handed out while in use")
        _require(block not in self.hashes, f"block {block} is handed out with its old hash")

    def _take(self, block: int) -> None:
        self._check_takeable(block)
        self._add_reference(block)
        self.contents[block] = ()

    def _table_for(self, seq: int) -> list[int]:
        _require(seq not in self.swap_tables, f"seq {seq} is swapped out")
        self._sequence(seq).status = "running"
        self.num_tokens.setdefault(seq, 0)
        return self.tables.setdefault(seq, [])

    def _existing_table(self, seq: int) -> list[int]:
        if seq not in self.tables:
            raise IntegrityError(f"seq {seq} has no blocks")
        return self.tables[seq]

    def _write_token(self, seq: int, token: Token) -> None:
        """Put a token behind the others. Most of a replay is this: messages are made on demand."""
        table, position = self._existing_table(seq), self.num_tokens[seq]
        index, offset = divmod(position, self.block_size)
        if index >= len(table):
            raise IntegrityError(f"write: no block for position {position} of seq {seq}")
        block = table[index]
        content = self.contents[block]
        if self.ref_counts[block] != 1 or block in self.hashes or len(content) != offset:
            raise IntegrityError(f"write: {self._why_not_writable(seq, block, offset)}")
        self.contents[block] = (*content, token)
        self.num_tokens[seq] = position + 1

    def _why_not_writable(self, seq: int, block: int, offset: int) -> str:
        if self.ref_counts[block] != 1:
            return f"seq {seq} writes to block {block}, shared by {self.ref_counts[block]}"
        if block in self.hashes:
            return f"block {block} is published and must not change"
        return f"block {block} holds {len(self.contents[block])}, not {offset}"


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise IntegrityError(rule)


def _columns(moves: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [source for source, _ in moves], [target for _, target in moves]


def _some(blocks: Sequence[int]) -> str:
    shown = ", ".join(map(str, blocks[:8]))
    return f"blocks {shown}{', ...' if len(blocks) > 8 else ''}"


_HANDLERS: dict[str, Callable[[Replay, Any], None]] = {
    kind: getattr(Replay, f"_{kind}") for kind in ev.EVENT_TYPES
}
