"""What the compilers for four GPUs make of the kernels: the promises of docs/COMPILED.md."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton", reason="Triton has no build for this system")
from minipaged_kernels import launch, paged_decode  # noqa: E402

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "COMPILED.md").read_text(encoding="utf-8")
ATTENTION = ("paged_decode", "paged_prefill")

Row = dict[str, Any]


@pytest.fixture(scope="module")
def built() -> Row:
    """Every kernel, built in a process where Triton does not interpret."""
    if sys.platform != "linux":
        pytest.skip("Triton's compilers run on Linux")
    script = ROOT / "kernels" / "benchmarks" / "compiled.py"
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, "-W", "ignore", str(script), "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.fixture
def rows(built: Row) -> list[Row]:
    """The figures of what wrappers launch."""
    return [row for row in built["figures"] if "unaligned" not in row["kernel"]]


def is_attention(row: Row) -> bool:
    return row["kernel"].startswith(ATTENTION) and "reduce" not in row["kernel"]


def is_decode(row: Row) -> bool:
    return row["kernel"].startswith("paged_decode")


def is_nvidia(row: Row) -> bool:
    return row["target"].startswith("sm_")


def written_rows() -> list[list[str]]:
    """The table of docs/COMPILED.md."""
    lines = [line for line in DOCUMENT.splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ") for line in lines[2:]]


@pytest.mark.compile
def test_the_document_holds_what_is_built(built: Row) -> None:
    written = written_rows()
    shown = [[str(value) or "-" for value in row.values()] for row in built["figures"]]
    assert [row[:2] for row in written] == [row[:2] for row in shown]
    (version,) = re.findall(r"with Triton (\S+);", DOCUMENT)
    if built["triton"] == version:
        assert written == shown, "python kernels/benchmarks/compiled.py --write"


@pytest.mark.compile
def test_every_kernel_is_built_for_every_gpu(rows: list[Row]) -> None:
    names = {path.stem for path in (ROOT / "kernels" / "minipaged_kernels").glob("*.py")}
    kernels = {name for name in names if name.startswith(("kv_write", "paged_", "copy_"))}
    for target in ("sm_80", "sm_90", "sm_100", "gfx942"):
        assert {row["kernel"].split(",")[0] for row in rows if row["target"] == target} == kernels


@pytest.mark.compile
def test_nothing_spills(rows: list[Row]) -> None:
    assert [row for row in rows if row["spills"]] == []


@pytest.mark.compile
def test_registers_leave_room_for_other_programs(rows: list[Row]) -> None:
    """Decode waits for memory: on NVIDIA 16 of its warps share a processor at least."""
    for row in rows:
        limit = 512 if not is_nvidia(row) else 128 if is_decode(row) else 255
        assert row["registers"] <= limit, row


@pytest.mark.compile
def test_shared_memory_fits(rows: list[Row]) -> None:
    limits = {"sm_80": 163, "sm_90": 227, "sm_100": 227, "gfx942": 64}  # KiB
    for row in rows:
        assert row["shared_bytes"] <= limits[row["target"]] * 1024, row


@pytest.mark.compile
def test_keys_and_values_move_16_bytes_at_once(rows: list[Row]) -> None:
    """But for int8, of which a thread has 8 bytes of a tile or less."""
    for row in rows:
        if "int8" not in row["kernel"] and "reduce" not in row["kernel"]:
            is_amd_copy = row["kernel"] == "copy_blocks" and not is_nvidia(row)  # 64 lanes a warp
            assert row["cache_bits"] == (64 if is_amd_copy else 128), row
        if row["kernel"].startswith("paged_decode_int8"):
            assert row["cache_bits"] >= 64, row


@pytest.mark.compile
def test_attention_runs_on_tensor_cores(rows: list[Row]) -> None:
    for row in filter(is_attention, rows):
        assert re.match(r"mma|wgmma|tcgen05" if is_nvidia(row) else "v_mfma", row["matrix"]), row


@pytest.mark.compile
def test_a_tile_is_loaded_while_another_is_used(rows: list[Row]) -> None:
    for row in filter(is_attention, rows):
        if is_nvidia(row):
            assert row["buffers"] >= (1 if "block 128" in row["kernel"] else 2), row


@pytest.mark.compile
def test_one_unaligned_stride_makes_every_load_a_single_element(built: Row) -> None:
    by_name = {(row["kernel"], row["target"]): row for row in built["figures"]}
    unaligned = by_name["paged_decode, unaligned stride", "sm_90"]
    aligned = by_name["paged_decode, block 16", "sm_90"]
    assert (aligned["cache_bits"], unaligned["cache_bits"]) == (128, 16)
    assert (aligned["buffers"], unaligned["buffers"]) == (2, 0)


@pytest.mark.interpret
def test_a_wrapper_refuses_such_a_cache() -> None:
    spacious = torch.zeros(2, 4, 16 * 2 * 16 + 1)
    cache = spacious[..., :-1].unflatten(2, (16, 2, 16))
    table, length = torch.zeros(1, 1, dtype=torch.int32), torch.ones(1, dtype=torch.int32)
    with pytest.raises(ValueError, match="must be multiples of 16"):
        paged_decode.paged_decode(torch.zeros(1, 4, 16), cache, table, length)


@pytest.mark.interpret
def test_a_wrapper_copies_such_a_query() -> None:
    query = torch.randn(3, 4, 17)[..., :16]
    copied = launch.dense_rows(query)
    assert not launch.is_aligned(query)
    assert launch.is_aligned(copied)
    assert torch.equal(copied, query)
    assert launch.dense_rows(copied) is copied
