"""How memory was used over time: a few numbers at the end of each step, or of every n-th one."""

from __future__ import annotations

from typing import NamedTuple

from minipaged.memory.replay import Replay
from minipaged.memory.snapshot import MemorySnapshot
from minipaged.memory.trace import Trace

MAX_POINTS = 500


class Usage(NamedTuple):
    """Blocks at the end of a step. `wasted` are empty slots of used blocks, in whole blocks' worth.

    `shared` is a part of `used`; `saved` is how many more blocks it would take without sharing.
    """

    step: int
    used: int
    shared: int
    cached: int
    wasted: float
    saved: int


def usage_over_time(trace: Trace, max_points: int = MAX_POINTS) -> list[Usage]:
    """Give the numbers at evenly spaced steps, at most `max_points` of them, the last one included.

    Raises:
        IntegrityError: The trace contradicts itself.
    """
    header, steps = trace.header, trace.all_steps()
    state = Replay(header.num_blocks, header.block_size, header.num_swap_blocks)
    distance = max(-(-len(steps) // max_points), 1)
    points = []
    for left, step in zip(range(len(steps) - 1, -1, -1), steps, strict=True):
        for event in step.events:
            state.apply(event)
        if left % distance == 0:
            points.append(_usage(step.step, state.snapshot()))
    return points


def _usage(step: int, memory: MemorySnapshot) -> Usage:
    return Usage(
        step,
        memory.num_used,
        memory.num_shared,
        memory.num_cached,
        memory.num_empty_slots / memory.block_size,
        memory.num_blocks_saved,
    )
