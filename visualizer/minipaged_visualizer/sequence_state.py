"""What the views show of one sequence: its block table filled with text, and what comes next."""

from __future__ import annotations

from typing import NamedTuple

from minipaged.memory.replay import Replay, SequenceState
from minipaged_visualizer.captions import letters
from minipaged_visualizer.heat import heat_of

STATUSES = ("running", "swapped", "preempted", "waiting", "finished")


class Entry(NamedTuple):
    """One entry of a block table. The last `num_new` of `tokens` were written just now.

    `share` is how much of the newest token's attention the block got, in 1/1000, if that is known.
    """

    logical: int
    block: int
    tokens: tuple[str, ...]
    num_new: int
    num_empty: int
    ref_count: int
    share: int | None = None


class SequenceView(NamedTuple):
    """One sequence. `output` is its text so far, `pending` the token after it.

    The pending token is known, but has no keys and values yet: the next step writes them. A
    sequence without blocks has none, as that could be said of all its tokens.
    """

    seq: int
    status: str
    about: str
    entries: list[Entry]
    output: str
    pending: str

    @property
    def next_entry(self) -> Entry | None:
        """The entry that the pending token will be written to; None if it needs a new block."""
        return next((entry for entry in self.entries if entry.num_empty), None)

    @property
    def is_swapped(self) -> bool:
        """Whether the blocks are those of the swap pool."""
        return self.status == "swapped"


def choose_sequences(state: Replay, limit: int) -> tuple[list[int], dict[str, int]]:
    """Choose at most `limit` sequences, those that use memory first.

    Returns:
        The chosen ones in order of their numbers, and how many of each status were left out.
    """
    ranked = sorted(state.sequences, key=lambda seq: _rank(seq, state.sequences[seq]))
    chosen, left_out = sorted(ranked[:limit]), ranked[limit:]
    statuses = [state.sequences[seq].status for seq in left_out]
    return chosen, {status: statuses.count(status) for status in STATUSES if status in statuses}


def _rank(seq: int, sequence: SequenceState) -> tuple[int, int]:
    """Rank by status, then first come, first served; of the finished the youngest come first."""
    return STATUSES.index(sequence.status), -seq if sequence.status == "finished" else seq


def view_sequence(state: Replay, seq: int, num_new: int) -> SequenceView:
    """Give what is shown of one sequence, whose last `num_new` tokens were written just now."""
    sequence = state.sequences[seq]
    entries = _entries(state, seq, num_new)
    output = [token.text for token in sequence.output]
    num_known = sequence.num_prompt_tokens + len(output)
    is_last_pending = bool(entries and output) and state.num_tokens[seq] == num_known - 1
    pending = output.pop() if is_last_pending else ""
    about = _about(sequence, state.num_tokens.get(seq, 0))
    return SequenceView(seq, sequence.status, about, entries, "".join(output), pending)


def _about(sequence: SequenceState, num_tokens: int) -> str:
    """Tell in a few words what matters beside status and text."""
    size = sequence.num_prompt_tokens
    if sequence.status == "waiting":
        return f"prompt of {size} tokens"
    if sequence.status == "finished":
        return sequence.finish_reason
    if sequence.status == "running" and num_tokens < size:
        return f"prompt: {num_tokens} of {size} tokens"
    if sequence.status == "preempted":
        return f"{size + len(sequence.output)} tokens to compute again"
    return f"fork of {letters(sequence.parent)}" if sequence.parent is not None else ""


def _entries(state: Replay, seq: int, num_new: int) -> list[Entry]:
    is_swapped = seq in state.swap_tables
    table = (state.swap_tables if is_swapped else state.tables).get(seq, [])
    contents = state.swap_contents if is_swapped else state.contents
    ref_counts = state.swap_ref_counts if is_swapped else state.ref_counts
    num_tokens, size = state.num_tokens.get(seq, 0), state.block_size
    heat = heat_of(state, seq)
    entries = []
    for logical, block in enumerate(table):
        filled = min(max(num_tokens - logical * size, 0), size)
        num_old = min(max(num_tokens - num_new - logical * size, 0), filled)
        tokens = tuple(token.text for token in contents[block][:filled])
        sizes = filled - num_old, size - filled, ref_counts[block]
        entries.append(Entry(logical, block, tokens, *sizes, heat.get(block)))
    return entries
