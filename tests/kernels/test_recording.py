"""A kernel under the microscope: what is recorded is what the kernel read, and what it computed.

The state is looked at, not computed again: the last one of each program must give the output that
the kernel itself stored. The recordings of the package are made anew and compared.
"""

from __future__ import annotations

import math
import runpy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no build for this system")
from minipaged_kernels.interpreter import KernelError
from minipaged_kernels.microscope import magnify
from minipaged_kernels.paged_decode import paged_decode
from minipaged_kernels.paged_decode_split_kv import paged_decode_split_kv
from minipaged_kernels.paged_prefill import paged_prefill
from minipaged_kernels.recorder import record
from minipaged_kernels.reference import merge_parts
from minipaged_kernels.softmax_steps import MOST_SUMS
from minipaged_visualizer.microscope_page import recording_names, recording_of
from torch import Tensor

from minipaged.memory.kernel_recording import (
    KernelRecording,
    KernelStep,
    ProgramRun,
    SequenceTable,
)

pytestmark = pytest.mark.interpret
SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "kernels" / "make_recordings.py"))
SHORT: tuple[SequenceTable, ...] = SCRIPT["SHORT"]
LONG: tuple[SequenceTable, ...] = SCRIPT["LONG"]


def updates(program: ProgramRun) -> list[KernelStep]:
    return [step for step in program.steps if step.kind == "update"]


def loads(program: ProgramRun, tensor: str) -> list[KernelStep]:
    return [step for step in program.steps if (step.kind, step.tensor) == ("load", tensor)]


def attended(program: ProgramRun) -> Tensor:
    """The first numbers of what each row of a program attends to [rows, MOST_SUMS]."""
    last = updates(program)[-1].state
    return torch.tensor([[value / row.total for value in row.weighted] for row in last])


def decoded() -> tuple[KernelRecording, Tensor]:
    with magnify() as microscope:
        output = paged_decode(
            SCRIPT["queries"](3), SCRIPT["layer_cache"](), *SCRIPT["tables"](SHORT)
        )
    return microscope.kernel_recording(), output


# --- what was read


def test_each_program_reads_the_blocks_of_its_table_in_order() -> None:
    recording, _ = decoded()
    assert recording.sequences == SHORT
    assert [program.program for program in recording.programs] == [
        (seq, kv_head, 0) for seq in range(3) for kv_head in range(2)
    ]
    for program in recording.programs:
        seq, kv_head, _ = program.program
        assert program.seq == seq
        assert program.rows == (f"head {2 * kv_head}", f"head {2 * kv_head + 1}")
        for tensor in ("key_cache", "value_cache"):
            steps = loads(program, tensor)
            assert [step.blocks for step in steps] == [(b,) for b in SHORT[seq].blocks]
            assert {step.heads for step in steps} == {(kv_head,)}
            assert sum(len(step.slots) for step in steps) == SHORT[seq].num_tokens
        entries = [step.values for step in loads(program, "block_tables")]
        assert entries == [(block,) for block in SHORT[seq].blocks]
        assert [step.values for step in loads(program, "seq_lens")] == [(SHORT[seq].num_tokens,)]


@pytest.mark.parametrize("name", ["decode", "split_kv", "prefill"])
def test_updates_go_through_a_context_once_and_tokens_lie_where_they_were_read(name: str) -> None:
    recording: KernelRecording = SCRIPT[name]()
    size = recording.block_size
    tokens_of: dict[tuple[int, int], list[int]] = {}
    for program in recording.programs:
        blocks = recording.sequences[program.seq].blocks
        seen = tokens_of.setdefault((program.seq, program.program[1]), [])
        for step, keys in zip(updates(program), loads(program, "key_cache"), strict=True):
            slots = [blocks[t // size] * size + t % size for t in step.tokens]
            assert sorted(slots) == list(keys.slots)
            seen += step.tokens
    contexts = {key: tokens for key, tokens in tokens_of.items() if tokens}
    assert len(contexts) == 6
    for (seq, _), tokens in contexts.items():
        assert tokens == list(range(recording.sequences[seq].num_tokens))


def test_a_step_shows_the_line_that_does_it() -> None:
    recording, _ = decoded()
    (launch,) = recording.launches
    assert (launch.kernel, launch.grid) == ("paged_decode_kernel", (3, 2, 1))

    def code(step: KernelStep) -> str:
        lines = launch.source[
            step.line - launch.first_line : step.last_line + 1 - launch.first_line
        ]
        return "\n".join(lines)

    for program in recording.programs:
        assert all("k = tl.load(key_cache" in code(s) for s in loads(program, "key_cache"))
        assert all(
            "block = tl.load(block_tables" in code(s) for s in loads(program, "block_tables")
        )
        for step in updates(program):
            assert code(step).strip().startswith("scores = tl.dot(q, k.T")
            assert code(step).endswith("largest = new_largest")
        assert "tl.store(output" in code(program.steps[-1])


# --- what was computed


def test_the_last_state_gives_the_output_of_the_kernel() -> None:
    recording, output = decoded()
    for program in recording.programs:
        seq, kv_head, _ = program.program
        stored = output[seq, 2 * kv_head : 2 * kv_head + 2, :MOST_SUMS]
        torch.testing.assert_close(attended(program), stored, rtol=1e-6, atol=1e-6)


def test_launches_that_touch_nothing_are_left_out() -> None:
    query, cache = SCRIPT["queries"](3), SCRIPT["layer_cache"]()
    with magnify() as microscope:
        microscope.launched("idle_kernel", {})
        paged_decode(query, cache, *SCRIPT["tables"](SHORT))
    recording, (expected, _) = microscope.kernel_recording(), decoded()
    assert (recording.launches, recording.programs) == (expected.launches, expected.programs)


def test_the_states_of_parts_give_the_output_of_split_kv() -> None:
    query, cache = SCRIPT["queries"](3), SCRIPT["layer_cache"]()
    with magnify() as microscope:
        output = paged_decode_split_kv(query, cache, *SCRIPT["tables"](LONG), num_splits=2, tile=16)
    recording = microscope.kernel_recording()
    assert [launch.kernel for launch in recording.launches] == ["split_kernel", "reduce_kernel"]
    parts = torch.zeros(3, 4, 2, MOST_SUMS)
    log_sums = torch.full((3, 4, 2), -math.inf)
    for program in recording.programs:
        if program.launch == 0 and updates(program):
            seq, kv_head, split = program.program
            heads = slice(2 * kv_head, 2 * kv_head + 2)
            parts[seq, heads, split] = attended(program)
            state = updates(program)[-1].state
            log_sums[seq, heads, split] = torch.tensor(
                [row.largest + math.log(row.total) for row in state]
            )
    assert (log_sums == -math.inf).any()  # a part that is empty
    for program in recording.programs:
        if program.launch == 1:
            (join,) = [step for step in program.steps if step.kind == "join"]
            seq, head, _ = program.program
            (state,) = join.state
            assert program.rows == (f"head {head}",)
            assert state.scores == pytest.approx(log_sums[seq, head].tolist(), rel=1e-5)
            weights = torch.tensor(state.weights) / state.total
            stored = output[seq, head, :MOST_SUMS]
            torch.testing.assert_close(weights @ parts[seq, head], stored, rtol=1e-5, atol=1e-5)
    merged = merge_parts(parts, log_sums)
    torch.testing.assert_close(merged, output[..., :MOST_SUMS], rtol=1e-5, atol=1e-5)


def test_every_query_of_a_prefill_has_a_state_of_its_own() -> None:
    query, starts = SCRIPT["queries"](17), torch.tensor([0, 6, 11, 17])
    with magnify() as microscope:
        output = paged_prefill(
            query, SCRIPT["layer_cache"](), *SCRIPT["tables"](LONG), starts, max_query_len=6
        )
    checked = 0
    for program in microscope.kernel_recording().programs:
        _, kv_head, seq = program.program
        first = LONG[seq].num_tokens - int(starts[seq + 1] - starts[seq])
        for name, values in zip(program.rows, attended(program), strict=True):
            token, head = (int(word) for word in name.replace(",", "").split()[1::2])
            assert head // 2 == kv_head
            stored = output[int(starts[seq]) + token - first, head, :MOST_SUMS]
            torch.testing.assert_close(values, stored, rtol=1e-5, atol=1e-5)
            checked += 1
    assert checked == 17 * 4


def test_a_query_sees_none_of_its_future() -> None:
    recording: KernelRecording = SCRIPT["prefill"]()
    hidden = 0
    for program in recording.programs:
        for step in updates(program):
            for name, row in zip(program.rows, step.state, strict=True):
                query = int(name.split(",")[0].split()[1])
                for token, score, weight in zip(step.tokens, row.scores, row.weights, strict=True):
                    assert (score == -math.inf) == (token > query)
                    assert (weight == 0) == (token > query)
                    hidden += token > query
    assert hidden


@pytest.mark.parametrize("name", ["decode", "split_kv", "prefill"])
def test_a_state_follows_from_the_one_before(name: str) -> None:
    recording: KernelRecording = SCRIPT[name]()
    for program in recording.programs:
        steps = updates(program)
        for row in range(len(program.rows)):
            largest, total = -math.inf, 0.0
            for step in steps:
                state = step.state[row]
                assert state.before == largest
                assert state.largest == max([largest, *state.scores])
                grown = total * state.rescale + sum(state.weights)
                assert state.total == pytest.approx(grown, rel=1e-5)
                largest, total = state.largest, state.total


def test_looking_changes_nothing_and_errors_stay_errors() -> None:
    query, cache = SCRIPT["queries"](3), SCRIPT["layer_cache"]()
    plain = paged_decode(query, cache, *SCRIPT["tables"](SHORT))
    assert torch.equal(decoded()[1], plain)
    outside = torch.tensor([[5, 2, 16], [5, 11, 0], [8, 1, 14]])
    with magnify(), pytest.raises(KernelError, match="reads outside of key_cache"):
        paged_decode(query, cache, outside, torch.tensor([10, 7, 12]))


def test_the_microscope_sees_what_the_recorder_sees() -> None:
    with record() as recorded:
        paged_decode(SCRIPT["queries"](3), SCRIPT["layer_cache"](), *SCRIPT["tables"](SHORT))
    recording, _ = decoded()
    touched = [
        (step.tensor, step.blocks, step.slots, step.num_bytes)
        for program in recording.programs
        for step in program.steps
        if step.kind != "update"
    ]
    assert touched == [(t.argument.name, t.blocks, t.slots, t.num_bytes) for t in recorded.touches]


# --- the recordings that ship


def compare(made: Any, shipped: Any, where: str = "") -> None:
    """Numbers may differ in their last digits: processors add in different orders."""
    if isinstance(made, dict):
        assert made.keys() == shipped.keys(), where
        for key in made:
            compare(made[key], shipped[key], f"{where} {key}")
    elif isinstance(made, list | tuple):
        assert len(made) == len(shipped), where
        for index, pair in enumerate(zip(made, shipped, strict=True)):
            compare(*pair, f"{where}[{index}]")
    elif isinstance(made, float):
        assert made == pytest.approx(shipped, rel=1e-4, abs=1e-5), where
    else:
        assert made == shipped, where


def test_every_recording_that_ships_is_made_by_the_script() -> None:
    assert sorted(SCRIPT["MAKERS"]) == recording_names()


@pytest.mark.parametrize("name", sorted(SCRIPT["MAKERS"]))
def test_a_recording_that_ships_is_up_to_date(name: str) -> None:
    """`TRITON_INTERPRET=1 python kernels/make_recordings.py` makes it anew."""
    compare(asdict(SCRIPT["MAKERS"][name]()), asdict(recording_of(name)), name)


def test_the_first_program_of_decode_shows_a_new_maximum_and_none() -> None:
    states = [step.state[0] for step in updates(recording_of("paged_decode").programs[0])]
    assert states[0].before == -math.inf
    assert states[1].largest > states[1].before
    assert states[1].rescale < 0.9
    assert (states[2].largest, states[2].rescale) == (states[2].before, 1.0)
