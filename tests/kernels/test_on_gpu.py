"""The benchmark for GPUs: it goes all the way without one, and a wrong answer fails it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no build for this system")

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "kernels" / "benchmarks"
SECTIONS = [
    "correctness: worst error against float64",
    "copy",
    "decode, 2 sequences of 40 tokens, block 16",
    "block size",
    "tile and splits",
    "engine: decode steps of a model with random weights",
    "stages",
    "other kernels",
]


def start(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, str(FOLDER / "on_gpu.py"), *map(str, arguments)]
    return subprocess.run(command, env={**kept, **environment}, capture_output=True, text=True)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a dry run writes, without its ending."""
    path = tmp_path_factory.mktemp("dry") / "results"
    done = start("--dry-run", "--out", path, TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stdout + done.stderr
    return path


@pytest.fixture
def rows(results: Path) -> list[dict[str, Any]]:
    document = json.loads(results.with_suffix(".json").read_text())
    assert set(document["machine"]) == {"device", "torch", "triton", "python"}
    return document["rows"]  # type: ignore[no-any-return]


@pytest.mark.interpret
def test_a_dry_run_measures_every_section(rows: list[dict[str, Any]]) -> None:
    assert list(dict.fromkeys(row["section"] for row in rows)) == SECTIONS
    for row in rows:
        is_known = row.get("note", "") in (
            *("", "not installed", "needs a GPU", "target: at most 10"),
        )
        assert is_known, row
        if not row.get("note"):
            assert row.get("milliseconds", 0) > 0 or "error" in row, row


@pytest.mark.interpret
def test_every_kernel_is_compared_with_float64(rows: list[dict[str, Any]]) -> None:
    checked = [row["name"] for row in rows if row["section"] == SECTIONS[0]]
    for kernel in (
        *("kv_write,", "copy_blocks,", "swap_blocks,", "paged_decode,", "paged_decode_int8,"),
        *("split_kv, 1 split", "split_kv, 4 splits", "paged_prefill,"),
    ):
        for dtype in ("float32", "float16", "bfloat16"):
            assert any(name.startswith(kernel) and dtype in name for name in checked), kernel


@pytest.mark.interpret
def test_the_table_shows_the_same_rows(results: Path, rows: list[dict[str, Any]]) -> None:
    text = results.with_suffix(".md").read_text()
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == SECTIONS
    assert all(f"| {row['name']} |" in text for row in rows)


@pytest.mark.interpret
def test_a_wrong_answer_and_a_nan_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import cases
    import correctness

    monkeypatch.setattr(correctness, "TOLERANCES", {torch.float32: 5e-6})
    monkeypatch.setattr(correctness, "paged_decode", lambda query, *_: query + torch.nan)
    monkeypatch.setattr(correctness, "kv_write", lambda *_: None)
    shape = cases.Heads(2, 1, 16)
    rows = correctness.check_device(torch.device("cpu"), [(shape, 4)])
    wrong = {row.name.split(",")[0] for row in rows if row.note}
    assert wrong == {"paged_decode", "kv_write"}


@pytest.mark.interpret
def test_what_fails_costs_only_its_own_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import measuring

    def fail() -> None:
        raise RuntimeError("out of resources: shared memory\nRequired: 300000")

    row = measuring.measured(measuring.Clock(torch.device("cpu")), "s", "n", fail, num_bytes=8)
    assert row == measuring.Row("s", "n", note="RuntimeError: out of resources: shared memory")


def test_modes_that_do_not_fit_are_refused() -> None:
    assert "TRITON_INTERPRET=1" in start("--dry-run").stderr
    if not torch.cuda.is_available():
        assert "no GPU" in start().stderr


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
def test_every_kernel_is_right_on_this_gpu() -> None:
    done = start("--seconds", "0.001")
    assert done.returncode == 0, done.stdout + done.stderr
    assert SECTIONS[0] in done.stdout
