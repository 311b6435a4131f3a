"""The command line as a user meets it: processes, exit statuses, one line for each error."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minipaged.memory.integrity import check_trace
from minipaged.memory.trace import Trace
from tests.tiny_models import save_model

LONG = {"max_position_embeddings": 4096}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    folder.mkdir()
    save_model(folder, **LONG)
    return folder


def minipaged(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "minipaged.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        **options,
    )


def assert_fails(result: subprocess.CompletedProcess[str], *words: str, status: int = 1) -> None:
    assert result.returncode == status, result.stderr
    assert result.stdout == ""
    assert result.stderr.startswith("minipaged: ")
    assert result.stderr.count("\n") == 1, result.stderr
    for word in words:
        assert word in result.stderr


def test_generate_streams_the_text(model: Path) -> None:
    options = ("--model", model, "--max-tokens", 8, "--temperature", 0)
    result = minipaged("generate", "The moon", *options)
    assert result.returncode == 0, result.stderr
    document = json.loads(minipaged("generate", "The moon", *options, "--json").stdout)
    (output,) = document["requests"][0]["outputs"]
    assert result.stdout == output["text"] + "\n"
    assert len(output["token_ids"]) == 8
    assert document["model"] == "tiny"


def test_generate_draws_n_samples_and_writes_a_trace(model: Path, tmp_path: Path) -> None:
    trace = tmp_path / "run.jsonl.gz"
    result = minipaged(
        *("generate", "The moon", "The sea", "-n", 3, "--model", model, "--max-tokens", 5),
        *("--trace", trace, "--block-size", 4, "--json"),
    )
    requests = json.loads(result.stdout)["requests"]
    assert [request["prompt"] for request in requests] == ["The moon", "The sea"]
    assert [len(request["outputs"]) for request in requests] == [3, 3]
    kinds = {event.kind for step in Trace.load(trace).steps for event in step.events}
    assert {"request", "alloc", "fork", "share", "copy", "write", "sample", "release"} <= kinds
    checked = minipaged("check", trace)
    assert checked.returncode == 0
    assert "every invariant holds" in checked.stdout


def test_generate_searches_with_beams(model: Path) -> None:
    result = minipaged(
        *("generate", "The moon", "--beam", 3, "--model", model, "--max-tokens", 4, "--json")
    )
    (request,) = json.loads(result.stdout)["requests"]
    scores = [beam["score"] for beam in request["sequences"]]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)


def test_models_lists_the_catalog() -> None:
    result = minipaged("models", env={**os.environ, "MINIPAGED_CACHE": "nowhere"})
    assert result.returncode == 0
    assert "smollm2-q4" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["generate", "", "--model", "{model}"], ["empty"]),
        (["generate", "x", "--model", "nosuch"], ["nosuch", "smollm2"]),
        (["generate", "x", "--model", "./nosuch"], ["nosuch"]),
        (["generate", "x", "--model", "{model}", "--block-size", "0"], ["block_size", "0"]),
        (["generate", "x", "--model", "{model}", "-n", "65"], ["65", "64", "max_num_seqs"]),
        (["generate", "x", "--model", "{model}", "-n", "0"], ["n must be", "0"]),
        (["generate", "x", "--model", "{model}", "-n", "2", "--beam", "3"], ["-n 2", "3 beams"]),
        (["generate", "x" * 9000, "--model", "{model}"], ["tokens", "4096"]),
        (["generate", "x" * 99, "--model", "{model}", "--num-blocks", "2"], ["blocks", "2"]),
        (["generate", "x", "--model", "{model}", "--temperature", "-1"], ["temperature", "-1"]),
        (["generate", "x", "--model", "{model}", "--num-blocks", "9" * 12], ["num_blocks"]),
        (["generate", "x", "--model", "{model}", "--trace", "no/such/t.jsonl"], ["t.jsonl"]),
        (["watch", "", "--model", "{model}"], ["empty"]),
        (["watch", "x", "--speed", "0", "--model", "{model}"], ["speed"]),
        (["watch", "--replay", "nosuch.jsonl"], ["nosuch.jsonl"]),
        (["check", "nosuch.jsonl"], ["nosuch.jsonl"]),
    ],
)
def test_a_mistake_is_one_line(model: Path, arguments: list[str], words: list[str]) -> None:
    assert_fails(minipaged(*(a.replace("{model}", str(model)) for a in arguments)), *words)


@pytest.mark.parametrize(
    "arguments", [["nosuch"], ["generate"], ["generate", "x", "--bogus"], ["check"]]
)
def test_wrong_usage_has_its_own_status(arguments: list[str]) -> None:
    assert_fails(minipaged(*arguments), "--help", status=2)


class _Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("exploded"),))


def test_a_pickle_file_is_never_loaded(tmp_path: Path) -> None:
    weights = tmp_path / "pytorch_model.bin"
    weights.write_bytes(pickle.dumps(_Bomb()))
    assert_fails(minipaged("generate", "x", "--model", weights, cwd=tmp_path), "pickle")
    assert not (tmp_path / "exploded").exists()


def test_a_trace_that_is_cut_off_is_one_line(model: Path, tmp_path: Path) -> None:
    trace = tmp_path / "run.jsonl"
    minipaged("generate", "The moon", "--model", model, "--max-tokens", 4, "--trace", trace)
    trace.write_bytes(trace.read_bytes()[:-20])
    assert_fails(minipaged("check", trace), "cut off", "line")
    header, *rest = trace.read_text().splitlines(keepends=True)
    trace.write_text(header.replace('"version":1', '"version":2') + "".join(rest))
    assert_fails(minipaged("check", trace), "version 2")


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for one process on Windows")
def test_ctrl_c_keeps_what_there_is(model: Path, tmp_path: Path) -> None:
    trace = tmp_path / "run.jsonl"
    command = [sys.executable, "-m", "minipaged.cli", "generate", "The moon", "--json"]
    command += ["--model", str(model), "--max-tokens", "4000", "--trace", str(trace)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            _wait_until(lambda: trace.exists() and trace.read_bytes().count(b"\n") > 8)
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 130
    assert stderr == "minipaged: interrupted\n"
    (output,) = json.loads(stdout)["requests"][0]["outputs"]
    assert output["finish_reason"] == "abort"
    assert 5 < len(output["token_ids"]) < 4000
    check_trace(trace)
    assert Trace.load(trace).steps[-1].events[-1].kind == "release"


def test_watch_without_a_terminal_prints_lines(model: Path) -> None:
    result = minipaged("watch", "The moon", "--model", model, "--max-tokens", 4)
    assert result.returncode == 0, result.stderr
    assert "\x1b" not in result.stdout
    assert "A takes block" in result.stdout


@pytest.mark.parametrize("word", ["generate", "watch"])
def test_a_deep_trace_tells_where_tokens_looked(model: Path, tmp_path: Path, word: str) -> None:
    trace = tmp_path / "run.jsonl"
    options = ("--model", model, "--max-tokens", 4, "--trace", trace, "--deep")
    result = minipaged(word, "The moon", *options)
    assert result.returncode == 0, result.stderr
    events = [event for step in Trace.load(trace).steps for event in step.events]
    assert sum(event.kind == "attend" for event in events) == 4
    check_trace(trace)


def test_deep_alone_has_nothing_to_write_to(model: Path) -> None:
    assert_fails(minipaged("generate", "The moon", "--model", model, "--deep"), "--trace FILE")


pty = pytest.importorskip("pty", reason="no pseudo-terminals on Windows")


class Terminal:
    """A process in a pseudo-terminal of 100 x 30, and what it has drawn."""

    def __init__(self, *arguments: object) -> None:
        import fcntl
        import struct
        import termios

        self.started = time.perf_counter()
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "minipaged.cli", *map(str, arguments)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**_without_size(), "TERM": "xterm-256color"},
            start_new_session=True,
        )
        os.close(slave)
        self.master, self.text = master, ""

    def read_until(self, *words: str, seconds: float = 180.0) -> float:
        """Read until all words were drawn; give the seconds since the start."""
        import select

        end = time.perf_counter() + seconds
        while not all(word in self.text for word in words):
            assert time.perf_counter() < end, self.text[-3000:]
            if select.select([self.master], [], [], 0.05)[0]:
                with contextlib.suppress(OSError):
                    self.text += os.read(self.master, 65536).decode(errors="replace")
        return time.perf_counter() - self.started

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)


@contextlib.contextmanager
def terminal(*arguments: object) -> Iterator[Terminal]:
    process = Terminal(*arguments)
    try:
        yield process
    finally:
        process.close()


def test_the_first_frame_comes_before_torch(model: Path) -> None:
    """Within 0.7 s, in one of five starts: a busy machine is slow by chance, slow code each time.

    That the frame says "loading" shows that torch is still to come.
    """
    times: list[float] = []
    while len(times) < 5 and not any(seconds < 0.7 for seconds in times):
        with terminal("watch", "The moon is", "--model", model) as view:
            times.append(view.read_until("A takes block", "loading tiny"))
    assert times[-1] < 0.7, times


def test_watch_follows_a_file_that_comes_later(model: Path, tmp_path: Path) -> None:
    trace = tmp_path / "later.jsonl"
    with terminal("watch", "--follow", trace) as view:
        view.read_until("waiting for")
        minipaged("generate", "The moon", "--model", model, "--max-tokens", 4, "--trace", trace)
        view.read_until("A takes block")


def test_watch_runs_pauses_and_quits(model: Path) -> None:
    with terminal("watch", "The moon", "--model", model, "--speed", 50) as view:
        view.read_until("next token")
        view.press(" ")
        view.read_until("paused")
        view.press("q")
        assert view.process.wait(timeout=20) == 0
        view.read_until("A: ")  # the text stays when the view is gone


def _without_size() -> dict[str, str]:
    """The environment without a terminal size that somebody exported: it would hide ours."""
    return {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}


def _wait_until(condition: Any, seconds: float = 180.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
