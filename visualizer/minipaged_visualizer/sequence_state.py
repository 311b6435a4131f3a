"""What the views show of one sequence: its block table filled with text, and what comes next."""

from __future__ import annotations

from typing import NamedTuple

from minipaged.memory.replay import Replay, Token
from minipaged_visualizer.captions import letters
from minipaged_visualizer.changes import Changes

STATUSES = ("running", "swapped", "preempted", "waiting", "finished")


class Entry(NamedTuple):
    """One entry of a block table. The last `num_new` of `tokens` were written just now."""

    logical: int
    block: int
    tokens: tuple[str, ...]
    num_new: int
    num_empty: int
    ref_count: int


class SequenceView(NamedTuple):
    """One sequence. `pending` tokens are known, but have no keys and values yet."""

    seq: int
    status: str
    about: str
    entries: list[Entry]
    pending: tuple[str, ...]

    @property
    def text(self) -> str:
        """The text so far: what lies in the blocks, and what comes next."""
        return "".join(text for entry in self.entries for text in entry.tokens) + "".join(
            self.pending
        )

    @property
    def is_swapped(self) -> bool:
        """Whether the blocks are those of the swap pool."""
        return self.status == "swapped"


def view_sequences(state: Replay, changes: Changes) -> list[SequenceView]:
    """Give every sequence that was ever requested, in order of its number."""
    return [_view(state, seq, changes.new_tokens[seq]) for seq in sorted(state.sequences)]


def choose(views: list[SequenceView], limit: int) -> list[SequenceView]:
    """Give at most `limit` sequences, those that use memory first, in order of their number."""
    ranked = sorted(views, key=lambda view: (STATUSES.index(view.status), _age(view)))
    return sorted(ranked[: max(limit, 0)], key=lambda view: view.seq)


def _age(view: SequenceView) -> int:
    """Rank the finished that ended last (roughly: the youngest) before the others."""
    return -view.seq if view.status == "finished" else view.seq


def _view(state: Replay, seq: int, num_new: int) -> SequenceView:
    sequence = state.sequences[seq]
    num_tokens = state.num_tokens.get(seq, 0)
    output = [token.text for token in sequence.output]
    num_written = max(num_tokens - sequence.num_prompt_tokens, 0)
    return SequenceView(
        seq,
        sequence.status,
        _about(state, seq),
        _entries(state, seq, num_new),
        tuple(output[num_written:]),
    )


def _about(state: Replay, seq: int) -> str:
    """Tell in a few words what there is beside text."""
    sequence, num_tokens = state.sequences[seq], state.num_tokens.get(seq, 0)
    if sequence.status == "waiting" or num_tokens < sequence.num_prompt_tokens:
        if sequence.status == "running":
            return f"prompt {num_tokens} of {sequence.num_prompt_tokens} tokens"
        if sequence.status == "waiting":
            return f"prompt of {sequence.num_prompt_tokens} tokens"
    if sequence.status == "finished":
        return sequence.finish_reason
    return f"fork of {letters(sequence.parent)}" if sequence.parent is not None else ""


def _entries(state: Replay, seq: int, num_new: int) -> list[Entry]:
    is_swapped = seq in state.swap_tables
    table = (state.swap_tables if is_swapped else state.tables).get(seq, [])
    contents = state.swap_contents if is_swapped else state.contents
    ref_counts = state.swap_ref_counts if is_swapped else state.ref_counts
    num_tokens = state.num_tokens.get(seq, 0)
    entries = []
    for index, block in enumerate(table):
        start = index * state.block_size
        filled = min(max(num_tokens - start, 0), state.block_size)
        fresh = min(max(start + filled - (num_tokens - num_new), 0), filled)
        tokens = tuple(map(_text, contents[block][:filled]))
        entries.append(
            Entry(index, block, tokens, fresh, state.block_size - filled, ref_counts[block])
        )
    return entries


def _text(token: Token) -> str:
    return token.text
