"""`minipaged learn`: a copy of the tutorials to work in, and JupyterLab on it."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from minipaged.commands.hypothesis_folder import keep_notes_in_the_cache
from minipaged.errors import ConfigError
from minipaged.exercises.catalog import EXERCISES
from minipaged.exercises.student_folder import BACKUPS, USUAL, Copied, StudentFolder


def learn(folder: Path | None, reset: int | None, opens_lab: bool) -> int:
    """Bring the tutorials into a folder and open JupyterLab there; give its exit status.

    Raises:
        ConfigError: The folder can't be written, or there is no JupyterLab.
    """
    around = StudentFolder.around()
    here = StudentFolder(folder) if folder else around or StudentFolder(Path(USUAL))
    copied = here.update() if reset is None else here.reset(reset)
    console = Console(highlight=False, soft_wrap=True, emoji=False)
    console.print(_told(here, copied), markup=False)
    console.print(_progress(here), markup=False)
    if not opens_lab:
        console.print(
            f"open {here.path / '1_the_kv_cache.ipynb'} in your notebook editor, or write into "
            f"{here.path / 'exercises'} and run minipaged exercise 1.1",
            markup=False,
        )
        return 0
    if find_spec("jupyterlab") is None:
        raise ConfigError(
            "JupyterLab is not installed: pip install 'minipaged[notebook]'; "
            f"the tutorials are in {here.path}"
        )
    return _open_lab(here.path)


def _told(folder: StudentFolder, copied: Copied) -> str:
    """Tell what became of the files: the new by their number, what was kept or saved by name."""
    parts = []
    if copied.fresh:
        parts.append(f"{_files(len(copied.fresh))} copied")
    if copied.updated:
        parts.append(f"{_files(len(copied.updated))} that you had not changed renewed")
    if copied.kept:
        parts.append(f"yours are kept as they are: {', '.join(copied.kept)}")
    if copied.saved:
        parts.append(f"what you had is now in {BACKUPS}: {', '.join(copied.saved)}")
    return f"{folder.path}: {'; '.join(parts) or 'everything is there'}"


def _files(number: int) -> str:
    return "1 file" if number == 1 else f"{number} files"


def _progress(folder: StudentFolder) -> str:
    """Give a line that tells how far the student has come, chapter by chapter."""
    solved = set(folder.solved)
    chapters: dict[int, str] = {}
    for exercise in EXERCISES:
        sign = "✓" if exercise.number in solved else "·"
        chapters[exercise.chapter] = chapters.get(exercise.chapter, "") + sign
    done = sum(exercise.number in solved for exercise in EXERCISES)
    signs = "  ".join(f"{chapter} {signs}" for chapter, signs in chapters.items())
    return f"exercises solved: {done} of {len(EXERCISES)}   {signs}"


def _open_lab(folder: Path) -> int:
    """Run JupyterLab until it ends; Ctrl-C is for it."""
    options = (
        f"--ServerApp.root_dir={folder.resolve()}",
        "--ServerApp.ip=127.0.0.1",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",  # works offline
        "--LabApp.news_url=None",
    )
    keep_notes_in_the_cache()
    server = subprocess.Popen([sys.executable, "-m", "jupyterlab", *options])
    while True:
        try:
            return server.wait()
        except KeyboardInterrupt:  # the terminal sends it to the server, too, which asks back
            continue
