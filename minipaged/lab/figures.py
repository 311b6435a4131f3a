"""A figure as data: rows of reported beside simulated numbers, charts, and what has to be said.

Whoever shows it (a terminal, a page, JSON) draws it; here is no view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One number of the paper, and ours.

    Attributes:
        what: What it counts.
        reported: By the paper; None where it prints none.
        simulated: By us; None where it is not reproduced, and a note says why.
        unit: "%" compares by points, anything else by percent of what is reported.
        goal: The most that they should differ.
        words: What the paper says where it prints no number.
    """

    what: str
    reported: float | None
    simulated: float | None
    unit: str = "%"
    goal: float | None = None
    words: str = ""

    @property
    def deviation(self) -> float | None:
        """Points where the unit is %, else percent of what is reported; ours minus theirs.

        >>> Row("tokens", 20.0, 21.5).deviation, Row("requests", 10.0, 11.0, unit="").deviation
        (1.5, 10.0)
        """
        if self.reported is None or self.simulated is None:
            return None
        difference = self.simulated - self.reported
        return difference if self.unit == "%" else 100 * difference / self.reported

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is met; None if there is none."""
        if self.goal is None or self.deviation is None:
            return None
        return abs(self.deviation) <= self.goal


@dataclass(frozen=True)
class Chart:
    """Numbers to draw.

    Attributes:
        title: One line.
        kind: "bars", "stacked" (bars that add up) or "lines".
        x: What stands on the axis below: names, or numbers that double.
        series: A name and a value for each x.
        x_title: With its unit.
        y_title: With its unit.
    """

    title: str
    kind: str
    x: Sequence[str | int]
    series: Mapping[str, Sequence[float | None]]
    x_title: str = ""
    y_title: str = ""


@dataclass(frozen=True)
class Figure:
    """One figure of the paper, rebuilt.

    Attributes:
        name: What users type.
        title: What it shows.
        source: Where in the paper the reported numbers stand.
        method: How ours came about.
        rows: Reported beside simulated.
        charts: At least one.
        notes: What follows; "not reproduced: ..." where so.
    """

    name: str
    title: str
    source: str
    method: str
    rows: tuple[Row, ...]
    charts: tuple[Chart, ...] = ()
    notes: tuple[str, ...] = ()
