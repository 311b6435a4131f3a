"""Fig. 16: throughput where all prompts begin with the same examples."""

from __future__ import annotations

from collections.abc import Mapping

from minipaged.lab.figures import Figure, Row
from minipaged.lab.loads import TRANSLATION
from minipaged.lab.paper.study import (
    PAPER,
    Outcomes,
    Scale,
    Study,
    reported_beside_simulated,
)
from minipaged.lab.runs import Run

# Tokens of the prefix: requests/s of vLLM against Orca (Oracle).
REPORTED: Mapping[int, float] = {80: 1.67, 341: 3.58}


def _run(scale: Scale, prefix: int, system: str, shared: bool = False) -> Run:
    load = scale.load("translation", prefix=prefix)
    return Run(load, system, model="llama-13b", prefix_caching=shared)


def _contenders(scale: Scale, prefix: int) -> tuple[Run, Run, Run]:
    return (
        _run(scale, prefix, "paged", shared=True),
        _run(scale, prefix, "paged"),
        _run(scale, prefix, "orca-oracle"),
    )


def runs(scale: Scale) -> list[Run]:
    """Give the runs that the figure needs."""
    return [run for prefix in REPORTED for run in _contenders(scale, prefix)]


def build(scale: Scale, outcomes: Outcomes) -> Figure:
    """Build the figure."""
    ratios, unshared = [], []
    for prefix, reported in REPORTED.items():
        with_cache, without, slabs = (
            outcomes[run].requests_per_second for run in _contenders(scale, prefix)
        )
        ratios.append(Row(f"prefix of {prefix} tokens, shared", reported, with_cache / slabs, "x"))
        unshared.append(Row(f"prefix of {prefix} tokens, not shared", None, without / slabs, "x"))
    names = tuple(f"{prefix} tokens" for prefix in REPORTED)
    return Figure(
        name="fig16",
        title="Throughput of vLLM against Orca (Oracle) where prompts share a prefix",
        source=f"{PAPER}, fig. 16 and section 6.4, LLaMA-13B, English to German",
        method="requests/s where somebody always waits, by the cost model of an A100-40GB",
        rows=(*ratios, *unshared),
        charts=(
            reported_beside_simulated(
                "requests/s against Orca (Oracle)", tuple(ratios), names, "x"
            ),
        ),
        notes=(
            f"the paper prints no lengths: {TRANSLATION.mean_prompt:g} tokens to translate and "
            f"{TRANSLATION.mean_new:g} of the answer are assumed, log-normal, and decide the ratio",
            "the prefix cache shares full blocks: 80 tokens are 5, of 341 tokens 336 are shared",
            "256 sequences at once are the limit of the paged runs, not memory",
        ),
    )


STUDY = Study(runs, build)
