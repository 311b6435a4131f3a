"""`minipaged bench`: the engine's rate and its shares, against transformers if asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from statistics import median
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from minipaged.bench.worker import CONTENDERS
from minipaged.bench.workload import make_workload
from minipaged.errors import ConfigError, MinipagedError
from minipaged.models.catalog import resolve
from minipaged.models.model_files import ModelFiles

TITLES = {
    "minipaged": "minipaged",
    "generate": "transformers generate, padded batch",
    "generate_batch": "transformers generate_batch",
}


def bench(
    model: str, dtype: str, against: str | None, rounds: int, options: dict[str, Any], as_json: bool
) -> None:
    """Measure and print a table, or one JSON document.

    Raises:
        ConfigError: A setting makes no sense.
        MinipagedError: A contender failed; its last line tells why.
    """
    if against not in (None, "transformers"):
        raise ConfigError(f"--against knows transformers, not {against!r}")
    if rounds < 1:
        raise ConfigError(f"--rounds must be at least 1, not {rounds}")
    if against and find_spec("transformers") is None:
        raise ConfigError('transformers is not installed: pip install -e ".[dev]"')
    console = Console(stderr=True)
    files = resolve(model, lambda line: console.print(line, markup=False))
    make_workload(files.config.vocab_size, **options)  # what is wrong is told before it takes long
    contenders = CONTENDERS if against else CONTENDERS[:1]
    turns = _turns(contenders, rounds)
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    for name in track(turns, "measuring", console=console):
        results[name].append(_measure(name, model, dtype, options))
    report = summarize(results, files, dtype, options)
    if as_json:
        print(json.dumps(report, indent=2))
    else:
        _show(report)


def _turns(contenders: Sequence[str], rounds: int) -> list[str]:
    """Give the order of contenders: every other round backwards.

    A process leaves memory to be mapped anew and a warm chip to the next one; so none may always
    have the same one before it.

    >>> _turns(["ours", "theirs"], rounds=3)
    ['ours', 'theirs', 'theirs', 'ours', 'ours', 'theirs']
    """
    return [name for i in range(rounds) for name in contenders[:: -1 if i % 2 else 1]]


def summarize(
    results: dict[str, list[dict[str, Any]]], files: ModelFiles, dtype: str, options: dict[str, Any]
) -> dict[str, Any]:
    """Turn the rounds of each contender into rates (tokens a second, medians) and ratios."""
    workload = make_workload(files.config.vocab_size, **options)
    tokens = workload.num_new_tokens

    def rate(name: str, key: str = "seconds") -> float:
        return tokens / float(median(s for round_ in results[name] for s in round_[key]))

    ours = results["minipaged"]
    rates = {TITLES[name]: rate(name) for name in results}
    costs = [
        traced / plain - 1
        for round_ in ours
        for plain, traced in zip(round_["seconds"], round_["traced_seconds"], strict=True)
    ]
    peaks = {TITLES[n]: median(r["peak_bytes"] or 0 for r in results[n]) for n in results}
    return {
        "model": files.name,
        "dtype": dtype,
        "requests": len(workload.prompts),
        "prompt_tokens": sum(map(len, workload.prompts)),
        "new_tokens": tokens,
        "tokens_per_second": rates,
        "linear_layers_alone": rate("minipaged", "linear_seconds"),
        "ratios": {title: rates["minipaged"] / r for title, r in rates.items()},
        "shares": {k: median(r["shares"][k] for r in ours) for k in ours[0]["shares"]},
        "tracing_cost": median(costs),
        "peak_bytes": peaks,
    }


def _measure(name: str, model: str, dtype: str, options: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "minipaged.bench.worker", name, model, dtype, "1"]
    done = subprocess.run([*command, json.dumps(options)], capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise MinipagedError(f"{TITLES[name]} failed: {last}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def _show(report: dict[str, Any]) -> None:
    console = Console()
    console.print(
        f"{report['model']}, {report['dtype']}: {report['requests']} requests, "
        f"{report['prompt_tokens']} prompt tokens, {report['new_tokens']} new ones",
        markup=False,
        highlight=False,
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for title in ("tokens/s", "minipaged is", "peak memory"):
        table.add_column(title, justify="right")
    table.add_row("linear layers alone (bound)", f"{report['linear_layers_alone']:.0f}", "", "")
    for title, rate in report["tokens_per_second"].items():
        peak = f"{report['peak_bytes'][title] / 2**20:.0f} MiB"
        table.add_row(title, f"{rate:.0f}", f"{report['ratios'][title]:.2f} x", peak)
    console.print(table)
    shares = ", ".join(f"{name} {share:.0%}" for name, share in report["shares"].items())
    console.print(f"a run of ours: {shares}; tracing costs {report['tracing_cost']:.1%}")
