"""Comparisons: each question has an answer that follows from memory, not from chance."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from minipaged.commands.compare import show_comparison
from minipaged.errors import ConfigError
from minipaged.lab.compare import QUESTIONS, compare
from minipaged.lab.eviction import HeadFirstManager
from minipaged.lab.loads import Load
from minipaged.lab.runs import Run, measure
from minipaged.memory.kv_cache_manager import KVCacheManager


def cached_after_eviction(kind: type[KVCacheManager]) -> int:
    """Fill a pool of 8 blocks with a prefix of 6, free it, and let another one evict 4 blocks."""
    manager = kind(8, 2)
    prompt = list(range(13))
    manager.allocate(0, prompt)
    manager.commit([(0, prompt)])
    manager.free(0)
    manager.allocate(1, [99, 98, 97, 96, 95, 94, 93, 92])
    return manager.count_cached_tokens(prompt)


def test_head_first_a_prefix_is_lost_at_once() -> None:
    assert cached_after_eviction(KVCacheManager) == 8  # 2 free blocks, then the tail's two
    assert cached_after_eviction(HeadFirstManager) == 0


def test_tail_first_finds_more_of_a_chat() -> None:
    load = Load("chat", 120, rate=16.0)
    small = {"num_slots": 6000, "prefix_caching": True}
    tail, head = measure(Run(load, **small)), measure(Run(load, **small, head_first=True))
    assert tail.cached > head.cached > 0


def test_swap_moves_blocks_and_recompute_none() -> None:
    load = Load("sharegpt", 60)
    swap = measure(Run(load, preemption="swap", num_slots=6000))
    recompute = measure(Run(load, num_slots=6000))
    assert min(swap.num_preemptions, recompute.num_preemptions) > 0
    assert swap.num_swapped_blocks > 0 == recompute.num_swapped_blocks
    assert swap.num_finished == recompute.num_finished == 60


def test_small_blocks_are_slow_to_swap() -> None:
    load = Load("sharegpt", 60)
    slow, fast = (
        measure(Run(load, preemption="swap", num_slots=6000, block_size=size)) for size in (1, 32)
    )
    assert slow.normalized_latency > 1.05 * fast.normalized_latency


def test_a_shared_prompt_is_cached_and_first_tokens_come_sooner() -> None:
    load = Load("alpaca", 100, prefix=341)
    on, off = measure(Run(load, prefix_caching=True)), measure(Run(load))
    assert on.cached > 0.5 > 0 == off.cached
    assert on.ttft < off.ttft


def test_chunks_make_steps_even() -> None:
    load = Load("documents", 60, rate=2.0)
    whole, chunks = measure(Run(load)), measure(Run(load, chunk=512))
    assert chunks.slow_step < 0.7 * whole.slow_step


def test_static_batches_are_slower() -> None:
    load = Load("sharegpt", 40)
    static = measure(Run(load, "orca-max", batching="static"))
    continuous = measure(Run(load, "orca-max"))
    assert continuous.requests_per_second > 1.3 * static.requests_per_second


@pytest.mark.slow
@pytest.mark.parametrize("name", QUESTIONS)
def test_every_question_has_an_answer(name: str) -> None:
    found = compare(name, 60, workers=2)
    assert len(found.rows()) >= 3
    assert all(len(row) == len(found.question.measures) for row in found.rows().values())
    assert found.chart().series


def test_an_unknown_question_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"compare preemption, .* not 'coffee'"):
        compare("coffee", 10)


@pytest.mark.parametrize("columns", [80, 120])
def test_the_table_fits(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    show_comparison("chunked-prefill", 8, 0, False, None)
    out = capsys.readouterr().out
    assert "whole prompts" in out
    assert max(map(len, out.splitlines())) <= columns


def test_json_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("plotly")
    show_comparison("chunked-prefill", 8, 0, True, tmp_path / "compare.html")
    document = json.loads(capsys.readouterr().out)
    assert "slow step (ms)" in document["results"]["whole prompts"]
    assert "Whole prompts or chunks" in (tmp_path / "compare.html").read_text(encoding="utf-8")


def test_a_script_without_the_usual_guard_is_told_so(tmp_path: Path) -> None:
    """Its processes end as soon as they begin; others would be started for ever."""
    script = tmp_path / "script.py"
    call = "compare('batching', 20, workers=2)"
    script.write_text(f"from minipaged.lab.compare import compare\n{call}\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    words = "ConfigError: a process ended before its run did: a script that takes several needs"
    assert words in done.stderr  # what the processes that ended have to say may come behind it
