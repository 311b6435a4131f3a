"""Rows of a benchmark: how long something takes, what that means, and how it is shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from statistics import median

import torch


@dataclass(frozen=True)
class Row:
    """One figure, or why there is none. `share` is in percent of what the section compares with."""

    section: str
    name: str
    milliseconds: float | None = None
    gb_per_s: float | None = None
    share: float | None = None
    tokens_per_s: float | None = None
    error: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Clock:
    """Measures how long a call takes: `calls` of it together, `rounds` times."""

    device: torch.device
    rounds: int = 7
    calls: int = 5
    warmups: int = 2  # the first call compiles

    def milliseconds(self, call: Callable[[], object]) -> float:
        """Give the median time of a call."""
        for _ in range(self.warmups):
            call()
        measure = self._on_gpu if self.device.type == "cuda" else self._on_cpu
        return median(measure(call) for _ in range(self.rounds)) / self.calls

    def _on_gpu(self, call: Callable[[], object]) -> float:
        start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        start.record()
        for _ in range(self.calls):
            call()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end))

    def _on_cpu(self, call: Callable[[], object]) -> float:
        start = time.perf_counter()
        for _ in range(self.calls):
            call()
        return 1e3 * (time.perf_counter() - start)


def measured(
    clock: Clock,
    section: str,
    name: str,
    call: Callable[[], object],
    num_bytes: int = 0,
    reference: float = 0.0,
) -> Row:
    """Measure a call that moves `num_bytes`; `reference` is the GB/s that count as 100 %.

    Whatever goes wrong becomes the row's note: one kernel that a stack can't run must not cost the
    other figures.
    """
    try:
        took = clock.milliseconds(call)
    except Exception as e:
        return Row(section, name, note=f"{type(e).__name__}: {e}".splitlines()[0][:120])
    rate = num_bytes / took / 1e6 or None
    share = 100 * rate / reference if rate and reference else None
    return Row(section, name, took, rate, share)


def as_json(rows: Iterable[Row]) -> list[dict[str, object]]:
    """Give rows with the fields that they have."""
    return [{k: v for k, v in asdict(row).items() if v not in (None, "")} for row in rows]


def as_table(rows: Iterable[Row]) -> str:
    """Give a table in Markdown for each section.

    >>> print(as_table([Row("decode", "block 16", 0.25, 4000.0, 93.0)]), end="")
    <BLANKLINE>
    ## decode
    <BLANKLINE>
    | name | milliseconds | gb_per_s | share |
    | --- | --- | --- | --- |
    | block 16 | 0.25 | 4000 | 93 |
    """
    text = ""
    for section, group in groupby(rows, key=lambda row: row.section):
        members = list(group)
        names = [f.name for f in fields(Row)][1:]
        shown = [n for n in names if any(getattr(r, n) not in (None, "") for r in members)]
        lines = [shown, ["---"] * len(shown)]
        lines += [[_cell(getattr(row, name)) for name in shown] for row in members]
        text += f"\n## {section}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return text


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    return f"{value:.3g}" if isinstance(value, float) and abs(value) < 1000 else _whole(value)


def _whole(value: object) -> str:
    return f"{value:.0f}" if isinstance(value, float) else str(value)
