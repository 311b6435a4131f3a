"""Fig. 13: how many requests run at once."""

from __future__ import annotations

from collections.abc import Mapping

from minipaged.lab.figures import Figure, Row
from minipaged.lab.paper import fig2
from minipaged.lab.paper.study import (
    PAPER,
    TITLES,
    Outcomes,
    Scale,
    Study,
    reported_beside_simulated,
)
from minipaged.lab.runs import SYSTEMS, Run

REPORTED: Mapping[str, Mapping[str, float]] = {
    "sharegpt": dict(zip(SYSTEMS, (7.00, 9.81, 13.62, 30.42), strict=True)),
    "alpaca": dict(zip(SYSTEMS, (7.00, 43.24, 72.75, 132.44), strict=True)),
}
_NAMES = {"sharegpt": "ShareGPT", "alpaca": "Alpaca"}
_ALPACA_RATE = 30.0  # requests a second


def _saturated(scale: Scale, load: str, system: str) -> Run:
    return fig2.run_of(scale, system) if load == "sharegpt" else Run(scale.load(load), system)


def _with_arrivals(scale: Scale) -> Run:
    return Run(scale.load("alpaca", rate=_ALPACA_RATE))


def runs(scale: Scale) -> list[Run]:
    """Give the runs that the figure needs."""
    saturated = [_saturated(scale, load, system) for load in REPORTED for system in SYSTEMS]
    return [*saturated, _with_arrivals(scale)]


def build(scale: Scale, outcomes: Outcomes) -> Figure:
    """Build the figure."""
    rows = {
        load: tuple(
            Row(
                f"{_NAMES[load]}: {TITLES[system]}",
                number,
                outcomes[_saturated(scale, load, system)].batch,
                "requests",
                15 if load == "sharegpt" else None,
            )
            for system, number in numbers.items()
        )
        for load, numbers in REPORTED.items()
    }
    arriving = outcomes[_with_arrivals(scale)]
    at_rate = Row("Alpaca: vLLM, 30 requests/s arrive", 132.44, arriving.batch, "requests")
    names = tuple(TITLES[system] for system in SYSTEMS)
    return Figure(
        name="fig13",
        title="Requests in the batch",
        source=f"{PAPER}, fig. 13: ShareGPT at 2 requests/s, Alpaca at 30",
        method="a queue that never empties, so memory alone is the limit (and 256 sequences)",
        rows=(*rows["sharegpt"], *rows["alpaca"], at_rate),
        charts=tuple(
            reported_beside_simulated(_NAMES[load], rows[load], names, "requests in the batch")
            for load in REPORTED
        ),
        notes=(
            "Orca (Max) is arithmetic: floor(15,728 / 2,048) = 7",
            "not reproduced: Alpaca's 132.44 of vLLM, because it is no memory limit (that is "
            f"{rows['alpaca'][-1].simulated:.0f}): 30 requests/s keep fewer busy, and how many "
            f"depends on how fast the GPU was; by our cost model it is {arriving.batch:.0f}",
        ),
    )


STUDY = Study(runs, build)
