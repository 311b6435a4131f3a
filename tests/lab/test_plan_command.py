"""`minipaged plan` as a user meets it: a table, one JSON document, or one line of what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

LLAMA = ("--model", "llama-2-13b", "--gpu", "a100-80g", "--max-len", "4096", "--mean-len", "512")


def minipaged_plan(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        [sys.executable, "-m", "minipaged.cli", "plan", *arguments],
        capture_output=True,
        encoding="utf-8",
        env=environment,
        timeout=60,
    )


def test_a_table_is_printed() -> None:
    result = minipaged_plan(*LLAMA)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    for words in ("87.5 %", "819,200 bytes", "3,912 blocks of 16", "Orca (Oracle)"):
        assert words in result.stdout


def test_json_is_one_document() -> None:
    document = json.loads(minipaged_plan(*LLAMA, "--block-size", "32", "--json").stdout)
    assert (document["model"]["name"], document["gpu"]["name"]) == ("llama-2-13b", "a100-80g")
    assert (document["block_size"], document["num_blocks"]) == (32, 1956)
    assert document["bytes_per_block"] == 32 * document["bytes_per_token"]
    names = [row["allocator"] for row in document["allocators"]]
    assert names == ["orca-max", "orca-pow2", "orca-oracle", "paged"]
    assert document["allocators"][0]["unused"] == 87.5


@pytest.mark.parametrize(
    ("arguments", "words", "status"),
    [
        (("--model", "lama-2-13b", "--gpu", "a100-80g"), "did you mean llama-2-13b", 1),
        (("--model", "llama-2-13b", "--gpu", "a100"), "a100-40g or a100-80g", 1),
        (("--model", "opt-66b", "--gpu", "t4"), "--num-gpus", 1),
        ((*LLAMA, "--mean-len", "9999"), "9999", 1),
        ((*LLAMA, "--block-size", "0"), "block_size", 1),
        ((*LLAMA, "--mean-len", "many"), "--mean-len", 2),
        (("--model", "llama-2-13b"), "--gpu", 2),
    ],
)
def test_a_mistake_is_one_line(arguments: tuple[str, ...], words: str, status: int) -> None:
    result = minipaged_plan(*arguments)
    assert result.returncode == status, result.stderr
    assert result.stdout == ""
    assert result.stderr.startswith("minipaged: ")
    assert result.stderr.count("\n") == 1, result.stderr
    assert words in result.stderr
