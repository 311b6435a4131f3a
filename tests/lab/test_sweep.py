"""Block sizes side by side: waste grows, tables shrink, and the advice follows from the numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minipaged.commands.sweep import parse_sizes, show_sweep
from minipaged.errors import ConfigError, WorkloadError
from minipaged.lab.loads import Load
from minipaged.lab.sweep import SizeResult, Sweep, sweep


@pytest.fixture(scope="module")
def found() -> Sweep:
    return sweep([128, 1, 16], Load("alpaca", 150))


def test_sizes_come_sorted(found: Sweep) -> None:
    assert [result.block_size for result in found.results] == [1, 16, 128]


def test_waste_grows_with_the_block(found: Sweep) -> None:
    empty = [result.empty for result in found.results]
    assert empty[0] == pytest.approx(0, abs=1e-9)
    assert empty == sorted(empty)
    assert empty[2] > 20  # texts of 78 tokens
    assert all(result.never <= result.empty for result in found.results)


def test_a_swap_moves_fewer_pieces(found: Sweep) -> None:
    assert found.results[0].swap_ms > 2 * found.results[1].swap_ms


def test_tables_shrink_with_it(found: Sweep) -> None:
    for name in ("table_entries", "table_bytes"):
        values = [getattr(result, name) for result in found.results]
        assert values == sorted(values, reverse=True), name
    assert found.results[0].table_entries > 8 * found.results[1].table_entries


def test_a_copy_is_as_long_as_its_bytes(found: Sweep) -> None:
    copies = [result.copy_us / result.block_size for result in found.results]
    assert copies == pytest.approx([copies[0]] * 3)


def result(size: int, speed: float) -> SizeResult:
    return SizeResult(size, 1.0 * size, 0.0, 100 / size, 400 / size, size, 9.0, 5.0, speed)


def test_the_largest_that_is_fast_enough_is_recommended() -> None:
    found = Sweep(Load(), (result(1, 100.0), result(16, 95.5), result(64, 94.9)))
    assert found.best is not None and found.best.block_size == 16  # noqa: PT018
    assert found.reason.startswith("Take 16: ")
    assert "at 64, 64.0 % of what is held is empty, not 16.0 %" in found.reason


def test_the_last_size_says_that_no_larger_one_was_tried() -> None:
    assert "larger ones were not tried" in Sweep(Load(), (result(8, 1.0),)).reason


def test_a_file_of_lengths_works_and_a_bad_one_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "lengths.csv"
    path.write_text("prompt_tokens,new_tokens\n30,20\n10,5\n", encoding="utf-8")
    assert len(sweep([4, 16], Load(str(path), 10)).results) == 2
    path.write_text("prompt_tokens,new_tokens\n30,20\n10,-5\n", encoding="utf-8")
    with pytest.raises(WorkloadError, match="3"):
        sweep([4], Load(str(path), 10))


@pytest.mark.parametrize("text", ["", "a,b", "1;2", "1.5"])
def test_sizes_that_are_no_numbers(text: str) -> None:
    with pytest.raises(ConfigError, match="block sizes are numbers"):
        parse_sizes(text)


@pytest.mark.parametrize("sizes", [[0], [-1, 4], [2048], []])
def test_sizes_that_make_no_sense(sizes: list[int]) -> None:
    with pytest.raises(ConfigError, match="from 1 to 1,024 tokens"):
        sweep(sizes, Load("alpaca", 5))


@pytest.mark.parametrize("columns", [80, 120])
def test_the_table_fits(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    show_sweep([16, 32], Load("alpaca", 20), False, None)
    out = capsys.readouterr().out
    assert "tokens/s" in out
    assert "No advice: hardly anybody waited" in out
    assert max(map(len, out.splitlines())) <= columns


def test_json_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("plotly")
    show_sweep([16], Load("alpaca", 20), True, tmp_path / "sweep.html")
    document = json.loads(capsys.readouterr().out)
    assert document["recommended"] is None  # 20 requests fit at once
    assert document["results"][0]["block_size"] == 16
    assert "waste against overhead" in (tmp_path / "sweep.html").read_text(encoding="utf-8")
