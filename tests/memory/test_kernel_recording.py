"""A recording of a kernel as a file: it comes back as it was, and what is malformed is one line."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minipaged.errors import TraceError
from minipaged.memory.kernel_recording import (
    KernelRecording,
    KernelStep,
    Launch,
    ProgramRun,
    RowState,
    SequenceTable,
    is_recording,
)


def recording() -> KernelRecording:
    """One program that reads a block of two tokens, and updates its softmax."""
    row = RowState(-math.inf, 1.5, 0.0, 1.25, (1.5, -math.inf), (1.0, 0.0), (0.5, -2.0))
    steps = (
        KernelStep("load", 11, 11, "key_cache", ((2, 2), (0, 1)), (2,), (4, 5), (0,), 64),
        KernelStep("load", 11, 11, "block_tables", ((0, 0),), values=(2,)),
        KernelStep("update", 11, 12, tokens=(0, 1), state=(row,)),
    )
    return KernelRecording(
        title="tiny “recording”",
        block_size=2,
        num_blocks=4,
        sequences=(SequenceTable(2, (2,)),),
        launches=(Launch("kernel", "kernel.py", (1, 1, 1), 10, ("def kernel():", "  a", "  b")),),
        programs=(ProgramRun(0, (0, 0, 0), 0, ("head 0",), steps),),
    )


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    recording().save(tmp_path / "a.jsonl")
    assert KernelRecording.load(tmp_path / "a.jsonl") == recording()
    assert is_recording(tmp_path / "a.jsonl")


def test_what_holds_nothing_takes_no_space_and_minus_infinity_is_null(tmp_path: Path) -> None:
    recording().save(tmp_path / "a.jsonl")
    _, line = (tmp_path / "a.jsonl").read_text("utf-8").splitlines()
    steps = json.loads(line)["steps"]
    assert set(steps[1]) == {"kind", "line", "last_line", "tensor", "box", "values"}
    assert steps[2]["state"][0]["before"] is None
    assert steps[2]["state"][0]["scores"] == [1.5, None]


def test_a_folder_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="can't be written: No such file"):
        recording().save(tmp_path / "no" / "a.jsonl")
    with pytest.raises(TraceError, match="can't be read: No such file"):
        KernelRecording.load(tmp_path / "a.jsonl")
    assert not is_recording(tmp_path / "a.jsonl")


Rows = list[dict[str, Any]]


def set_at(*path: Any) -> Callable[[Rows], None]:
    """Give a change that puts the last of `path` where the others lead to."""

    def change(rows: Rows) -> None:
        *way, key, value = path
        place: Any = rows
        for part in way:
            place = place[part]
        place[key] = value

    return change


STEP = (1, "steps", 0)
ROW = (1, "steps", 2, "state", 0)
MALFORMED = [
    (set_at(0, "format", "minipaged-trace"), "line 1: not a kernel recording"),
    (set_at(0, "version", 2), "line 1: version 2, only 1 can be read"),
    (set_at(0, "version", True), "line 1: version True"),
    (set_at(0, "title", 1), "line 1: title: must be a string, not 1"),
    (set_at(0, "author", "x"), "line 1: there is no field 'author'"),
    (set_at(0, "num_blocks", 2**20), "line 1: num_blocks is 1048576; it must be from 1 to 4096"),
    (set_at(0, "block_size", 0), "line 1: block_size is 0"),
    (set_at(0, "sequences", 0, "num_tokens", 9), r"sequences: \[0\]: 9 tokens can't lie in 1"),
    (set_at(0, "sequences", 0, "num_tokens", -1), r"sequences: \[0\]: -1 tokens"),
    (set_at(0, "sequences", 0, "blocks", [4]), r"sequences: \[0\]: blocks is 4; .* from 0 to 3"),
    (set_at(0, "sequences", {}), "sequences: must be an array, not {}"),
    (set_at(0, "launches", 0, "grid", [1]), r"launches: \[0\]: grid must be three sizes"),
    (set_at(0, "launches", 0, "grid", [0, 1, 1]), r"launches: \[0\]: grid must be three sizes"),
    (set_at(0, "launches", []), "line 2: launch is 0"),
    (set_at(0, "launches", 0, {}), r"line 1: launches: \[0\]: kernel or file or grid .* missing"),
    (set_at(0, "num_blocks", 2**40), "line 1: num_blocks is 1099511627776"),
    (set_at(1, "launch", 1), "line 2: launch is 1; it must be from 0 to 0"),
    (set_at(1, "program", [0, 1, 0]), "line 2: program is 1; it must be from 0 to 0"),
    (set_at(1, "program", [0]), "line 2: program must be three numbers"),
    (set_at(1, "seq", 1), "line 2: seq is 1"),
    (set_at(1, "seq", -1), r"steps: \[2\]: a program of no sequence has no tokens"),
    (set_at(1, "rows", []), r"steps: \[2\]: 1 states for 0 rows"),
    (set_at(1, "steps", []), "line 2: steps: there is none"),
    (set_at(1, "steps", 0, "x"), r"line 2: steps: \[0\]: must be an object, not 'x'"),
    (
        set_at(*STEP, "kind", "jump"),
        r"steps: \[0\]: kind must be load, store, update or join, not 'jump'",
    ),
    (set_at(*STEP, "line", 9), r"steps: \[0\]: line is 9; it must be from 10 to 12"),
    (set_at(*STEP, "last_line", 13), r"steps: \[0\]: last_line is 13"),
    (set_at(*STEP, "line", 10.5), r"steps: \[0\]: line: must be an integer, not 10.5"),
    (set_at(*STEP, "line", False), r"steps: \[0\]: line: must be an integer, not False"),
    (set_at(*STEP, "blocks", [-1]), r"steps: \[0\]: blocks is -1"),
    (set_at(*STEP, "slots", [8]), r"steps: \[0\]: slots is 8; it must be from 0 to 7"),
    (set_at(*STEP, "slots", [2**60]), r"slots: \[0\]: must be an integer, not 1152921504606846976"),
    (set_at(*STEP, "box", [[1, 0]]), r"steps: \[0\]: box must hold pairs"),
    (set_at(*STEP, "box", [1]), r"steps: \[0\]: box: \[0\]: must be an array, not 1"),
    (set_at(*ROW, "total", "1"), r"state: \[0\]: total: must be a number or null, not '1'"),
    (set_at(*ROW, "total", 1e300), r"state: \[0\]: total: must be a number or null"),
    (set_at(*ROW, "scores", [1]), "scores and weights must be one for each token"),
    (set_at(1, "steps", 2, "tokens", [0, 2]), r"steps: \[2\]: tokens is 2; .* from 0 to 1"),
]


@pytest.mark.parametrize(("change", "message"), MALFORMED, ids=[m for _, m in MALFORMED])
def test_what_is_malformed_is_one_line_that_names_the_place(
    change: Callable[[Rows], None], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    recording().save(path)
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    change(rows)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    with pytest.raises(TraceError, match=message) as caught:
        KernelRecording.load(path)
    assert str(caught.value).startswith(f"{path}: line ")
    assert "\n" not in str(caught.value)


def many(rows: Rows, what: str) -> None:
    """Make a file that is well-formed, and more than a browser can draw."""
    header, program = rows
    if what == "slots":
        header.update(num_blocks=4096, block_size=1024, sequences=[])
    elif what == "launches":
        header["launches"] *= 65
    elif what == "programs":
        rows += [program] * 4096
    elif what == "steps":
        program["steps"] = program["steps"][:1] * 4097
    else:
        state = program["steps"][2]["state"][0]
        program["steps"][2]["tokens"] = [0] * 20_000
        state["scores"] = state["weights"] = [0.5] * 20_000


@pytest.mark.parametrize("what", ["slots", "launches", "programs", "steps", "tokens"])
def test_more_than_can_be_drawn_is_refused(what: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    recording().save(path)
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    many(rows, what)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    with pytest.raises(TraceError, match=f"[0-9]+ {what} are too many to be shown: at most [0-9]+"):
        KernelRecording.load(path)


def test_a_recording_is_known_by_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for line in (
        b'{"format":"minipaged-kernel-recording",',
        b' { "format" : "minipaged-kernel-recording"',
    ):
        path.write_bytes(line)
        assert is_recording(path)
    for line in (b"", b"{}", b'{"title": "minipaged-kernel-recording"', b"\x80"):
        path.write_bytes(line)
        assert not is_recording(path)
    assert not is_recording(tmp_path)


def test_a_recording_takes_the_place_of_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "thesis.txt"
    for content in (b"", b'{"format":"minipaged-kernel-recording"'):
        path.write_bytes(content)
        recording().save(path)
        assert KernelRecording.load(path) == recording()
    path.write_bytes(b"years of work")
    with pytest.raises(TraceError, match=r"thesis.txt: there is such a file, and no recording"):
        recording().save(path)
    assert path.read_bytes() == b"years of work"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with a name")
def test_a_pipe_is_not_looked_into(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert not is_recording(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "line 1: not JSON"),
        (b"\x80\n", "line 1: not JSON"),
        (b"[" * 100_000 + b"\n", "line 1: not JSON"),
        (b"[]\n", "line 1: not a JSON object"),
        (b'{"format": NaN}\n', "line 1: not JSON .NaN is no number"),
        (b'{"format": "\\ud800"}\n', "line 1: not JSON"),
        (b"{}\n", "line 1: not a kernel recording"),
    ],
)
def test_what_is_no_recording_is_one_clear_error(
    content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(TraceError, match=message):
        KernelRecording.load(tmp_path / "a.jsonl")


def test_a_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    recording().save(tmp_path / "a.jsonl")
    content = (tmp_path / "a.jsonl").read_bytes()
    first = content.index(b"\n") + 1
    for length in (first - 1, first, len(content) - 1):
        (tmp_path / "a.jsonl").write_bytes(content[:length])
        with pytest.raises(TraceError, match="it is cut off"):
            KernelRecording.load(tmp_path / "a.jsonl")
