"""`minipaged slabs`: the same requests in contiguous and in paged memory, side by side."""

from __future__ import annotations

from pathlib import Path

from minipaged_visualizer.whole_file import write_whole
from rich.console import Console
from rich.table import Table
from rich.text import Text

from minipaged.lab.side_by_side import RunSummary, Scene, run_side_by_side, summarize

_NAMES = {"max": "slabs (Max)", "pow2": "slabs (Pow2)", "oracle": "slabs (Oracle)"}


def show_slabs(scene: Scene, output: Path | None) -> None:
    """Run a scene twice; print how it went, or write a page that plays both.

    Raises:
        TraceError: The page can't be written.
    """
    runs = run_side_by_side(scene)
    if output is not None:
        from minipaged_visualizer.side_by_side_page import side_by_side_html

        page = side_by_side_html(runs.slabs, runs.paged)
        write_whole(output, page)
        print(f"{output}: both runs, {len(page.encode()) / 1024:.0f} KiB")
        return
    _print(scene, summarize(runs.slabs), summarize(runs.paged))


def _print(scene: Scene, slabs: RunSummary, paged: RunSummary) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("", _NAMES[scene.policy], "paged"):
        table.add_column(title, overflow="fold")
    for title, *words in _rows(slabs, paged):
        table.add_row(title, *map(Text, words))
    console = Console()
    console.print(
        f"{scene.num_requests} requests, a pool of {scene.num_blocks} blocks of "
        f"{scene.block_size} slots, texts of at most {scene.max_model_len} tokens:\n",
        highlight=False,
    )
    console.print(table)
    console.print("\nminipaged slabs -o page.html plays both, step by step.", highlight=False)


def _rows(*runs: RunSummary) -> list[tuple[str, ...]]:
    return [
        ("steps to finish", *(str(run.num_steps) for run in runs)),
        ("most requests at once", *(str(run.most_running) for run in runs)),
        ("slots that hold tokens, on average", *(f"{run.token_share:.0%}" for run in runs)),
        ("slots that are held, and empty", *(f"{run.empty_share:.0%}" for run in runs)),
        ("requests that gave way", *(str(run.num_preemptions) for run in runs)),
        ("the first that must wait", *map(_first_wait, runs)),
    ]


def _first_wait(run: RunSummary) -> str:
    return "nobody" if run.first_wait is None else f"step {run.first_wait}: {run.why}"
