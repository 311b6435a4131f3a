"""What every view is told of one sequence: which tokens of which block are new."""

from __future__ import annotations

import pytest
from minipaged_visualizer.sequence_state import view_sequence

from minipaged.memory.events import BlockAllocated, Prefilled, Requested
from minipaged.memory.replay import Replay


@pytest.mark.parametrize(
    ("num_new", "new_in_each_block"),
    [(0, [0, 0, 0]), (1, [0, 0, 1]), (2, [0, 1, 1]), (5, [0, 4, 1]), (9, [4, 4, 1])],
)
def test_the_last_tokens_are_new_in_whichever_block_they_lie(
    num_new: int, new_in_each_block: list[int]
) -> None:
    state = Replay(num_blocks=8, block_size=4)
    state.apply(Requested(0, "", 9))
    for index, block in enumerate((5, 2, 7)):
        state.apply(BlockAllocated(0, index, block, "prompt"))
    state.apply(Prefilled(0, 0, tuple(range(9)), tuple("abcdefghi")))
    view = view_sequence(state, 0, num_new)
    assert [entry.num_new for entry in view.entries] == new_in_each_block
