"""How real beam searches went: which beam goes on from which, read from a trace or a file.

What beams save depends on how soon they part and how often one of them takes over, and only a model
knows that. `benchmarks/record_beams.py` runs one, `beam_trees` reads its events, and the trees lie
beside this file: 16 prompts, searched with 2, 4 and 6 beams. They say nothing about the texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from minipaged.errors import ConfigError
from minipaged.lab.workloads import BeamTree
from minipaged.memory.events import Event, Forked, Requested, Sampled

RECORDED = Path(__file__).with_name("beam_trees.json")


def beam_trees(events: Iterable[Event]) -> list[BeamTree]:
    """Give the tree of every beam search of a run, in order of arrival.

    >>> beam_trees([
    ...     Requested(0, "a", 3), Forked(0, 1), Sampled((0, 1), (7, 8), ("", ""), (0, 0)),
    ...     Forked(1, 2), Sampled((1, 2), (5, 6), ("", ""), (0, 0)),
    ... ])
    [((0, 0), (1, 1))]
    """
    root_of: dict[int, int] = {}
    parent_of: dict[int, int] = {}
    beams: dict[int, list[int]] = {}
    trees: dict[int, list[tuple[int, ...]]] = {}
    for event in events:
        if isinstance(event, Requested):
            root_of[event.seq], beams[event.seq], trees[event.seq] = event.seq, [event.seq], []
        elif isinstance(event, Forked):
            root_of[event.child], parent_of[event.child] = root_of[event.parent], event.parent
        elif isinstance(event, Sampled):
            for root, heirs in _by_root(event.seqs, root_of).items():
                before = beams[root]
                origins = (seq if seq in before else parent_of[seq] for seq in heirs)
                trees[root].append(tuple(map(before.index, origins)))
                beams[root] = heirs
    return [tuple(rows) for rows in trees.values()]


def _by_root(seqs: Sequence[int], root_of: dict[int, int]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    for seq in seqs:
        groups.setdefault(root_of[seq], []).append(seq)
    return groups


def write_trees(path: Path, about: dict[str, Any], trees: dict[int, Sequence[BeamTree]]) -> None:
    """Write trees by their width: a line for each, a word for each row, a digit for each beam."""
    lines = {str(width): list(map(_spell, group)) for width, group in trees.items()}
    path.write_text(json.dumps({**about, "trees": lines}, indent=1) + "\n", encoding="utf-8")


@lru_cache(maxsize=4)
def recorded_trees(width: int) -> tuple[BeamTree, ...]:
    """Give the trees that were recorded with so many beams.

    Raises:
        ConfigError: No search with that many was recorded.
    """
    lines = json.loads(RECORDED.read_text(encoding="utf-8"))["trees"]
    if str(width) not in lines:
        raise ConfigError(f"beams were recorded for widths {', '.join(lines)}, not for {width}")
    return tuple(map(_read, lines[str(width)]))


def _spell(tree: BeamTree) -> str:
    return " ".join("".join(map(str, row)) for row in tree)


def _read(line: str) -> BeamTree:
    return tuple(tuple(map(int, row)) for row in line.split())
