"""Every figure by its name, and how to rebuild several at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from minipaged.errors import ConfigError
from minipaged.lab.figures import Figure
from minipaged.lab.paper import fig1, fig2, fig13, fig14, fig15, fig16, fig18, fig19
from minipaged.lab.paper.study import Scale, Study
from minipaged.lab.runs import measure_all

STUDIES: Mapping[str, Study] = {
    "fig1": fig1.STUDY,
    "fig2": fig2.STUDY,
    "fig13": fig13.STUDY,
    "fig14": fig14.STUDY,
    "fig15": fig15.STUDY,
    "fig16": fig16.STUDY,
    "fig18": fig18.STUDY,
    "fig19": fig19.STUDY,
}


def rebuild(
    names: Sequence[str],
    scale: Scale,
    workers: int = 1,
    tell: Callable[[int, int], object] | None = None,
) -> list[Figure]:
    """Rebuild figures; "all" is each of them. Runs that several need are carried out once.

    Raises:
        ConfigError: There is no figure of that name.
    """
    wanted = list(STUDIES) if "all" in names else list(dict.fromkeys(names))
    for name in wanted:
        if name not in STUDIES:
            raise ConfigError(f"figures are {', '.join(STUDIES)} or all, not {name!r}")
    runs = [run for name in wanted for run in STUDIES[name].runs(scale)]
    outcomes = measure_all(runs, workers, tell)
    return [STUDIES[name].build(scale, outcomes) for name in wanted]
