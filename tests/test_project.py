"""What a newcomer meets first: README, its commands and examples, and the package pip installs."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree

import pytest

import minipaged

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PACKAGES = ("minipaged", "minipaged_kernels", "minipaged_visualizer")
COMMANDS = (
    *("generate", "watch", "models", "check", "export", "bench"),
    *("plan", "slabs", "zoo", "paper", "sweep", "compare", "learn", "exercise"),
)


def code_blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def links(page: Path) -> list[tuple[str, str]]:
    """(text, target) of each link that leads to a file of the project."""
    found = re.findall(r"\[([^\]]*)\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    return [(text, target) for text, target in found if "://" not in target]


def definitions(path: Path) -> set[str]:
    """The names that a file defines: functions, classes, and `Class.method`."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
            members = node.body if isinstance(node, ast.ClassDef) else []
            names |= {f"{node.name}.{m.name}" for m in members if isinstance(m, ast.FunctionDef)}
    return names


# --- README and CI


def test_readme_has_exactly_two_commands_to_set_up() -> None:
    blocks = code_blocks(README, "bash")
    assert len(blocks) == 2
    assert all(block.count("\n") == 1 and "pip install" in block for block in blocks)
    assert "minipaged watch" in blocks[0]
    assert "pytest -n 2" in blocks[1]


def test_ci_runs_the_test_command_of_readme_word_for_word() -> None:
    command = code_blocks(README, "bash")[1].strip()
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert command in [line.strip() for line in lines]


def test_ci_stops_at_the_first_command_that_fails() -> None:
    assert "set -euo pipefail" in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_ci_skips_no_test_that_needs_a_browser() -> None:
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    (required,) = [n for n, line in enumerate(lines) if "MINIPAGED_REQUIRE_BROWSER=1" in line]
    assert lines.index("install_browser") > required
    assert lines.index("python -m pytest -m browser") > lines.index("install_browser")


@pytest.mark.parametrize("tool", ["ruff", "mypy"])
def test_ci_and_pre_commit_run_the_tools_that_pyproject_pins(tool: str) -> None:
    required = metadata.requires("minipaged") or []
    assert any(re.match(rf"{tool}==[\d.]+; extra == ['\"]dev['\"]", line) for line in required)
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    assert re.findall(r"repo: (\S+)", hooks) == ["local"]
    assert re.search(rf"entry: {tool}\b", hooks)
    assert re.search(rf"^{tool}\b", (ROOT / ".ci/run").read_text(encoding="utf-8"), re.MULTILINE)


# --- links


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for text, target in links(page):
        assert (page.parent / target.partition("#")[0]).exists(), f"[{text}]({target})"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_name_that_links_to_a_file_is_defined_there(page: Path) -> None:
    for text, target in links(page):
        name = text.strip("`")
        if target.endswith(".py") and re.fullmatch(r"`[A-Za-z_.]+`", text):
            assert name in definitions(page.parent / target), f"{name} is not in {target}"


def test_architecture_names_functions() -> None:
    named = [text for text, _ in links(ROOT / "docs" / "ARCHITECTURE.md") if text.startswith("`")]
    assert len(named) > 20


# --- README's picture


def test_the_picture_asks_for_nothing_from_outside() -> None:
    picture = ROOT / "docs" / "watch.svg"
    assert picture.stat().st_size < 120_000
    svg = picture.read_text(encoding="utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "", 1)
    assert not re.search(r"https?:|@import|href|<script", svg)


def test_the_picture_can_be_drawn_from_a_trace() -> None:
    from minipaged_visualizer.options import Options
    from minipaged_visualizer.timeline import Position
    from scenes import everything

    trace = everything()
    place = Position(1, len(trace.steps[1].events))
    draw = runpy.run_path(str(ROOT / "docs" / "picture.py"))["draw"]
    svg = draw(trace, place, Options(), width=112, height=32)
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert "copies" in svg  # step 1 of this scene has a copy-on-write


# --- README's examples


@pytest.fixture
def tiny_model(tmp_path: Path) -> Path:
    """A folder with a small random model."""
    from tiny_models import save_model

    save_model(tmp_path / "model")
    return tmp_path / "model"


def promised_lines(example: str) -> list[str]:
    return re.findall(r"^print\(.*\)  # -> (.*)$", example, re.MULTILINE)


def test_readme_example_of_the_memory_manager_prints_what_it_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (example,) = [block for block in code_blocks(README, "python") if "KVCacheManager" in block]
    exec(example, {})
    assert capsys.readouterr().out.splitlines() == promised_lines(example) != []


def test_readme_example_of_the_engine_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = [block for block in code_blocks(README, "python") if "LLM(" in block]
    monkeypatch.chdir(tmp_path)
    exec(example, {})
    trace = minipaged.Trace.load("run.jsonl")
    assert sum(len(step.events) for step in trace.steps) > 100


# --- what pip installs


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=ROOT)


def script() -> Path:
    return Path(sysconfig.get_path("scripts"), "minipaged").with_suffix(
        ".exe" if sys.platform == "win32" else ""
    )


def test_the_command_tells_its_version() -> None:
    assert run(script(), "--version").stdout.split()[-1] == minipaged.__version__


def test_the_command_has_the_words_that_readme_explains() -> None:
    explained = set(re.findall(r"^\| `minipaged (\w+)", README, re.MULTILINE))
    assert explained == set(COMMANDS)
    listed = re.findall(r"^  (\w+) ", run(script(), "--help").stdout, re.MULTILINE)
    assert explained <= set(listed)


def test_the_version_stands_in_one_place() -> None:
    assert metadata.version("minipaged") == minipaged.__version__
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert minipaged.__version__ not in re.findall(r'^version = "(.*)"$', pyproject, re.MULTILINE)
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)", changes, re.MULTILINE)[0] == minipaged.__version__


def build(source: Path, target: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    built = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (path,) = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What a wheel holds that was built from the unpacked source distribution."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build(ROOT, "sdist", folder / "built")) as archive:
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(folder, **safely)
    (source,) = folder.glob("minipaged-*")
    with zipfile.ZipFile(build(source, "wheel", folder / "wheel")) as archive:
        return archive.namelist()


def test_the_wheel_holds_three_typed_packages_and_nothing_else(wheel_names: list[str]) -> None:
    tops = {name.split("/")[0] for name in wheel_names}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(wheel_names)
    assert not [name for name in wheel_names if re.search(r"(^|/)(tests?|conftest)[/._]", name)]


def test_the_wheel_holds_every_file_of_the_packages_and_the_licence(
    wheel_names: list[str],
) -> None:
    for folder in (".", "kernels", "visualizer"):
        for package in PACKAGES:
            for path in (ROOT / folder / package).rglob("*.*"):
                if path.is_file() and not re.search(
                    r"/(__pycache__|\.\w+_cache)/", path.as_posix()
                ):
                    assert path.relative_to(ROOT / folder).as_posix() in wheel_names
    for path in (ROOT / "tutorials").rglob("*.*"):
        name = path.relative_to(ROOT).as_posix()
        assert f"minipaged/{name}" in wheel_names or "/__pycache__/" in name
    assert "minipaged/models/builtin/storyteller/model.safetensors" in wheel_names
    assert any(name.endswith("/LICENSE") for name in wheel_names)
