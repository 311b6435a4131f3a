"""The two commands as a student types them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from minipaged.commands.exercise import _quoted as quoted
from minipaged.errors import ConfigError
from minipaged.exercises.catalog import find_exercise
from minipaged.exercises.files import load_attempt, solution
from minipaged.memory.trace import Trace

SLOTS = find_exercise("3.1")


def minipaged(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "minipaged", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where somebody has run `minipaged learn`."""
    place = tmp_path_factory.mktemp("student")
    done = minipaged("learn", "--no-lab", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "exercises solved: 0 of " in done.stdout
    return place


def attempt_file(learnt: Path) -> Path:
    return learnt / "minipaged-tutorials" / "exercises" / SLOTS.file


def test_from_the_starter_to_the_solution(learnt: Path) -> None:
    file = attempt_file(learnt)
    unsolved = minipaged("exercise", "3.1", cwd=learnt)
    assert unsolved.returncode == 1
    assert "not solved yet" in unsolved.stdout
    assert str(Path("exercises") / SLOTS.file) in unsolved.stdout

    starter = file.read_text(encoding="utf-8")
    body = "    return [block_ids[0] * block_size + p for p in range(start, stop)]\n"
    file.write_text(starter[: starter.index("    raise ")] + body, encoding="utf-8")
    wrong = minipaged("exercise", "3.1", cwd=learnt)
    assert wrong.returncode == 1
    assert "smallest case" in wrong.stdout
    assert Trace.load(file.with_suffix(".jsonl")).steps[-1].note

    file.write_text(solution(SLOTS).read_text(encoding="utf-8"), encoding="utf-8")
    right = minipaged("exercise", "3.1", cwd=file.parent)
    assert (right.returncode, right.stderr) == (0, "")
    assert not file.with_suffix(".jsonl").exists()
    assert not list(learnt.rglob(".hypothesis"))
    assert "1 of " in minipaged("exercise", cwd=learnt).stdout

    assert "yours are kept" in minipaged("learn", "--no-lab", cwd=learnt).stdout
    reset = minipaged("learn", "--reset", "3", cwd=learnt)
    assert "backup/exercises/ex_3_1.1.py" in reset.stdout
    assert file.read_text(encoding="utf-8") == starter


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["exercise", "9.9"], "there is no exercise '9.9'"),
        (["exercise", "3.1", "--hint", "4"], "hints are 1, 2 and 3, not 4"),
        (["exercise", "3.1", "--file", "none.py"], "none.py: there is no such file"),
        (["exercise", "--hint", "1"], "name the exercise"),
        (["learn", "--reset", "99"], "there is no chapter 99"),
    ],
)
def test_a_mistake_in_the_command_is_one_line(learnt: Path, words: list[str], says: str) -> None:
    done = minipaged(*words, cwd=learnt)
    assert done.returncode == 1
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("def slot_mapping(:\n", "line 1: SyntaxError"),
        ("x = 1\nundefined\n", "line 2: NameError"),
        ("x = 1\n", "slot_mapping is not defined there"),
        ("import sys\nsys.exit(5)\n", "line 2: SystemExit"),
        ("raise BaseException('x')\n", "line 1: BaseException: x"),
        ("input('name? ')\n", "line 1: EOFError"),
        ("def __getattr__(name): raise KeyError(name)\n", "line 1: KeyError"),
        ("x = '\0'\n", "null bytes"),
    ],
)
def test_a_file_that_can_not_be_run_is_one_line(tmp_path: Path, code: str, says: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(code, encoding="utf-8")
    done = minipaged("exercise", "3.1", "--file", str(file), cwd=tmp_path)
    assert done.returncode == 1
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_file_may_have_dataclasses_and_marks_of_windows(tmp_path: Path) -> None:
    text = solution(SLOTS).read_text(encoding="utf-8")
    head = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    more = "@dataclass\nclass Pair:\n    first: int\n"
    file = tmp_path / "my [bold] file.py"
    file.write_bytes(b"\xef\xbb\xbf" + (head + more + text).replace("\n", "\r\n").encode())
    done = minipaged("exercise", "3.1", "--file", str(file), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_file_is_run_as_it_is_now(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    for number in (1, 2):
        file.write_text(f"def slot_mapping(): return {number}\n", encoding="utf-8")
        os.utime(file, (10**9, 10**9))
        assert load_attempt(SLOTS, file)() == number


def test_a_file_that_never_ends_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minipaged.exercises.files.LOAD_SECONDS", 0.3)
    (tmp_path / "mine.py").write_text("while True: pass\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="did not end within"):
        load_attempt(SLOTS, tmp_path / "mine.py")
    with pytest.raises(ConfigError, match="there is no such file but a folder"):
        load_attempt(SLOTS, tmp_path)


def test_only_traces_are_replaced_or_removed(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(solution(SLOTS).read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "wrong.py").write_text(
        "def slot_mapping(block_ids, start, stop, block_size): pass\n", encoding="utf-8"
    )
    for name in ("mine.jsonl", "mine.case.jsonl", "wrong.jsonl"):
        (tmp_path / name).write_text("precious", encoding="utf-8")
    assert minipaged("exercise", "3.1", "--file", "mine.py", cwd=tmp_path).returncode == 0
    assert minipaged("exercise", "3.1", "--file", "wrong.py", cwd=tmp_path).returncode == 1
    for name in ("mine.jsonl", "mine.case.jsonl", "wrong.jsonl"):
        assert (tmp_path / name).read_text(encoding="utf-8") == "precious"
    assert Trace.load(tmp_path / "wrong.case.jsonl").steps[-1].note
    asked = "wrong.py"
    done = minipaged("exercise", "3.1", "--file", asked, "--trace", asked, cwd=tmp_path)
    assert "no trace: it is not overwritten" in done.stderr
    assert "slot_mapping" in (tmp_path / asked).read_text(encoding="utf-8")


def test_the_command_that_is_told_names_the_file_in_one_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = Path("my folder") / "ex_3_1.jsonl"
    assert quoted(path) == f"'{path}'"
    monkeypatch.setattr(sys, "platform", "win32")  # where an apostrophe is a letter
    assert quoted(path) == f'"{path}"'


def test_outside_a_students_folder_the_way_is_told(tmp_path: Path) -> None:
    assert "minipaged learn" in minipaged("exercise", "3.1", cwd=tmp_path).stderr
    assert "minipaged learn" in minipaged("exercise", cwd=tmp_path).stdout


def test_hints_and_solution_are_shown(tmp_path: Path) -> None:
    assert "Hint 1 of 3" in minipaged("exercise", "3.1", "--hint", "1", cwd=tmp_path).stdout
    shown = minipaged("exercise", "3.1", "--solution", cwd=tmp_path).stdout
    assert shown == solution(SLOTS).read_text(encoding="utf-8")
