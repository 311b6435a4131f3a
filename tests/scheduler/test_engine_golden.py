"""Small scenes, event by event, byte for byte: what a trace of the engine looks like.

The files under tests/golden/ are documentation as well: `minipaged watch --replay` shows them. A
refactoring may not change them; `UPDATE_GOLDEN=1` writes them anew, to be read before a commit.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from minipaged.memory.events import (
    BlockCopied,
    BlockEvicted,
    Finished,
    Forked,
    Preempted,
    PrefixHit,
    SwappedIn,
    SwappedOut,
)
from minipaged.memory.integrity import check_trace
from minipaged.memory.trace import Trace

from .scripted_model import ScriptedEngine

GOLDEN = Path(__file__).parent.parent / "golden"


def check_golden(engine: ScriptedEngine, name: str, folder: Path) -> None:
    """Compare the engine's trace with the file of that name; the file itself must be sound."""
    engine.finish()
    path, golden = folder / "trace.jsonl", GOLDEN / f"engine_{name}.jsonl"
    engine.trace.save(path)
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_bytes(path.read_bytes())
    assert path.read_bytes() == golden.read_bytes(), f"{golden} tells another story"
    check_trace(golden)
    assert Trace.load(golden) == engine.trace


def of_kind(engine: ScriptedEngine, kind: type) -> list:
    return [event for event in engine.trace.events if isinstance(event, kind)]


def test_a_prefix_is_found_again_until_it_is_evicted(tmp_path):
    engine = ScriptedEngine(4, title="a prefix is found again, until it is evicted")
    engine.add("tellastory", max_tokens=2)
    engine.finish()
    again = engine.add("tellasecret", max_tokens=2)
    engine.finish()
    engine.add("somethingelse", max_tokens=2)
    engine.finish()
    last = engine.add("tellajoke", max_tokens=1)
    engine.finish()
    assert (again.num_cached_tokens, last.num_cached_tokens) == (4, 0)
    (hit,) = of_kind(engine, PrefixHit)
    (evicted,) = (event for event in of_kind(engine, BlockEvicted) if event.block in hit.blocks)
    assert evicted.for_seq == 2
    check_golden(engine, "prefix_hit_and_eviction", tmp_path)


def test_three_samples_part_by_copy_on_write(tmp_path):
    engine = ScriptedEngine(7, title="three samples share a prompt and part by copy-on-write")
    engine.add("themoon", n=3, max_tokens=4, seed=7)
    engine.finish()
    assert [(e.parent, e.child) for e in of_kind(engine, Forked)] == [(0, 1), (0, 2)]
    copies = of_kind(engine, BlockCopied)
    assert [(e.seq, e.source) for e in copies] == [(0, 1), (1, 1)]
    assert [e.why for e in copies] == [
        "copy-on-write: block 1 is shared by 3",
        "copy-on-write: block 1 is shared by 2",
    ]
    check_golden(engine, "samples_copy_on_write", tmp_path)


def test_the_latest_arrival_is_recomputed(tmp_path):
    engine = ScriptedEngine(6, title="memory runs out: the latest arrival is recomputed later")
    engine.add("thesea", max_tokens=8)
    engine.add("awhiteboat", n=2, max_tokens=5)
    engine.finish()
    preempted = of_kind(engine, Preempted)
    assert {(e.seq, e.how) for e in preempted} == {(1, "recompute"), (2, "recompute")}
    assert [(e.parent, e.child) for e in of_kind(engine, Forked)] == [(1, 2), (1, 2)]
    check_golden(engine, "preempt_recompute", tmp_path)


def test_the_latest_arrival_is_swapped_out_and_back(tmp_path):
    title = "memory runs out: the latest arrival moves to the swap pool and back"
    engine = ScriptedEngine(6, title=title, num_swap_blocks=4, preemption="swap")
    engine.add("thesea", max_tokens=8)
    engine.add("awhiteboat", n=2, max_tokens=5)
    engine.finish()
    assert {(e.seq, e.how) for e in of_kind(engine, Preempted)} == {(1, "swap"), (2, "swap")}
    assert [e.seq for e in of_kind(engine, SwappedOut)] == [1, 2]
    assert [e.seq for e in of_kind(engine, SwappedIn)] == [1, 2]
    check_golden(engine, "preempt_swap", tmp_path)


def test_beams_fork_and_lose(tmp_path):
    pytest.importorskip("torch")
    engine = ScriptedEngine(12, title="a beam search of width 3: beams fork, and losers are freed")
    engine.add("stars", beam_width=3, max_tokens=5)
    engine.finish()
    assert len(of_kind(engine, Forked)) > 3
    assert any(event.why == "beam" for event in of_kind(engine, Finished))
    assert of_kind(engine, BlockCopied)
    check_golden(engine, "beams", tmp_path)
