"""Fig. 1 and table 1: what the parameters leave for the KV cache. Arithmetic, no simulation."""

from __future__ import annotations

from minipaged.lab.figures import Chart, Figure, Row
from minipaged.lab.hardware import GIB
from minipaged.lab.models import MODELS
from minipaged.lab.paper.study import PAPER, Outcomes, Scale, Study
from minipaged.lab.runs import Run

_GB = 1e9

# Table 1: model, GB of all GPUs, GB of parameters, GB for KV, thousands of slots.
_TABLE = (
    ("opt-13b", 40, 26, 12, 15.7),
    ("opt-66b", 160, 132, 21, 9.7),
    ("opt-175b", 640, 346, 264, 60.1),
)


def runs(scale: Scale) -> list[Run]:
    """Give the runs that the figure needs: none."""
    return []


def build(scale: Scale, outcomes: Outcomes) -> Figure:
    """Build the figure."""
    rows = [
        Row("A100-40GB: 13B's parameters", 65.0, _share("opt-13b"), "%", 3),
        Row("A100-40GB: KV cache", 30.0, 100 * 12 / 40, "%", 3, "> 30 %"),
    ]
    for name, _, parameters, kv, slots in _TABLE:
        model = MODELS[name]
        ours = kv * GIB / model.kv_bytes_per_token() / 1000
        weights = model.weight_bytes() / _GB
        rows.append(Row(f"{name}: parameters", parameters, weights, "GB", 3))
        rows.append(Row(f"{name}: slots in {kv} GB", slots, ours, "thousand", 3))
    left = 100 - _share("opt-13b") - 30
    shares = {"parameters": [_share("opt-13b")], "KV cache": [30.0], "the rest": [left]}
    return Figure(
        name="fig1",
        title="What a 13B model's parameters leave for the KV cache",
        source=f"{PAPER}, fig. 1 (left) and table 1",
        method="arithmetic: the models' shapes in fp16; KV memory as table 1 gives it, in GiB",
        rows=tuple(rows),
        charts=(
            Chart(
                "OPT-13B on an A100-40GB",
                "stacked",
                ("simulated",),
                shares,
                y_title="% of the GPU's memory",
            ),
        ),
        notes=(
            "not reproduced: fig. 1 (right), memory and throughput over the batch size, because "
            "the paper prints no numbers there; fig13 tells how many requests run at once",
            "opt-175b has 174.6 billion parameters: 349 GB, where the paper has 346",
        ),
    )


def _share(name: str) -> float:
    return 100 * MODELS[name].weight_bytes() / (40 * _GB)


STUDY = Study(runs, build)
