"""`minipaged learn` and `minipaged exercise`: nothing of the student's is ever lost."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from minipaged.errors import ConfigError
from minipaged.exercises import student_folder
from minipaged.exercises.chapter_1 import ex_1_1
from minipaged.exercises.checking import check
from minipaged.exercises.files import load_attempt, solution
from minipaged.exercises.student_folder import MARKER, StudentFolder


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tutorials of two chapters."""
    folder = tmp_path / "tutorials"
    for name in ("1_one.ipynb", "2_two.ipynb", "README.md", "exercises/ex_2_1.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"first version of {name}", encoding="utf-8")
    monkeypatch.setattr(student_folder, "tutorials", lambda: folder)
    return folder


@pytest.fixture
def folder(source: Path, tmp_path: Path) -> StudentFolder:
    made = StudentFolder(tmp_path / "mine")
    made.update()
    return made


def text(folder: StudentFolder, name: str) -> str:
    return (folder.path / name).read_text(encoding="utf-8")


def write(path: Path, words: str) -> None:
    path.write_text(words, encoding="utf-8")


def test_everything_is_copied_once(folder: StudentFolder) -> None:
    assert text(folder, "exercises/ex_2_1.py") == "first version of exercises/ex_2_1.py"
    again = folder.update()
    assert (again.fresh, again.updated, again.kept, again.saved) == ([], [], [], [])


def test_what_the_student_wrote_is_kept(folder: StudentFolder, source: Path) -> None:
    write(folder.path / "2_two.ipynb", "mine")
    write(source / "2_two.ipynb", "second version")
    assert folder.update().kept == ["2_two.ipynb"]
    assert text(folder, "2_two.ipynb") == "mine"


def test_what_nobody_changed_is_renewed(folder: StudentFolder, source: Path) -> None:
    write(source / "1_one.ipynb", "second version")
    assert folder.update().updated == ["1_one.ipynb"]
    assert text(folder, "1_one.ipynb") == "second version"


def test_what_the_student_wrote_is_kept_after_it_was_renewed(
    folder: StudentFolder, source: Path
) -> None:
    write(source / "1_one.ipynb", "second version")
    folder.update()
    write(folder.path / "1_one.ipynb", "mine")
    write(source / "1_one.ipynb", "third version")
    assert folder.update().kept == ["1_one.ipynb"]


def test_a_missing_file_comes_back(folder: StudentFolder) -> None:
    (folder.path / "README.md").unlink()
    assert folder.update().fresh == ["README.md"]


def test_a_folder_that_was_there_before_is_not_overwritten(source: Path, tmp_path: Path) -> None:
    mine = tmp_path / "old"
    mine.mkdir()
    write(mine / "1_one.ipynb", "from long ago")
    copied = StudentFolder(mine).update()
    assert copied.kept == ["1_one.ipynb"]
    assert (mine / "1_one.ipynb").read_text(encoding="utf-8") == "from long ago"


@pytest.mark.parametrize("leads_to", ["elsewhere", "nowhere"])
def test_a_link_is_not_written_through(source: Path, tmp_path: Path, leads_to: str) -> None:
    outside = tmp_path / "outside.txt"
    if leads_to == "elsewhere":
        write(outside, "precious")
    mine = tmp_path / "linked"
    mine.mkdir()
    (mine / "1_one.ipynb").symlink_to(outside)
    folder = StudentFolder(mine)
    assert folder.update().kept == ["1_one.ipynb"]
    folder.reset(1)
    assert outside.exists() == (leads_to == "elsewhere")
    assert not outside.exists() or outside.read_text(encoding="utf-8") == "precious"


def test_reset_brings_one_chapter_back_and_loses_nothing(folder: StudentFolder) -> None:
    for words in ("mine", "mine again"):
        write(folder.path / "exercises/ex_2_1.py", words)
        write(folder.path / "1_one.ipynb", "chapter one, mine")
        folder.note_solved("2.1")
        folder.note_solved("1.1")
        copied = folder.reset(2)
        (saved,) = copied.saved
        assert text(folder, saved) == words
        assert text(folder, "exercises/ex_2_1.py").startswith("first version")
        assert text(folder, "1_one.ipynb") == "chapter one, mine"
        assert folder.solved == ["1.1"]


def test_reset_of_an_unknown_chapter_changes_nothing(folder: StudentFolder) -> None:
    with pytest.raises(ConfigError, match="there is no chapter 7"):
        folder.reset(7)


def test_progress_is_remembered(folder: StudentFolder) -> None:
    folder.note_solved("2.1")
    folder.note_solved("2.1")
    folder.update()
    assert StudentFolder(folder.path).solved == ["2.1"]


@pytest.mark.parametrize(
    "memory",
    [
        *("", "[]", "{}", '{"files": [], "solved": []}', '{"files": {}, "solved": [1]}', "\0"),
        "[" * 100_000,
    ],
)
def test_a_broken_memory_is_one_line(folder: StudentFolder, memory: str) -> None:
    write(folder.path / MARKER, memory)
    with pytest.raises(ConfigError, match="remove it to start over") as caught:
        folder.update()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo] if hasattr(os, "mkfifo") else [Path.mkdir])
def test_a_memory_that_is_no_file_is_one_line(
    source: Path, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / MARKER)
    with pytest.raises(ConfigError, match="is no file; remove it to start over"):
        StudentFolder(tmp_path).update()


@pytest.mark.parametrize("way", ["itself", "a link", "inside"])
def test_the_originals_are_nobodys_folder(source: Path, tmp_path: Path, way: str) -> None:
    (tmp_path / "link").symlink_to(source)
    folder = {"itself": source, "a link": tmp_path / "link", "inside": source / "mine"}[way]
    before = sorted(source.rglob("*"))
    for act in (StudentFolder(folder).update, lambda: StudentFolder(folder).reset(2)):
        with pytest.raises(ConfigError, match="here are the originals"):
            act()
    assert sorted(source.rglob("*")) == before


def test_a_link_to_the_originals_does_not_cost_them(source: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "exercises").symlink_to(source / "exercises")
    folder = StudentFolder(mine)
    folder.update()
    folder.reset(2)
    assert (source / "exercises/ex_2_1.py").read_text(encoding="utf-8").startswith("first version")


def test_half_a_file_is_never_there(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(path: Path, target: Path) -> Path:
        assert not target.exists()
        raise KeyboardInterrupt

    folder = StudentFolder(tmp_path / "mine")
    monkeypatch.setattr(Path, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        folder.update()
    assert list(folder.path.iterdir()) == []
    monkeypatch.undo()
    monkeypatch.setattr(student_folder, "tutorials", lambda: source)
    assert folder.update().kept == []


def test_what_is_right_is_right_where_it_can_not_be_noted(
    folder: StudentFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder.path / MARKER, "")
    monkeypatch.chdir(folder.path)
    verdict = check(ex_1_1, load_attempt(ex_1_1, solution(ex_1_1)))
    assert verdict.passed
    assert "it can't be noted" in verdict.words


def test_a_folder_that_is_a_file_is_one_line(source: Path, tmp_path: Path) -> None:
    write(tmp_path / "file", "")
    with pytest.raises(ConfigError, match="can't be"):
        StudentFolder(tmp_path / "file").update()


def test_the_folder_is_found_from_inside_and_from_above(
    folder: StudentFolder, tmp_path: Path
) -> None:
    inside = StudentFolder.around(folder.path / "exercises")
    assert inside
    assert inside.path == folder.path.resolve()
    assert StudentFolder.around(tmp_path) is None
    folder.path.rename(tmp_path / student_folder.USUAL)
    assert StudentFolder.around(tmp_path)


def test_the_memory_is_plain(folder: StudentFolder) -> None:
    memory = json.loads(text(folder, MARKER))
    assert set(memory) == {"files", "solved"}
