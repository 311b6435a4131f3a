"""The browser's reducer equals Python's after every event: golden, scene and random traces.

The random ones come from the real scheduler and manager on the scripted model, in pools that are
too small: forks, copies, swaps, preemption, eviction, prefix hits, beams and aborts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import random
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from minipaged_visualizer import timeline as python_timeline
from scenes import everything
from scheduler.scripted_model import ScriptedEngine

from minipaged.engine.sampling_params import BeamSearchParams, SamplingParams
from minipaged.errors import OutOfBlocksError, RequestRefusedError
from minipaged.memory.contiguous import ContiguousManager
from minipaged.memory.events import EVENT_TYPES, Attended, Finished, KernelAccess, Requested
from minipaged.memory.replay import Replay
from minipaged.memory.reservation import ReserveMax
from minipaged.memory.trace import Trace, TraceHeader

HERE = Path(__file__).parent
STATIC = Path(python_timeline.__file__).parent / "static"
GOLDEN = sorted((HERE.parent / "golden").glob("*.jsonl"))
NUM_RANDOM, NUM_SLABS = 200, 10
STEMS = ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [1, 2, 3, 4, 11, 12, 13, 14, 15, 16])
NODE = shutil.which("node")
TYPES = {
    "int": "int",
    "str": "str",
    "tuple[int, ...]": "ints",
    "tuple[str, ...]": "strs",
    "tuple[tuple[int, int], ...]": "pairs",
}

pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node.js")


def canonical(state: Replay) -> str:
    """All of a state as one text; `canonical` of reducer.test.mjs gives the same."""
    memory = state.snapshot()
    rows = [
        state.ref_counts,
        [[list(token) for token in content] for content in state.contents],
        sorted(state.hashes.items()),
        sorted(state.tables.items()),
        sorted(state.num_tokens.items()),
        state.swap_ref_counts,
        [[list(token) for token in content] for content in state.swap_contents],
        sorted(state.swap_tables.items()),
        [
            [seq, s.name, s.num_prompt_tokens, s.parent, s.status, s.finish_reason, s.output]
            for seq, s in sorted(state.sequences.items())
        ],
        [
            [seq, sorted([f"{layer},{head}", shares] for (layer, head), shares in recorded.items())]
            for seq, recorded in sorted(state.attention.items())
        ],
        [memory.num_used, memory.num_shared, memory.num_cached, memory.num_empty_slots],
    ]
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":"))


def random_trace(seed: int) -> Trace:
    """Requests, steps, aborts and preemptions in random order, in a pool that is too small."""
    rng = random.Random(seed)
    engine = ScriptedEngine(**random_options(rng))
    for _ in range(rng.randrange(8, 30)):
        unfinished = list(engine.scheduler.running)
        move = rng.random()
        if move < 0.25:
            add_request(engine, rng)
        elif move < 0.3 and unfinished:
            engine.abort(rng.choice(unfinished).request_id)
        elif move < 0.4 and unfinished:
            engine.scheduler.preempt(rng.choice(unfinished), "by hand")
        elif engine.has_unfinished_requests:
            engine.step()
    return engine.trace


def random_slabs(seed: int) -> Trace:
    """Samples in slabs, which run out; attention and kernel events, which only look on."""
    rng = random.Random(seed)
    trace = Trace(TraceHeader(block_size=2, num_blocks=32, allocator="max"))
    manager = ContiguousManager(32, 2, ReserveMax(16), notify=trace.observe)
    running: list[int] = []
    for seq in range(0, 24, 2):
        prompt = rng.choices(range(9), k=rng.randint(1, 8))
        trace.observe(Requested(seq, str(seq), len(prompt)))
        manager.announce([seq, seq + 1], len(prompt))
        with contextlib.suppress(OutOfBlocksError):
            manager.allocate(seq, prompt)
            manager.commit([(seq, prompt)])
            manager.fork(seq, seq + 1)
            running += [seq, seq + 1]
        manager.withdraw(seq)
        manager.commit([(each, [rng.randrange(9)]) for each in running])
        for each in running:
            size = len(manager.block_table(each))
            trace.observe(Attended(each, rng.randrange(2), -1, (1000, *[0] * (size - 1))))
            blocks = tuple(manager.block_table(each))
            trace.observe(KernelAccess("k", (0,), blocks, 1, "x", "load", "t", (), (), 4))
        for each in rng.sample(running, len(running) // 2):
            running.remove(each)
            trace.observe(Finished(each, "length"))
            manager.free(each)
        trace.end_step(len(prompt), len(running))
    return trace


def random_options(rng: random.Random) -> dict[str, Any]:
    block_size, swap = rng.randint(1, 4), rng.choice([0, 3, 16])
    return {
        "block_size": block_size,
        "num_blocks": -(-rng.randint(16, 40) // block_size),
        "num_swap_blocks": swap,
        "preemption": "swap" if swap else "recompute",
        "max_num_seqs": rng.choice([3, 4, 6]),
        "max_num_batched_tokens": rng.choice([8, 20, 64]),
        "enable_prefix_caching": rng.random() < 0.8,
        "max_model_len": 20,
    }


def add_request(engine: ScriptedEngine, rng: random.Random) -> None:
    prompt = [
        *rng.choice(STEMS)[: rng.randint(1, 10)],
        *rng.choices([20, 21, 22], k=rng.randint(0, 3)),
    ]
    n, most = rng.randint(1, 3), rng.randint(1, 9)
    params: SamplingParams | BeamSearchParams = (
        SamplingParams(n=n, seed=rng.choice([None, 7]), max_tokens=most, ignore_eos=True)
        if rng.random() < 0.75
        else BeamSearchParams(beam_width=n, max_tokens=most)
    )
    with contextlib.suppress(RequestRefusedError):
        engine.add_request(prompt, params)


def write_case(folder: Path, name: str, trace: Trace) -> Counter[str]:
    """Write a trace and the digest of Python's state after each event; count the events."""
    trace.save(folder / f"{name}.jsonl")
    header = trace.header
    state = Replay(header.num_blocks, header.block_size, header.num_swap_blocks)
    kinds: Counter[str] = Counter()
    digests = []
    for step in Trace.load(folder / f"{name}.jsonl").steps:
        for event in step.events:
            state.apply(event)
            kinds[event.kind] += 1
            digests.append(hashlib.sha256(canonical(state).encode()).hexdigest()[:16])
    (folder / f"{name}.digests").write_text("".join(f"{d}\n" for d in digests), "utf-8")
    return kinds


def event_fields() -> dict[str, list[list[str]]]:
    return {
        kind: [[field.name, TYPES[str(field.type)]] for field in dataclasses.fields(cls)]
        for kind, cls in EVENT_TYPES.items()
    }


def test_the_browser_gives_the_state_that_python_gives(tmp_path: Path) -> None:
    kinds: Counter[str] = Counter()
    for path in GOLDEN:
        kinds += write_case(tmp_path, path.stem, Trace.load(path))
    kinds += write_case(tmp_path, "everything", everything())
    for seed in range(NUM_SLABS):
        kinds += write_case(tmp_path, f"slabs-{seed}", random_slabs(seed))
    for seed in range(NUM_RANDOM):
        kinds += write_case(tmp_path, f"random-{seed}", random_trace(seed))
    rare = {"copy", "share", "hit", "evict", "preempt", "swap_out", "swap_in", "release"}
    rare |= {"reserve", "attend", "kernel"}
    assert all(kinds[kind] >= 100 for kind in rare), kinds
    (tmp_path / "events.json").write_text(json.dumps(event_fields()), "utf-8")
    least = len(GOLDEN) + 1 + NUM_SLABS + NUM_RANDOM
    environment = {
        **os.environ,
        "TRACES": str(tmp_path),
        "STATIC": str(STATIC),
        "LEAST": str(least),
    }
    command = [NODE or "node", "--test", str(HERE / "reducer.test.mjs")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
