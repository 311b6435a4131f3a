"""What all figures have in common: how much is simulated, who competes, and what is compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from minipaged.lab.figures import Chart, Figure, Row
from minipaged.lab.loads import Load
from minipaged.lab.runs import Outcome, Run

PAPER = "Kwon et al., SOSP 2023"
TITLES = {
    "orca-max": "Orca (Max)",
    "orca-pow2": "Orca (Pow2)",
    "orca-oracle": "Orca (Oracle)",
    "paged": "vLLM",
}

Outcomes = Mapping[Run, Outcome]


class Scale(NamedTuple):
    """How many requests each system gets, and from which seed."""

    num_requests: int = 1000
    seed: int = 0

    def load(self, name: str, part: float = 1.0, **options: object) -> Load:
        """Give a workload of this size, or of a part of it."""
        num_requests = max(round(self.num_requests * part), 1)
        return Load(name, num_requests, self.seed, **options)  # type: ignore[arg-type]


class Study(NamedTuple):
    """A figure: the runs that it needs, and how it is built from their outcomes."""

    runs: Callable[[Scale], list[Run]]
    build: Callable[[Scale, Outcomes], Figure]


def reported_beside_simulated(
    title: str, rows: tuple[Row, ...], names: tuple[str, ...], y_title: str
) -> Chart:
    """Draw rows as pairs of bars."""
    series = {
        "reported by the paper": [row.reported for row in rows],
        "simulated": [row.simulated for row in rows],
    }
    return Chart(title, "bars", names, series, y_title=y_title)
