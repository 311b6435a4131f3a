"""Fig. 14: throughput with samples and beams."""

from __future__ import annotations

from minipaged.lab.figures import Chart, Figure, Row
from minipaged.lab.paper import fig15
from minipaged.lab.paper.study import PAPER, Outcomes, Scale, Study
from minipaged.lab.runs import Run

_BASIC, _BEAMS_6 = 1.3, 2.3  # vLLM against Orca (Oracle), OPT-13B and Alpaca, section 6.3


def _paged(scale: Scale, width: int, beams: bool) -> Run:
    return fig15.run_of(scale, width, beams) if width > 1 else Run(scale.load("alpaca"))


def _slabs(scale: Scale, width: int) -> Run:
    """Beams can't run in slabs here: as many samples stand in, which spares Orca their copies."""
    return Run(scale.load("alpaca", width=width), "orca-oracle")


def runs(scale: Scale) -> list[Run]:
    """Give the runs that the figure needs."""
    widths = (1, *fig15.WIDTHS)
    paged = [_paged(scale, width, beams) for width in widths for beams in (False, True)]
    return [*paged, *(_slabs(scale, width) for width in widths)]


def build(scale: Scale, outcomes: Outcomes) -> Figure:
    """Build the figure."""
    widths = (1, *fig15.WIDTHS)

    def ratio(width: int, beams: bool) -> float:
        paged = outcomes[_paged(scale, width, beams)].requests_per_second
        return paged / outcomes[_slabs(scale, width)].requests_per_second

    samples = [ratio(width, False) for width in widths]
    beams = [ratio(width, True) for width in widths]
    return Figure(
        name="fig14",
        title="Throughput of vLLM against Orca (Oracle), samples and beams, like Alpaca's",
        source=f"{PAPER}, section 6.3 about fig. 14, OPT-13B",
        method="requests/s where somebody always waits, by the cost model of an A100-40GB",
        rows=(
            Row("one sample", _BASIC, samples[0], "x"),
            *(
                Row(f"{n} samples", None, s, "x")
                for n, s in zip(widths[1:], samples[1:], strict=True)
            ),
            *(
                Row(f"{n} beams", None, b, "x")
                for n, b in zip(widths[1:-1], beams[1:-1], strict=True)
            ),
            Row("6 beams", _BEAMS_6, beams[-1], "x"),
        ),
        charts=(
            Chart(
                "requests/s against Orca (Oracle)",
                "lines",
                widths,
                {"samples": samples, "beams": beams},
                "samples or beams of a request",
                "x",
            ),
        ),
        notes=(
            "not reproduced: curves of latency over the request rate. The paper compares the rates "
            "that a bearable latency allows, we those that memory allows",
            "reading a block that beams share is counted once for each of them; slabs are "
            "spared the copies that beams would cost them",
        ),
    )


STUDY = Study(runs, build)
