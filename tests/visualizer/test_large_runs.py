"""Large runs: a trace is read as a stream, and any place of it is reached at once."""

from __future__ import annotations

import gzip
import random
import time
from pathlib import Path

import pytest
from large_trace import Run
from minipaged_visualizer.timeline import KEYFRAME_STEPS, MAX_KEYFRAMES, Position, Timeline

from minipaged.errors import TraceError
from minipaged.memory import trace as trace_module
from minipaged.memory.integrity import check_trace
from minipaged.memory.replay import Replay
from minipaged.memory.trace import Trace, TraceReader
from minipaged.memory.trace_format import header_line

LOAD_SECONDS, SCRUB_SECONDS = 9, 0.3  # three times what is promised: a machine may be busy


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """10,000 steps of 32 sequences on 16,384 blocks, gzipped."""
    run = Run(num_blocks=16_384, num_running=32)
    trace = Trace(run.header)
    trace.steps.extend(run.steps(10_000))
    path = tmp_path_factory.mktemp("large") / "run.jsonl.gz"
    trace.save(path)
    return path


def test_a_large_run_loads_and_is_scrubbed_through(large: Path) -> None:
    start = time.process_time()
    with TraceReader(large) as reader:
        timeline = Timeline(reader.header)
        for step in reader:
            timeline.append(step)
    assert time.process_time() - start < LOAD_SECONDS
    assert (len(timeline.steps), max(timeline.used_history)) == (10_000, 1984)
    rng = random.Random(7)
    for _ in range(20):
        start = time.process_time()
        timeline.go_to_step(rng.randrange(10_000))
        assert time.process_time() - start < SCRUB_SECONDS


def test_a_large_run_keeps_every_rule() -> None:
    run = Run(num_blocks=1024, num_running=16)
    state = Replay(run.header.num_blocks, run.header.block_size)
    for step in run.steps(1500):
        for event in step.events:
            state.apply(event)
    assert state.num_used == state.snapshot().num_used
    assert sum(s.status == "finished" for s in state.sequences.values()) > 5


def test_keyframes_are_thinned_out_and_still_lead_to_the_right_place() -> None:
    run = Run(num_blocks=64, num_running=1)
    steps = list(run.steps(KEYFRAME_STEPS * MAX_KEYFRAMES * 2 + 100))
    timeline = Timeline(run.header)
    for step in steps:
        timeline.append(step)
    rng = random.Random(3)
    for _ in range(12):
        number = rng.randrange(len(steps))
        timeline.go_to(Position(number, 1))
        state = Replay(64, run.header.block_size)
        for step in steps[:number]:
            for event in step.events:
                state.apply(event)
        state.apply(steps[number].events[0])
        assert timeline.state.snapshot() == state.snapshot()
        assert timeline.state.sequences == state.sequences


def test_a_reader_holds_one_line_at_a_time(large: Path) -> None:
    with TraceReader(large) as reader:
        first = next(iter(reader))
        assert (first.step, reader.line_number) == (0, 2)


def test_a_bomb_of_one_endless_line_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_module, "MAX_LINE_BYTES", 2**16)
    path = tmp_path / "bomb.jsonl.gz"
    header = header_line(Run(4, 1).header)
    path.write_bytes(gzip.compress(header + b" " * 2**24, mtime=0))
    assert path.stat().st_size < 2**15
    for read in (Trace.load, check_trace):
        with pytest.raises(TraceError, match=r"line 2 is longer than 65536 bytes$"):
            read(path)


def test_a_truncated_gzip_is_one_clear_line(large: Path, tmp_path: Path) -> None:
    path = tmp_path / "half.jsonl.gz"
    path.write_bytes(large.read_bytes()[:2000])
    with pytest.raises(TraceError, match=r"half.jsonl.gz: can't be read after line \d+: .*") as e:
        Trace.load(path)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\0", b"{}\n", b"", b"hello\n" * 9])
@pytest.mark.parametrize("pack", [bytes, lambda content: gzip.compress(content, mtime=0)])
def test_a_foreign_file_is_one_clear_line(content, pack, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(pack(content))
    with pytest.raises(TraceError) as e:
        Trace.load(path)
    assert str(path) in str(e.value)
    assert "\n" not in str(e.value)
