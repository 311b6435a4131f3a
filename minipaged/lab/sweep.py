"""How large a block should be: what small ones cost against what large ones waste.

    empty      of what sequences hold, the part without a token: grows with the block
    table      entries of a sequence's block table on average, 4 bytes each: shrinks with it
    copy       one copy-on-write, inside the GPU's memory: grows
    swap       a sequence of average length out and back over the bus: shrinks, as long as a block
               is not longer than a text

The recommended size is the largest with at least 95 % of the best throughput: it has the shortest
tables and the fewest copies to start among those that waste nothing that matters. Where memory was
never full, waste cost nothing, and nothing is recommended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from minipaged.errors import ConfigError
from minipaged.lab.figures import Chart
from minipaged.lab.loads import Load
from minipaged.lab.runs import Outcome, Run, measure_all
from minipaged.memory.block_table import blocks_for

ENTRY_BYTES = 4  # int32, as kernels read it
ENOUGH = 0.95  # less is not told apart from chance in runs of this size


@dataclass(frozen=True)
class SizeResult:
    """One block size; `empty`, and its part that stays so (`never`), are % of what is held."""

    block_size: int
    empty: float
    never: float
    table_entries: float
    table_bytes: float
    copy_us: float
    swap_ms: float
    batch: float
    tokens_per_second: float
    is_full: bool = True


@dataclass(frozen=True)
class Sweep:
    """All sizes under one load, smallest first."""

    load: Load
    results: tuple[SizeResult, ...]

    @property
    def best(self) -> SizeResult | None:
        """The recommended one; None where memory was never full."""
        if not all(result.is_full for result in self.results):
            return None
        most = max(result.tokens_per_second for result in self.results)
        good = [r for r in self.results if r.tokens_per_second >= ENOUGH * most]
        return good[-1]

    @property
    def reason(self) -> str:
        """Why, in one sentence."""
        best, last = self.best, self.results[-1]
        if best is None:
            return "No advice: hardly anybody waited for memory. Take more requests (--requests)."
        why = (
            f"Take {best.block_size}: it is the largest with at least {ENOUGH:.0%} of the best "
            f"throughput, with {best.table_entries:.0f} table entries a sequence and "
            f"{best.swap_ms:.0f} ms to swap one out and in"
        )
        if best is last:
            return f"{why}; larger ones were not tried."
        next_size = self.results[self.results.index(best) + 1]
        return (
            f"{why}; at {next_size.block_size}, {next_size.empty:.1f} % of what is held is empty, "
            f"not {best.empty:.1f} %."
        )

    def charts(self) -> tuple[Chart, ...]:
        """Draw waste against overheads, and throughput."""
        sizes = [result.block_size for result in self.results]
        waste = {
            "empty, % of what is held": [r.empty for r in self.results],
            "swap of a sequence, ms": [r.swap_ms for r in self.results],
            "table entries of a sequence": [r.table_entries for r in self.results],
        }
        speed = {"tokens/s": [r.tokens_per_second for r in self.results]}
        axis = "block size (tokens)"
        return (
            Chart("waste against overhead", "lines", sizes, waste, axis),
            Chart("throughput", "lines", sizes, speed, axis, "tokens/s"),
        )


def sweep(
    sizes: Sequence[int],
    load: Load,
    workers: int = 1,
    tell: Callable[[int, int], object] | None = None,
) -> Sweep:
    """Run a load with every block size.

    Raises:
        ConfigError: A size is below 1 or larger than the pool, or there is none.
        WorkloadError: A file of lengths can't be read.
    """
    sizes = sorted(set(sizes))
    if not sizes or not 1 <= sizes[0] <= sizes[-1] <= 1024:
        raise ConfigError(f"block sizes are from 1 to 1,024 tokens, not {list(sizes)}")
    runs: Mapping[int, Run] = {size: Run(load, block_size=size) for size in sizes}
    outcomes = measure_all(runs.values(), workers, tell)
    return Sweep(load, tuple(_result(run, outcomes[run]) for run in runs.values()))


def _result(run: Run, outcome: Outcome) -> SizeResult:
    waste, cost = outcome.waste, run.cost()
    held, sequences = waste.held + waste.shared, outcome.batch * run.load.width
    entries = held / run.block_size / sequences
    blocks = blocks_for(max(round(waste.tokens / sequences), 1), run.block_size)
    return SizeResult(
        block_size=run.block_size,
        empty=100 * (1 - waste.tokens / waste.held),
        never=100 * waste.unused_share,
        table_entries=entries,
        table_bytes=ENTRY_BYTES * entries * sequences,
        copy_us=1e6 * cost.copy_seconds(1),
        swap_ms=1e3 * cost.swap_seconds(2 * blocks),
        batch=outcome.batch,
        tokens_per_second=outcome.tokens_per_second,
        is_full=outcome.is_full,
    )
