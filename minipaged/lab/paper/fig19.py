"""Fig. 19: who is preempted may be recomputed or swapped."""

from __future__ import annotations

from minipaged.engine.scheduler_output import Chunk
from minipaged.engine.sequence import Request, Sequence
from minipaged.lab.figures import Chart, Figure, Row
from minipaged.lab.paper.study import PAPER, Outcomes, Scale, Study
from minipaged.lab.runs import Run
from minipaged.memory.block_table import blocks_for

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
WHOLE_RUNS = (1, 16, 64, 256)
NUM_TOKENS = 256  # of the sequence that is moved: our choice, the paper prints none
_PART = 0.15


def _run(scale: Scale, size: int, preemption: str) -> Run:
    return Run(scale.load("sharegpt", _PART), block_size=size, preemption=preemption)


def runs(scale: Scale) -> list[Run]:
    """Give the runs that the figure needs."""
    return [_run(scale, size, how) for size in WHOLE_RUNS for how in ("recompute", "swap")]


def recompute_ms(size: int, num_tokens: int = NUM_TOKENS) -> float:
    """Give the milliseconds to compute the KV of a sequence again: a step of its own."""
    sequence = Sequence(0, 0, list(range(num_tokens)))
    request = Request("moved", tuple(sequence.token_ids), 1, 1, 0, [sequence])
    return 1000 * Run(block_size=size).cost().compute_seconds(
        [Chunk(request, sequence, 0, num_tokens)]
    )


def swap_ms(size: int, num_tokens: int = NUM_TOKENS) -> float:
    """Give the milliseconds to move the blocks of a sequence out and back."""
    return 1000 * Run(block_size=size).cost().swap_seconds(2 * blocks_for(num_tokens, size))


def build(scale: Scale, outcomes: Outcomes) -> Figure:
    """Build the figure."""
    swap, recompute = list(map(swap_ms, SIZES)), list(map(recompute_ms, SIZES))
    ratio = dict(zip(SIZES, (s / r for s, r in zip(swap, recompute, strict=True)), strict=True))
    whole = {
        how: [outcomes[_run(scale, size, how)].normalized_latency for size in WHOLE_RUNS]
        for how in ("recompute", "swap")
    }
    preempted = outcomes[_run(scale, 16, "recompute")].num_preemptions
    return Figure(
        name="fig19",
        title="Recompute against swap",
        source=f"{PAPER}, fig. 19 and section 7.3, OPT-13B",
        method=f"(a) the cost model for {NUM_TOKENS} tokens, (b) runs on lengths like ShareGPT's",
        rows=(
            Row("(a) swap / recompute, blocks of 1", None, ratio[1], "x", words="swap is slow"),
            *(
                Row(
                    f"(a) swap / recompute, blocks of {size}",
                    None,
                    ratio[size],
                    "x",
                    words="comparable",
                )
                for size in (16, 32, 64)
            ),
            Row("(a) recompute, blocks of 256 / of 1", 1.0, recompute[-1] / recompute[0], "x", 1),
            *(
                Row(f"(b) latency, swap / recompute, blocks of {size}", None, s / r, "x")
                for size, r, s in zip(WHOLE_RUNS, *whole.values(), strict=True)
            ),
        ),
        charts=(
            Chart(
                f"(a) moving {NUM_TOKENS} tokens",
                "lines",
                SIZES,
                {"recompute": recompute, "swap out and in": swap},
                "block size (tokens)",
                "ms",
            ),
            Chart(
                "(b) latency of whole runs",
                "lines",
                WHOLE_RUNS,
                whole,
                "block size (tokens)",
                "seconds a new token",
            ),
        ),
        notes=(
            "swapping small blocks is slow, as each is a copy for every layer's K and V; recompute "
            "does not depend on the block size: reproduced",
            f"(b): {preempted} preemptions with recompute and blocks of 16",
            "how much faster swap is with large blocks depends on the bus, which the cost model "
            "takes at its full rate, and on 10 us a copy, which is assumed",
        ),
    )


STUDY = Study(runs, build)
