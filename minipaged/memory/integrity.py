"""The invariants of paged memory, in one place, checked on demand.

`check_snapshot` looks at a state, wherever it comes from; `check_manager` also at what a snapshot
leaves out (free lists, the hash index); `check_trace` replays a file and stops at the first event
that breaks a rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from minipaged.memory.manager import MemoryManager
from minipaged.memory.replay import IntegrityError, Replay
from minipaged.memory.snapshot import MemorySnapshot
from minipaged.memory.trace import TraceReader


def check_snapshot(snapshot: MemorySnapshot) -> None:
    """Check a state of memory.

    1. A block's reference count is the number of table entries that name it, here and in the swap
    pool. 2. No sequence holds blocks in both pools. 3. Every token has a slot. 4. A shared block
    stands at the same place in each table and holds the same number of tokens, at least one.
    5. A hash belongs to one block; a block in use that has one is full for everybody who holds it.

    Raises:
        IntegrityError: The first rule that is broken, with the block or sequence.
    """
    _check_ref_counts("block", snapshot.ref_counts, snapshot.tables)
    _check_ref_counts("swap block", snapshot.swap_ref_counts, snapshot.swap_tables)
    for seq in snapshot.tables.keys() & snapshot.swap_tables.keys():
        raise IntegrityError(f"seq {seq} holds blocks in both pools")
    for seq, table in (snapshot.tables | snapshot.swap_tables).items():
        room = len(table) * snapshot.block_size
        if not 0 <= snapshot.num_tokens[seq] <= room:
            raise IntegrityError(f"seq {seq} has {snapshot.num_tokens[seq]} tokens, {room} slots")
    _check_sharing("block", snapshot.ref_counts, snapshot.tables, snapshot)
    _check_sharing("swap block", snapshot.swap_ref_counts, snapshot.swap_tables, snapshot)
    _check_hashes(snapshot)


def check_manager(manager: MemoryManager) -> None:
    """Check a live manager: its snapshot, the free lists and the index of hashes.

    Raises:
        IntegrityError: The first rule that is broken.
    """
    check_snapshot(manager.snapshot())
    for pool in (manager.pool, manager.swap_pool):
        order = pool.free_order()
        free = [block for block, count in enumerate(pool.ref_count) if count == 0]
        if sorted(order) != free:
            raise IntegrityError(f"the free list has {len(order)} entries, {len(free)} are free")
        cached = [block in pool.hash_of for block in order]
        if cached != sorted(cached):
            raise IntegrityError("a cached free block stands before one without content")
        for block, content_hash in pool.hash_of.items():
            if pool.find(content_hash) != block:
                raise IntegrityError(f"block {block} has a hash that leads elsewhere")


def check_trace(path: str | Path) -> tuple[int, int]:
    """Replay a trace file from its first event to its last and check the state after every step.

    A sequence that finished must have given all its blocks back by the end of the step.

    Returns:
        How many steps and events it has.

    Raises:
        TraceError: The file can't be read; the message names the line.
        IntegrityError: An event breaks a rule; the message names line, event and rule.
    """
    num_steps = num_events = 0
    with TraceReader(path) as reader:
        header = reader.header
        state = Replay(header.num_blocks, header.block_size, header.num_swap_blocks)
        for step in reader:
            place = f"{path}: line {reader.line_number} (step {step.step})"
            for index, event in enumerate(step.events):
                try:
                    state.apply(event)
                except IntegrityError as e:
                    raise IntegrityError(f"{place}, event {index} ({event.kind}): {e}") from e
            try:
                check_snapshot(state.snapshot())
                check_finished(state)
            except IntegrityError as e:
                raise IntegrityError(f"{place}: {e}") from e
            num_steps += 1
            num_events += len(step.events)
    return num_steps, num_events


def check_finished(state: Replay) -> None:
    """Check that a sequence that has finished holds no block any more.

    Raises:
        IntegrityError: One does.
    """
    for seq in state.tables | state.swap_tables:
        if state.sequences[seq].status == "finished":
            raise IntegrityError(f"seq {seq} has finished, but still holds blocks")


def _check_ref_counts(
    name: str, counts: Sequence[int], tables: Mapping[int, Sequence[int]]
) -> None:
    appearances = Counter(chain.from_iterable(tables.values()))
    for block, times in appearances.items():
        if not 0 <= block < len(counts):
            raise IntegrityError(f"{name} {block} is not in a pool of {len(counts)}")
        if counts[block] != times:
            raise IntegrityError(
                f"{name} {block}: ref_count {counts[block]}, in tables {times} times"
            )
    if sum(counts) != sum(appearances.values()):
        lost = next(b for b, count in enumerate(counts) if count != appearances[b])
        raise IntegrityError(f"{name} {lost}: ref_count {counts[lost]}, but in no table")


def _check_sharing(
    name: str,
    counts: Sequence[int],
    tables: Mapping[int, Sequence[int]],
    snapshot: MemorySnapshot,
) -> None:
    if max(counts, default=0) < 2:
        return
    holder_of: dict[int, tuple[int, int, int]] = {}
    for seq, table in tables.items():
        for index, block in enumerate(table):
            if counts[block] < 2:  # the counts are known to be right by now
                continue
            rest = snapshot.num_tokens[seq] - index * snapshot.block_size
            filled = min(max(rest, 0), snapshot.block_size)
            if block not in holder_of:
                holder_of[block] = (seq, index, filled)
                continue
            other, other_index, other_filled = holder_of[block]
            if (index, filled) != (other_index, other_filled) or filled == 0:
                raise IntegrityError(
                    f"{name} {block} is shared: entry {other_index} of seq {other} "
                    f"({other_filled} tokens), entry {index} of seq {seq} ({filled} tokens)"
                )


def _check_hashes(snapshot: MemorySnapshot) -> None:
    if len(set(snapshot.hashes.values())) != len(snapshot.hashes):
        raise IntegrityError("two blocks have the same hash")
    for seq, table in snapshot.tables.items():
        full = snapshot.num_tokens[seq] // snapshot.block_size
        for index in range(full, len(table)):
            if table[index] in snapshot.hashes:
                raise IntegrityError(
                    f"block {table[index]} is published, but not full for seq {seq}"
                )
