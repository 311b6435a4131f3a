"""The stage on which a case is played: a small memory whose every event is kept.

What the engine does can be played by its own manager; what a student's function claims is shown as
events. The trace that comes of it replays, and its last step tells what went wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

from minipaged.memory.events import BlockAllocated, Event, Prefilled, Requested
from minipaged.memory.kv_cache_manager import KVCacheManager
from minipaged.memory.replay import IntegrityError, Replay
from minipaged.memory.trace import Trace, TraceHeader

_WORDS = ("the cat sat on a mat and saw one red kite fly over our old green hill at noon").split()  # noqa: SIM905 (words are read as a text)


def word(token: int) -> str:
    """Give a token's text: a word, so that blocks can be read.

    >>> word(0), word(1)
    ('the', ' cat')
    """
    return ("" if token == 0 else " ") + _WORDS[token % len(_WORDS)]


def letter(seq: int) -> str:
    """Give a sequence's name, as the views do.

    >>> letter(0), letter(2)
    ('A', 'C')
    """
    return chr(ord("A") + seq)


def blocks(ids: Sequence[int]) -> str:
    """Name blocks.

    >>> blocks([5]), blocks([5, 2])
    ('block 5', 'blocks 5, 2')
    """
    return f"block{'' if len(ids) == 1 else 's'} {', '.join(map(str, ids))}"


class Stage:
    """A trace in the making."""

    def __init__(
        self, title: str, num_blocks: int, block_size: int, allocator: str = "paged"
    ) -> None:
        header = TraceHeader(block_size, max(num_blocks, 1), allocator=allocator, title=title)
        self.trace = Trace(header)
        self.state = Replay(header.num_blocks, block_size, 0)
        self.block_size = block_size

    def manager(self, enable_prefix_caching: bool = False) -> KVCacheManager:
        """Give the engine's own manager, whose events are kept here."""
        return KVCacheManager(
            self.trace.header.num_blocks,
            self.block_size,
            enable_prefix_caching=enable_prefix_caching,
            notify=self.happen,
            token_text=word,
        )

    def happen(self, event: Event) -> None:
        """Keep an event.

        Raises:
            IntegrityError: It contradicts what happened before. The trace is as it was.
        """
        self.state.apply(event)
        self.trace.observe(event)

    def happens(self, event: Event) -> str:
        """Keep an event if it makes sense; else tell why it doesn't."""
        try:
            self.happen(event)
        except IntegrityError as e:
            return str(e)
        return ""

    def has_text(self, seq: int, blocks: Sequence[int], num_tokens: int, name: str = "") -> None:
        """Let a sequence hold these blocks, with words for its first `num_tokens` positions."""
        self.happen(Requested(seq, name, max(num_tokens, 1)))
        for index, block in enumerate(blocks):
            self.happen(BlockAllocated(seq, index, block, "prompt"))
        if num_tokens:
            tokens = tuple(range(num_tokens))
            self.happen(Prefilled(seq, 0, tokens, tuple(map(word, tokens))))

    def end_step(self, note: str = "") -> Trace:
        """Close a step; the note of the last one tells what went wrong."""
        self.trace.end_step(0, 0, note)
        return self.trace
