"""`minipaged zoo`: the faults of real engines, what they looked like, and what catches them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from minipaged.errors import ConfigError
from minipaged.lab import zoo


def show_zoo(name: str | None, run_all: bool, seed: int, trace: Path | None, as_json: bool) -> None:
    """List the bugs, tell one's story and hunt it, or hunt them all.

    Raises:
        ConfigError: There is no such bug, or the options contradict each other.
        NotCaughtError: The bug does no harm with this seed.
        TraceError: The trace can't be written.
    """
    if name is not None and run_all:
        raise ConfigError(f"give a name or --all, not both: {name}")
    if trace is not None and name is None:
        raise ConfigError("--trace needs the name of a bug: each has a trace of its own")
    if name is not None:
        _show_one(zoo.find(name), seed, trace, as_json)
    elif run_all:
        _show_hunts(seed, as_json)
    else:
        _show_list(as_json)


def _show_list(as_json: bool) -> None:
    if as_json:
        _print_json([_described(bug) for bug in zoo.BUGS])
        return
    table = _table("name", "what is wrong")
    for bug in zoo.BUGS:
        table.add_row(bug.name, bug.title)
    console = Console()
    console.print(table)
    console.print(
        "\nminipaged zoo NAME tells a bug's story and hunts it, minipaged zoo --all hunts all.",
        highlight=False,
    )


def _show_one(bug: zoo.Bug, seed: int, trace: Path | None, as_json: bool) -> None:
    caught = zoo.hunt(bug.name, seed)
    if trace is not None:
        caught.trace.save(trace)
    if as_json:
        _print_json({**_described(bug), "hunt": _hunted(caught, seed)})
        return
    console = Console()
    _tell(console, bug)
    broken = f"{caught.invariant}: {zoo.INVARIANTS[caught.invariant]}"
    rows = (
        (
            "caught in",
            f"operation {caught.step} of a random load (seed {seed}): {caught.operation}",
        ),
        ("invariant", broken),
        ("it says", caught.message),
    )
    _print_rows(console, rows)
    if trace is not None:
        hint = f"\nminipaged watch --replay {trace} shows the run up to there"
        console.print(hint, markup=False, highlight=False, soft_wrap=True)


def _tell(console: Console, bug: zoo.Bug) -> None:
    console.print(f"[bold]{escape(bug.name)}[/bold]: {escape(bug.title)}\n", highlight=False)
    console.print(bug.story, markup=False, highlight=False)
    console.print(Text(bug.source, style="dim"), soft_wrap=True)
    console.print(f"\nIn place of {bug.place}:\n", markup=False, highlight=False)
    code = Syntax(bug.code, "python", theme="ansi_dark", background_color="default", word_wrap=True)
    console.print(Padding(code, (0, 0, 1, 2)))
    _print_rows(console, [("you see", bug.shows)])


def _show_hunts(seed: int, as_json: bool) -> None:
    hunts = [(bug, _try(bug, seed)) for bug in zoo.BUGS]
    if as_json:
        rows = [
            {"name": bug.name, "hunt": caught and _hunted(caught, seed)} for bug, caught in hunts
        ]
        _print_json(rows)
        return
    table = _table("name", "operation", "invariant", "what it says")
    table.columns[1].justify = "right"
    for bug, caught in hunts:
        if caught is None:
            table.add_row(bug.name, "-", "-", "does no harm in this run")
        else:
            table.add_row(bug.name, str(caught.step), caught.invariant, Text(caught.message))
    console = Console()
    console.print(table)
    num_caught = sum(caught is not None for _, caught in hunts)
    console.print(
        f"\n{num_caught} of {len(hunts)} caught within {zoo.OPERATIONS} random operations, "
        f"seed {seed}; the right code breaks {_right_code(seed)}",
        highlight=False,
    )


def _right_code(seed: int) -> str:
    caught = zoo.run(seed)
    return "no invariant" if caught is None else f"{caught.invariant}: {caught.message}"


def _try(bug: zoo.Bug, seed: int) -> zoo.Caught | None:
    try:
        return zoo.hunt(bug.name, seed)
    except zoo.NotCaughtError:
        return None


def _described(bug: zoo.Bug) -> dict[str, Any]:
    names = ("name", "title", "story", "source", "shows", "caught_by", "place", "code")
    return {name: getattr(bug, name) for name in names}


def _hunted(caught: zoo.Caught, seed: int) -> dict[str, Any]:
    names = ("step", "operation", "invariant", "message")
    return {"seed": seed, **{name: getattr(caught, name) for name in names}}


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, no_wrap=title in ("name", "invariant"), overflow="fold")
    return table


def _print_rows(console: Console, rows: Any) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for title, words in rows:
        table.add_row(f"{title:<9}", Text(words))
    console.print(table)


def _print_json(document: Any) -> None:
    print(json.dumps(document, indent=2))
