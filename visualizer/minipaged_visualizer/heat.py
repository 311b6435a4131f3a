"""Attention as the views show it: of a deep trace, the share that each block of a sequence got."""

from __future__ import annotations

from minipaged.memory.replay import Replay


def heat_of(state: Replay, seq: int) -> dict[int, int]:
    """Give 1/1000 of attention by physical block, in the last layer that is recorded.

    Of heads it takes the mean if that is recorded, else the first one.
    It is empty where nothing is known: the trace is not deep, or the sequence has not run since.
    """
    recorded = state.attention.get(seq)
    table = state.tables.get(seq)
    if not recorded or not table:
        return {}
    shares = recorded[max(recorded, key=lambda place: (place[0], -place[1]))]
    return dict(zip(table, shares, strict=False))
