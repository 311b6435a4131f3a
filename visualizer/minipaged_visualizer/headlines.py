"""What happened in two or three words, for large type. The caption below tells the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minipaged.memory import events as ev
from minipaged_visualizer.captions import letters

_MAX_NAMED = 3


def telling(events: Sequence[ev.Event]) -> ev.Event | None:
    """Give the event that a class should hear about first: the rarest kind, the newest of it."""
    return min(reversed(events), key=lambda event: _RANKS[event.kind], default=None)


def headline(event: ev.Event) -> str:
    """Give a headline.

    >>> headline(ev.BlockCopied(0, 1, 3, 5, ""))
    'A COPIES 3 TO 5'
    """
    return _WORDS[type(event)](event)


def _blocks(blocks: Sequence[int]) -> str:
    if len(blocks) > _MAX_NAMED:
        return f"{len(blocks)} BLOCKS"
    return " ".join(map(str, blocks))


def _who(seqs: Sequence[int]) -> str:
    if len(seqs) > _MAX_NAMED:
        return f"{len(seqs)} TEXTS"
    return " ".join(map(letters, seqs))


def _looks(event: ev.Attended) -> str:
    strongest = max(range(len(event.permille)), key=event.permille.__getitem__, default=0)
    return f"{letters(event.seq)} LOOKS AT {strongest}"


# The rarest first.
_WORDS: dict[type[ev.Event], Callable[[Any], str]] = {
    ev.BlockCopied: lambda e: f"{letters(e.seq)} COPIES {e.source} TO {e.target}",
    ev.BlockEvicted: lambda e: f"{e.block} IS EVICTED",
    ev.Preempted: lambda e: f"{letters(e.seq)} IS PREEMPTED",
    ev.SwappedOut: lambda e: f"{letters(e.seq)} MOVES OUT",
    ev.SwappedIn: lambda e: f"{letters(e.seq)} COMES BACK",
    ev.Forked: lambda e: f"{letters(e.parent)} FORKS {letters(e.child)}",
    ev.PrefixHit: lambda e: f"{letters(e.seq)} SHARES {_blocks(e.blocks)}",
    ev.SlabReserved: lambda e: f"{letters(e.seq)} RESERVES {e.num_blocks}",
    ev.Finished: lambda e: f"{letters(e.seq)} IS DONE",
    ev.Requested: lambda e: f"{letters(e.seq)} ARRIVES",
    ev.BlockAllocated: lambda e: f"{letters(e.seq)} TAKES {e.block}",
    ev.BlockShared: lambda e: f"{letters(e.seq)} SHARES {e.block}",
    ev.Released: lambda e: f"{letters(e.seq)} FREES {_blocks(e.blocks)}",
    ev.BlockPublished: lambda e: f"{e.block} IS FULL",
    ev.Prefilled: lambda e: f"{letters(e.seq)} READS {len(e.tokens)}",
    ev.Attended: _looks,
    ev.KernelAccess: lambda e: f"{e.access} {_blocks(e.blocks)}",
    ev.Written: lambda e: f"{_who(e.seqs)} WRITE{'S' if len(e.seqs) == 1 else ''}",
    ev.Sampled: lambda e: f"NEXT: {_who(e.seqs)}",
}
_RANKS = {kind.kind: rank for rank, kind in enumerate(_WORDS)}
