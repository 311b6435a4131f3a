"""Fig. 2: where the memory for the KV cache goes."""

from __future__ import annotations

from collections.abc import Mapping

from minipaged.lab.figures import Chart, Figure, Row
from minipaged.lab.paper.study import PAPER, TITLES, Outcomes, Scale, Study
from minipaged.lab.runs import SYSTEMS, Outcome, Run

KINDS = ("tokens", "reserved", "internal", "external")
NAMES = ("token states", "reserved", "internal", "external and other")

# % of the KV memory, in the order of KINDS.
REPORTED: Mapping[str, tuple[float | None, ...]] = {
    "orca-max": (20.4, 13.3, 57.3, 8.9),
    "orca-pow2": (26.8, 17.9, 13.6, 41.6),
    "orca-oracle": (38.2, 25.2, 0.0, 36.6),
    "paged": (96.3, None, None, None),
}
_GOALS = {"orca-max": 3.0, "orca-pow2": 6.0, "orca-oracle": 3.0, "paged": 3.0}


def run_of(scale: Scale, system: str) -> Run:
    """Give a system's run: everybody comes at once, so that somebody always waits."""
    return Run(scale.load("sharegpt"), system)


def runs(scale: Scale) -> list[Run]:
    """Give the runs that the figure needs."""
    return [run_of(scale, system) for system in SYSTEMS]


def build(scale: Scale, outcomes: Outcomes) -> Figure:
    """Build the figure."""
    found = {system: outcomes[run_of(scale, system)] for system in SYSTEMS}
    rows = [row for system, outcome in found.items() for row in _rows(system, outcome)]
    paged = found["paged"].waste
    return Figure(
        name="fig2",
        title="Where the KV memory goes, on lengths like ShareGPT's",
        source=f"{PAPER}, fig. 2",
        method="15,728 slots, a queue that never empties, a buddy allocator or blocks of 16",
        rows=tuple(rows),
        charts=(_chart("simulated", found), _reported()),
        notes=(
            f"of what vLLM holds, {100 * paged.tokens / paged.held:.1f} % are token states, "
            f"{100 * paged.reserved / paged.held:.1f} % will be, and "
            f"{100 * paged.unused_share:.2f} % never will be",
            "lengths are log-normal with the paper's means; their spread is an assumption",
        ),
    )


def _rows(system: str, outcome: Outcome) -> list[Row]:
    return [
        Row(f"{TITLES[system]}: {name}", reported, 100 * outcome.waste.share(kind), "%", goal)
        for kind, name, reported in zip(KINDS, NAMES, REPORTED[system], strict=True)
        for goal in [_GOALS[system] if reported is not None else None]
    ]


def _chart(title: str, found: Mapping[str, Outcome]) -> Chart:
    series = {
        name: [100 * outcome.waste.share(kind) for outcome in found.values()]
        for kind, name in zip(KINDS, NAMES, strict=True)
    }
    return Chart(title, "stacked", [TITLES[s] for s in found], series, y_title="% of the KV memory")


def _reported() -> Chart:
    series = {name: [REPORTED[s][n] for s in SYSTEMS] for n, name in enumerate(NAMES)}
    return Chart(
        "reported by the paper",
        "stacked",
        [TITLES[s] for s in SYSTEMS],
        series,
        y_title="% of the KV memory",
    )


STUDY = Study(runs, build)
