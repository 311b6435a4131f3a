"""Fig. 15: memory saved where the sequences of a request share blocks."""

from __future__ import annotations

from collections.abc import Mapping

from minipaged.lab.figures import Chart, Figure, Row
from minipaged.lab.paper.study import PAPER, Outcomes, Scale, Study
from minipaged.lab.runs import Run

WIDTHS = (2, 4, 6)

# % of the blocks without sharing, Alpaca.
SAMPLES: Mapping[int, float] = {2: 6.09, 4: 8.53, 6: 9.79}
BEAMS: Mapping[int, float] = {2: 37.56, 4: 53.13, 6: 55.16}
_SHAREGPT_SAMPLES = {2: 16.2, 6: 30.5}  # the ends of the range in section 6.3
_PART = 0.1  # of the requests, for ShareGPT


def run_of(scale: Scale, width: int, beams: bool) -> Run:
    """Give the run with so many samples or beams of each Alpaca request."""
    return Run(scale.load("alpaca", width=width, beams=beams))


def _sharegpt(scale: Scale, width: int) -> Run:
    return Run(scale.load("sharegpt", _PART, width=width))


def runs(scale: Scale) -> list[Run]:
    """Give the runs that the figure needs."""
    alpaca = [run_of(scale, width, beams) for width in WIDTHS for beams in (False, True)]
    return [*alpaca, *(_sharegpt(scale, width) for width in _SHAREGPT_SAMPLES)]


def build(scale: Scale, outcomes: Outcomes) -> Figure:
    """Build the figure."""
    samples = {n: outcomes[run_of(scale, n, False)] for n in WIDTHS}
    beams = {n: outcomes[run_of(scale, n, True)] for n in WIDTHS}
    rows = (
        *(
            Row(f"(a) {n} samples, by request", SAMPLES[n], 100 * o.saved_by_request, "%", 2.5)
            for n, o in samples.items()
        ),
        *(
            Row(f"(a) {n} samples, over time", SAMPLES[n], 100 * o.saved)
            for n, o in samples.items()
        ),
        *(
            Row(f"(b) {n} beams, by request", BEAMS[n], 100 * o.saved_by_request)
            for n, o in beams.items()
        ),
        *(Row(f"(b) {n} beams, over time", BEAMS[n], 100 * o.saved) for n, o in beams.items()),
        *(
            Row(
                f"ShareGPT, {n} samples, over time",
                paper,
                100 * outcomes[_sharegpt(scale, n)].saved,
            )
            for n, paper in _SHAREGPT_SAMPLES.items()
        ),
    )
    return Figure(
        name="fig15",
        title="Blocks that samples and beams of one request share, on lengths like Alpaca's",
        source=f"{PAPER}, fig. 15; for ShareGPT section 6.3 (16.2 to 30.5 %)",
        method="blocks saved / blocks without sharing; beams go as SmolLM2-135M's really went",
        rows=rows,
        charts=(_chart("samples", SAMPLES, rows[:6]), _chart("beams", BEAMS, rows[6:12])),
        notes=(
            "the paper doesn't say what its average is taken over. By request: each counts once, "
            "when it ends. Over time: long ones count more, so it depends on how far the lengths "
            "spread, which is assumed, and is not within 2.5 points",
            "beams of a 135M model on 16 prompts of ours; the paper's were OPT-13B's on Alpaca's",
            "not reproduced: beams on ShareGPT (44.3 to 66.3 %), because the trees were recorded "
            "for 192 tokens, and its answers are longer",
        ),
    )


def _chart(what: str, reported: Mapping[int, float], rows: tuple[Row, ...]) -> Chart:
    half = len(rows) // 2
    series: dict[str, list[float | None]] = {
        "reported by the paper": list(reported.values()),
        "simulated, by request": [row.simulated for row in rows[:half]],
        "simulated, over time": [row.simulated for row in rows[half:]],
    }
    return Chart(
        f"memory saved by sharing: {what}",
        "bars",
        [f"{n} {what}" for n in reported],
        series,
        y_title="% of the blocks without sharing",
    )


STUDY = Study(runs, build)
