"""What a hostile hand does from outside ends in one clear line, and nothing is lost."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import minipaged.__main__
from minipaged import LLM, SamplingParams, Trace
from minipaged.commands import watch as watch_command
from minipaged.engine.config import EngineConfig
from minipaged.engine.sampler import SamplingRow, sample
from minipaged.errors import (
    ConfigError,
    MinipagedError,
    ModelError,
    RequestRefusedError,
    TraceError,
)
from minipaged.memory.integrity import check_trace
from minipaged.memory.trace import TraceHeader
from minipaged.models import catalog
from minipaged.models.hub import hub_cache
from minipaged.models.tokenizer import load_tokenizer
from minipaged.models.weights import load_weights
from tests.tiny_models import save_model, write_gguf

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="signals and devices of POSIX")
HEADER = TraceHeader(block_size=4, num_blocks=4)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("pristine") / "tiny"
    folder.mkdir()
    save_model(folder)
    return folder


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "tiny"))


@pytest.fixture(scope="module")
def llm(pristine: Path) -> Iterator[LLM]:
    with LLM(str(pristine), block_size=4, num_blocks=16) as llm:
        yield llm
        assert llm.memory().num_used == 0
        assert not llm.has_unfinished_requests()


def load(path: Path) -> None:
    """Read all that a start reads, without building the model."""
    files = catalog.resolve(str(path), lambda _: None)
    load_tokenizer(files)
    for _ in load_weights(files.weight_files):
        pass


def is_read_or_refused(path: Path) -> bool:
    """Whether it ends well, or in one line; anything else is raised."""
    try:
        load(path)
    except ModelError as error:
        return "\n" not in str(error)
    return True


def refused(call: Callable[[], object], kind: type[MinipagedError] = ModelError) -> str:
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert message.isprintable(), message
    return message


# --- model files


def damaged(content: bytes, draw: random.Random) -> bytes:
    if draw.random() < 0.4:
        return content[: draw.randrange(len(content))]
    changed = bytearray(content)
    for _ in range(draw.choice((1, 3, 20))):
        place = draw.randrange(draw.choice((64, 4096, len(content))))
        changed[place % len(content)] = draw.choice((0, 0xFF, 0x80, ord('"'), ord("9"), ord("-")))
    return bytes(changed)


@pytest.mark.parametrize(
    "name", ["config.json", "generation_config.json", "tokenizer.json", "model.safetensors"]
)
def test_a_damaged_file_is_read_or_refused(folder: Path, name: str) -> None:
    draw, content = random.Random(name), (folder / name).read_bytes()
    for _ in range(60):
        (folder / name).write_bytes(damaged(content, draw))
        assert is_read_or_refused(folder)


def test_a_damaged_gguf_is_read_or_refused(tmp_path: Path) -> None:
    path, draw = tmp_path / "tiny.gguf", random.Random(1)
    write_gguf(path)
    content = path.read_bytes()
    for _ in range(150):
        path.write_bytes(damaged(content, draw))
        assert is_read_or_refused(path)


class Bomb:
    """An object whose pickle leaves a file behind where it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("name", ["model.safetensors", "model.gguf", "model.bin", "model.PT"])
def test_a_pickle_is_never_loaded_whatever_its_name(
    folder: Path, tmp_path: Path, name: str, zipped: bool
) -> None:
    (folder / "model.safetensors").unlink()
    mark, content = tmp_path / "mark", pickle.dumps(Bomb(tmp_path / "mark"))
    (folder / name).write_bytes(content)
    if zipped:  # as torch.save does
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr("archive/data.pkl", content)
    refused(lambda: load(folder))
    assert not mark.exists()
    pickle.loads(content)
    assert mark.exists(), "the bomb is none"


def test_a_weights_name_is_quoted(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = safetensors.torch.load_file(path)
    safetensors.torch.save_file({**weights, "a\n\x1b[31m\u202e": torch.ones(1)}, path)
    assert "unexpected weight 'a\\n\\x1b[31m\\u202e'" in refused(lambda: LLM(str(folder)))


def test_weights_of_nan_are_told(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = safetensors.torch.load_file(path)
    weights["model.norm.weight"][3] = float("nan")
    safetensors.torch.save_file(weights, path)
    with LLM(str(folder), num_blocks=4) as llm:
        assert "NaN" in refused(lambda: llm.generate("The moon", use_tqdm=False))
        assert llm.memory().num_used == 0


def test_a_folder_in_the_place_of_a_file_is_told(folder: Path) -> None:
    for name in ("model.safetensors", "config.json"):
        (folder / name).unlink()
        (folder / name).mkdir()
        message = refused(lambda: load(folder))
        assert "config.json" in message or "no weights" in message or "can't be read" in message


def test_names_that_no_system_takes_are_told(folder: Path) -> None:
    for name in ("x" * 5000, f"./{'x' * 5000}", f"org/{'x' * 5000}", "a\0b", "~nobody-there/x", ""):
        refused(lambda name=name: load(name))  # type: ignore[misc]
    shards = {"weight_map": {"a": f"{'x' * 5000}.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(shards))
    refused(lambda: load(folder))


@POSIX
def test_a_closed_folder_is_told(folder: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root opens every folder")
    folder.chmod(0)
    try:
        for path in (folder, folder / "deeper", folder / "x.gguf"):
            assert "Permission denied" in refused(lambda path=path: load(path))  # type: ignore[misc]
    finally:
        folder.chmod(0o700)


def test_a_cache_of_nobody_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINIPAGED_CACHE", "~nobody-there/models")
    monkeypatch.setenv("HF_HOME", "~nobody-there/hub")
    assert catalog.cache_folder() == Path("~nobody-there/models")
    assert hub_cache() == Path("~nobody-there/hub/hub")
    here = [status.entry.name for status in catalog.list_models() if status.folder]
    assert here == ["storyteller"]  # it is part of minipaged


def test_yarn_needs_a_base(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    rope = {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1.0}
    (folder / "config.json").write_text(json.dumps({**config, "rope_parameters": rope}))
    assert "rope_theta of 1" in refused(lambda: load(folder))


# --- Python


def test_the_smallest_shares_keep_one_token() -> None:
    logits = torch.randn(1, 50, generator=torch.Generator().manual_seed(0))
    for top_p in (1e-320, 1e-45, 1e-12):
        row = SamplingRow(SamplingParams(top_p=top_p), seed=1, position=0)
        (token,) = sample(logits, [row])
        assert token.token_id == int(logits.argmax())


@pytest.mark.parametrize(
    "prompt",
    [
        None,
        3,
        b"ab",
        bytearray(b"ab"),
        memoryview(b"ab"),
        [b"ab"],
        [True],
        [1.5],
        [[[1]]],
        {"a": 1},
    ],
)
def test_what_is_no_prompt_is_refused(llm: LLM, prompt: Any) -> None:
    refused(lambda: llm.generate(prompt, use_tqdm=False), RequestRefusedError)
    refused(lambda: llm.add_request(prompt), RequestRefusedError)


@pytest.mark.parametrize(
    "messages",
    [None, 3, "hi", [3], [None], ["hi"], {"role": "user", "content": "hi"}, [{}, []]],
)
def test_what_is_no_chat_is_refused(llm: LLM, messages: Any) -> None:
    refused(lambda: llm.chat(messages, use_tqdm=False), RequestRefusedError)


def test_messages_from_a_generator_are_not_lost_in_silence(llm: LLM) -> None:
    messages: Any = ({"role": "user", "content": text} for text in ("Hello", "there"))
    refused(lambda: llm.chat(messages, use_tqdm=False), RequestRefusedError)


@pytest.mark.parametrize("request_id", [None, 3, [], {}, "no such"])
def test_what_is_no_request_is_not_aborted(llm: LLM, request_id: Any) -> None:
    refused(lambda: llm.abort(request_id), RequestRefusedError)


@pytest.mark.parametrize(
    "options",
    [
        *({"trace": wrong} for wrong in (None, 1, 1.5, b"run.jsonl", [], print)),
        *({"dtype": wrong} for wrong in (None, [], torch.float32)),
        *({"device": wrong} for wrong in (None, [], 3)),
        *({"attention": wrong} for wrong in (None, [], {})),
        {"max_model_len": 1},
        {"kv_cache_memory_bytes": 1},
    ],
    ids=str,
)
def test_settings_of_a_wrong_kind_are_refused(pristine: Path, options: dict[str, Any]) -> None:
    refused(lambda: LLM(str(pristine), **options), ConfigError)


def test_a_budget_beyond_all_pools_gives_the_largest(pristine: Path) -> None:
    from minipaged.engine.model_runner import choose_num_blocks, load_model

    model = load_model(catalog.resolve(str(pristine), print), "auto", "cpu", "auto")
    config = EngineConfig(kv_cache_memory_bytes=10**18)
    assert choose_num_blocks(model, config) == 2**22


# --- traces


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_trace_does_not_overwrite_a_model(folder: Path, name: str) -> None:
    before = (folder / name).read_bytes()
    message = refused(lambda: LLM(str(folder), num_blocks=4, trace=folder / name), TraceError)
    assert "not overwritten" in message
    assert (folder / name).read_bytes() == before


def test_a_trace_takes_the_place_of_older_traces(tmp_path: Path) -> None:
    for name in ("run.jsonl", "run.jsonl.gz"):
        path = tmp_path / name
        path.touch()  # a run that ended before its first line
        for _ in range(2):
            Trace(HEADER, path).close()
            assert Trace.load(path).header == HEADER


def test_two_runs_into_one_file_leave_a_whole_trace(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    first, second = Trace(HEADER, path), Trace(HEADER, path)
    for trace in (first, second, first):
        trace.end_step(0, 0, note="a note of some length")
    first.close()
    second.close()
    assert Trace.load(path) == second


@POSIX
def test_a_link_stays_a_link_and_a_device_a_device(tmp_path: Path) -> None:
    target, link = tmp_path / "target.jsonl", tmp_path / "link"
    link.symlink_to(target)
    for _ in range(2):
        Trace(HEADER, link).close()
        assert link.is_symlink()
        assert Trace.load(target).header == HEADER
    Trace(HEADER, os.devnull).close()
    assert Path(os.devnull).is_char_device()


@pytest.mark.parametrize("path", [None, 3, b"run.jsonl", ["run.jsonl"]])
def test_what_is_no_path_is_not_written(path: Any) -> None:
    refused(lambda: Trace(HEADER).save(path), TraceError)
    refused(
        lambda: Trace(HEADER, path) if path is not None else Trace(HEADER).save(path), TraceError
    )


# --- the command line


def start(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "minipaged", *map(str, arguments)]
    return subprocess.Popen(command, **{"stderr": subprocess.PIPE, **options})


def one_line(process: subprocess.Popen[bytes]) -> str:
    _, errors = process.communicate(timeout=60)
    message = errors.decode()
    assert message.startswith("minipaged: "), message
    assert message.count("\n") == 1, message
    return message


def test_ctrl_c_before_all_is_imported_ends_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupt:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "minipaged.cli":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "minipaged.cli", raising=False)
    monkeypatch.delattr(minipaged, "cli", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupt(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        minipaged.__main__.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "minipaged: interrupted\n"


def test_nothing_of_a_message_acts_on_the_terminal() -> None:
    process = start("check", "\x1b[31mno\nsuch\u202efile")
    assert "\x1b" not in one_line(process)
    assert process.returncode == 1


@POSIX
def test_a_full_disk_under_standard_output_is_one_line() -> None:
    with open("/dev/full", "wb") as full:
        process = start("--version", stdout=full)
        assert "No space left" in one_line(process)
    assert process.returncode == 1


@POSIX
def test_a_current_folder_that_is_gone_is_one_line(tmp_path: Path) -> None:
    command = ["sh", "-c", 'rmdir "$PWD"; exec "$0" -m minipaged exercise', sys.executable]
    gone = tmp_path / "gone"
    gone.mkdir()
    done = subprocess.run(command, capture_output=True, text=True, cwd=gone, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("minipaged: the current folder")
    assert done.stderr.count("\n") == 1


@POSIX
def test_closed_streams_are_no_traceback() -> None:
    def closed(stream: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", "-c", f'exec "$0" -m minipaged "$@" {stream}>&-', sys.executable]
        return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60)

    assert closed("1", "--version").stderr == "minipaged: standard output is closed\n"
    silent = closed("2", "check", "no such file")
    assert (silent.returncode, silent.stdout) == (1, "")


@POSIX
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_end_leaves_a_whole_trace(
    pristine: Path, tmp_path: Path, number: signal.Signals
) -> None:
    path = tmp_path / "run.jsonl"
    prompts = ["The moon"] * 400
    options = ("--model", pristine, "--max-tokens", 60, "--num-blocks", 8, "--trace", path)
    before = signal.signal(number, signal.SIG_DFL)  # a test run under nohup ignores SIGHUP
    process = start("generate", *prompts, *options, stdout=subprocess.DEVNULL)
    signal.signal(number, before)
    until(lambda: path.exists() and path.stat().st_size > 10_000)
    process.send_signal(number)
    assert one_line(process) == "minipaged: interrupted\n"
    assert process.returncode == 130
    check_trace(path)


@POSIX
def test_a_request_to_end_restores_the_terminal(tmp_path: Path) -> None:
    import pty
    import termios

    path = tmp_path / "run.jsonl"
    Trace(HEADER, path).close()
    controller, terminal = pty.openpty()
    before = termios.tcgetattr(terminal)[:4]
    environment = {**os.environ, "TERM": "xterm", "PYTHONUTF8": "1", "COLUMNS": "80", "LINES": "24"}
    streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    process = start("watch", "--follow", path, env=environment, **streams)
    shown = b""
    while b"quit" not in shown:
        shown += os.read(controller, 1 << 16)
    process.terminate()
    while b"interrupted" not in shown:
        shown += os.read(controller, 1 << 16)
    assert process.wait(60) == 130
    assert shown.count(b"\x1b[?1049h") == shown.count(b"\x1b[?1049l") == 1
    assert termios.tcgetattr(terminal)[:4] == before
    os.close(controller)
    os.close(terminal)


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def test_texts_are_printed_once_where_nothing_was_drawn(
    pristine: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    params = SamplingParams(max_tokens=3)
    config = EngineConfig(block_size=4)
    watch_command.watch_live(str(pristine), ["The moon"], params, config, None, 1000)
    assert capsys.readouterr().out.count("\nA: ") == 1
