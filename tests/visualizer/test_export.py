"""`minipaged export`: every format, from plain and gzipped traces; one line for what is wrong."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hostile import hostile_trace
from minipaged_visualizer.html_page import export_html
from scenes import everything

from minipaged.commands import export as command
from minipaged.commands.export import FORMATS, export
from minipaged.errors import ConfigError, MinipagedError, TraceError
from minipaged.memory.trace import Trace


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run.jsonl.gz"
    everything().save(path)
    return path


def written(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "start"),
    [("page.html", "<!DOCTYPE html>"), ("p.HTM", "<!DOCTYPE"), ("s.svg", "<svg"), ("p.json", "{")],
)
def test_the_ending_tells_the_format(run: Path, tmp_path: Path, name: str, start: str) -> None:
    export(run, tmp_path / name)
    assert written(tmp_path / name).startswith(start)
    assert os.listdir(tmp_path) == [name]


def test_formats_can_be_named(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export(run, tmp_path / "a", "perfetto")
    export(run, tmp_path / "b", "gantt")
    assert json.loads(written(tmp_path / "a"))["traceEvents"]
    assert "Requests over 16 steps" in written(tmp_path / "b")
    assert re.search(r"b: gantt, \d+ KiB\n$", capsys.readouterr().out)


def test_a_large_page_says_how_long_it_takes_to_open(
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    export(run, tmp_path / "a.html")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(command, "LARGE_PAGE", 1000)
    export(run, tmp_path / "a.html")
    err = capsys.readouterr().err
    assert err.startswith("minipaged: a browser takes about 0 s to open 0 MB; minipaged watch")
    assert err.count("\n") == 1
    export(run, tmp_path / "a.svg")
    assert capsys.readouterr().err == ""


def test_charts_are_a_page_that_asks_for_nothing(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    export(run, tmp_path / "charts.html", "charts")
    page = written(tmp_path / "charts.html")
    assert "default-src 'none'" in page
    assert not re.search(
        r"<(script|link|img)[^>]+(src|href)=[\"'](?!data:)", page.split("<body>")[0]
    )
    assert page.count("Plotly.newPlot(") >= 3


def test_a_still_of_a_moment(run: Path, tmp_path: Path) -> None:
    export(run, tmp_path / "a.svg", step=1, event=8)
    root = ElementTree.fromstring(written(tmp_path / "a.svg"))
    assert any("step 1, event 8 of" in "".join(node.itertext()) for node in root.iter())


@pytest.mark.parametrize("name", FORMATS)
def test_hostile_texts_can_not_end_an_element(tmp_path: Path, name: str) -> None:
    if name == "charts":
        pytest.importorskip("plotly")
    hostile_trace().save(tmp_path / "h.jsonl")
    export(tmp_path / "h.jsonl", tmp_path / "out", name)
    text = written(tmp_path / "out")
    if name == "perfetto":  # JSON for a program, no page
        assert text.isascii()
        return
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    shown_by_a_script = "html"
    assert name == shown_by_a_script or not set(text) & set("\x00\x07\x1b\u202e")


# --- what is wrong


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("page.pdf", {}, ConfigError, "give --format html, perfetto, svg, gantt or charts"),
        ("page", {}, ConfigError, "its ending tells no format"),
        ("a.svg", {"format_name": "pdf"}, ConfigError, "format is html, .* not 'pdf'"),
        ("a.html", {"step": 3}, ConfigError, "--step and --event are for --format svg"),
        ("a.svg", {"event": 3}, ConfigError, "give --step too"),
        ("a.svg", {"step": 99}, TraceError, "there is no step 99: the trace has steps 0 to 15"),
        ("no/a.svg", {}, TraceError, "a.svg: can't be written: No such file or directory"),
    ],
)
def test_what_is_wrong_is_one_line_and_leaves_nothing(
    run: Path, tmp_path: Path, name: str, options: dict, error: type[MinipagedError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        export(run, tmp_path / name, **options)
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_a_folder_is_no_file_to_write_to(run: Path, tmp_path: Path) -> None:
    (tmp_path / "a.svg").mkdir()
    with pytest.raises(TraceError, match=r"a\.svg: can't be written"):
        export(run, tmp_path / "a.svg")


@pytest.mark.parametrize(
    "content", [b"hello\n", b"", gzip.compress(b"hello", mtime=0), b"\x1f\x8b"]
)
def test_a_foreign_file_is_one_line_and_the_old_page_stays(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    (tmp_path / "page.html").write_text("old")
    with pytest.raises(TraceError, match=r"/x: ") as caught:
        export(tmp_path / "x", tmp_path / "page.html")
    assert "\n" not in str(caught.value)
    assert written(tmp_path / "page.html") == "old"


def test_the_trace_is_never_overwritten_whatever_it_is_called(tmp_path: Path) -> None:
    trace = tmp_path / "run.html"
    everything().save(trace)
    before = trace.read_bytes()
    (tmp_path / "link.html").symlink_to(trace)
    (tmp_path / "hard.html").hardlink_to(trace)
    for name in ("run.html", "link.html", "hard.html", "../" + tmp_path.name + "/run.html"):
        with pytest.raises(TraceError, match="this is the trace itself"):
            export(trace, tmp_path / name)
    assert trace.read_bytes() == before


def test_a_disk_that_is_full_leaves_the_old_file(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.svg").write_text("old")

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command.Path, "replace", full)
    with pytest.raises(TraceError, match="No space left"):
        export(run, tmp_path / "a.svg")
    assert written(tmp_path / "a.svg") == "old"
    assert os.listdir(tmp_path) == ["a.svg"]


def test_a_link_is_followed_and_stays_a_link(run: Path, tmp_path: Path) -> None:
    (tmp_path / "real.svg").write_text("old")
    (tmp_path / "a.svg").symlink_to("real.svg")
    export(run, tmp_path / "a.svg")
    assert (tmp_path / "a.svg").is_symlink()
    assert written(tmp_path / "real.svg").startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["missing.jsonl", "-o", "a.html"], 1, "minipaged: missing.jsonl: can't be read"),
        (["{run}", "-o", "a.png"], 1, "minipaged: a.png: its ending tells no format"),
        (["{run}"], 2, "Missing option"),
        (["{run}", "-o", "a.svg", "--step", "x"], 2, "Invalid value for '--step'"),
    ],
)
def test_the_command_tells_in_one_line(
    run: Path, tmp_path: Path, arguments: list[str], status: int, message: str
) -> None:
    words = [word.replace("{run}", str(run)) for word in arguments]
    done = subprocess.run(
        [sys.executable, "-m", "minipaged", "export", *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == status
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
    assert done.stdout == ""


def test_a_page_never_takes_the_place_of_a_run(run: Path, tmp_path: Path) -> None:
    trace = Trace.load(run)
    trace.save(tmp_path / "other.jsonl")
    kept = (tmp_path / "other.jsonl").read_bytes()
    with pytest.raises(TraceError, match="this is a recorded run"):
        export(run, tmp_path / "other.jsonl", "html")
    with pytest.raises(TraceError, match="this is a recorded run"):
        export_html(trace, tmp_path / "other.jsonl")
    assert (tmp_path / "other.jsonl").read_bytes() == kept


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
def test_a_trace_may_come_through_a_pipe(run: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "minipaged", "export", "/dev/stdin", "-o", "a.html"]
    done = subprocess.run(command, input=run.read_bytes(), capture_output=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_command_draws_without_torch(run: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        f"sys.argv = ['minipaged', 'export', {str(run)!r}, '-o', 'a.svg', '--step', '2']\n"
        "from minipaged.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert written(tmp_path / "a.svg").startswith("<svg")
