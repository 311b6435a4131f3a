"""What a few events changed: which blocks to mark with which sign, and how many tokens are new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from minipaged.memory import events as ev
from minipaged_visualizer.captions import SIGNS

COPIED_FROM = "«"
_STRONGEST = "!»«↓↑+=-k"


@dataclass(frozen=True)
class Changes:
    """Signs by block, in the pool and in the swap pool, and the number of new tokens by sequence.

    >>> changes_of([ev.BlockEvicted(3, "h", 1), ev.BlockAllocated(1, 0, 3, "prompt")]).blocks
    {3: '!'}
    """

    blocks: dict[int, str] = field(default_factory=dict)
    swap_blocks: dict[int, str] = field(default_factory=dict)
    new_tokens: Counter[int] = field(default_factory=Counter)


def changes_of(events: Iterable[ev.Event]) -> Changes:
    """Collect what these events changed; of several signs for a block the strongest stays."""
    changes = Changes()
    for event in events:
        sign = SIGNS[event.kind]
        for block in _blocks(event):
            _mark(changes.blocks, block, sign)
        if isinstance(event, ev.BlockCopied):
            _mark(changes.blocks, event.source, COPIED_FROM)
        elif isinstance(event, ev.SwappedOut):
            for _, block in event.moves:
                _mark(changes.swap_blocks, block, sign)
        elif isinstance(event, ev.Written):
            changes.new_tokens.update(event.seqs)
        elif isinstance(event, ev.Prefilled):
            changes.new_tokens[event.seq] += len(event.tokens)
    return changes


def _blocks(event: ev.Event) -> Iterator[int]:
    """Give the blocks of the pool that an event is about."""
    if isinstance(event, ev.PrefixHit | ev.Released | ev.KernelAccess):
        yield from event.blocks
    elif isinstance(event, ev.SwappedOut):
        yield from (source for source, _ in event.moves)
    elif isinstance(event, ev.SwappedIn):
        yield from (target for _, target in event.moves)
    elif isinstance(event, ev.SlabReserved):
        yield from range(event.first_block, event.first_block + event.num_blocks)
    elif isinstance(event, ev.BlockCopied):
        yield event.target
    elif isinstance(event, ev.BlockAllocated | ev.BlockShared | ev.BlockEvicted):
        yield event.block


def _mark(marks: dict[int, str], block: int, sign: str) -> None:
    if block not in marks or _STRONGEST.index(sign) < _STRONGEST.index(marks[block]):
        marks[block] = sign
