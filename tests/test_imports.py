"""Who may import whom: the rules of docs/ARCHITECTURE.md, read from the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOMES = {
    "minipaged": ROOT,
    "minipaged_kernels": ROOT / "kernels",
    "minipaged_visualizer": ROOT / "visualizer",
}
VIEWS = (
    *("minipaged_visualizer", "minipaged.cli", "minipaged.commands", "minipaged.notebook"),
    *("rich", "typer", "anywidget", "ipywidgets", "plotly"),
)

# What a part may import beside the standard library and itself.
MAY_IMPORT = {
    "minipaged.memory": {"minipaged.errors"},
    "minipaged.lab": {
        *("minipaged.errors", "minipaged.memory", "minipaged.engine.config"),
        *("minipaged.engine.scheduler", "minipaged.engine.scheduler_output"),
        *("minipaged.engine.sequence", "minipaged.models.config", "minipaged.models.hf_config"),
        *("minipaged.models.json_fields", "minipaged.models.reason"),
    },
    "minipaged.exercises": {
        *("minipaged.errors", "minipaged.memory", "minipaged.lab"),
        *("minipaged_kernels", "minipaged_visualizer"),
        *("hypothesis", "torch", "triton", "IPython"),
    },
    "minipaged_kernels": {"numpy", "torch", "triton", "minipaged.errors", "minipaged.memory"},
    "minipaged_visualizer": {
        *("minipaged.memory", "minipaged.errors"),
        *("rich", "plotly", "anywidget", "ipywidgets", "traitlets"),
    },
}
# Each knows those before it at most, directly or through others; the arrows of ARCHITECTURE.md.
LAYERS = (
    (
        *("minipaged.memory", "minipaged.engine.scheduler", "minipaged.engine.batch"),
        *("minipaged.engine.model_runner", "minipaged.llm", "minipaged.commands", "minipaged.cli"),
    ),
    (
        *("minipaged_kernels", "minipaged.engine.attention", "minipaged.models.transformer"),
        "minipaged.engine.model_runner",
    ),
    ("minipaged.memory", "minipaged_visualizer", "minipaged.commands", "minipaged.cli"),
    ("minipaged.memory", "minipaged_visualizer", "minipaged.notebook"),
    ("minipaged.memory", "minipaged.llm", "minipaged.notebook"),
    ("minipaged_visualizer", "minipaged.exercises", "minipaged.commands", "minipaged.cli"),
    ("minipaged.engine.scheduler", "minipaged.lab", "minipaged.commands", "minipaged.cli"),
)
# What is plain Python, so that it runs before torch is loaded or where there is none.
PLAIN = (
    "minipaged",
    "minipaged.memory.integrity",
    "minipaged.engine.scheduler",
    "minipaged.engine.llm_engine",
    "minipaged.lab.simulator",
    "minipaged.lab.zoo",
    "minipaged.models.catalog",
    "minipaged.models.tokenizer",
    "minipaged_visualizer.player",
    "minipaged.commands.plan",
    "minipaged.commands.slabs",
    "minipaged.commands.watch",
    "minipaged.commands.zoo",
    "minipaged.cli",
    "minipaged.notebook",
)


def sources(package: str) -> list[Path]:
    top = package.split(".")[0]
    return sorted((HOMES[top] / package.replace(".", "/")).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """The modules that a file imports when it runs, anywhere in it."""
    modules = set()
    for node in at_run_time(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            modules |= {f"{node.module}.{alias.name}" for alias in node.names}
    return modules


def at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    """Every node but those that only a type checker sees."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield from at_run_time(child)


def lies_in(module: str, packages: set[str] | tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def is_standard(module: str) -> bool:
    return module.split(".")[0] in sys.stdlib_module_names


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_a_part_imports_what_it_may(part: str) -> None:
    assert sources(part)
    for path in sources(part):
        for module in imported(path):
            allowed = lies_in(module, MAY_IMPORT[part] | {part}) or is_standard(module)
            assert allowed, f"{path.relative_to(ROOT)} imports {module}"


@pytest.mark.parametrize("part", ["minipaged.engine", "minipaged.models", "minipaged.memory"])
def test_the_engine_knows_no_view(part: str) -> None:
    assert sources(part)
    for path in sources(part):
        for module in imported(path):
            assert not lies_in(module, VIEWS), f"{path.relative_to(ROOT)} imports {module}"


def known_to(package: str) -> set[str]:
    """The modules of ours that a package imports, directly or through others."""
    known: set[str] = set()
    paths = sources(package) or [HOMES[package.split(".")[0]] / f"{package.replace('.', '/')}.py"]
    while paths:
        for module in imported(paths.pop()) - known:
            known.add(module)
            home = HOMES.get(module.split(".")[0])
            parts = [module, module.rpartition(".")[0]]  # a module, or a name in one
            files = [home / f"{part.replace('.', '/')}.py" for part in parts] if home else []
            paths += [path for path in files if path.is_file()]
    return known


@pytest.mark.parametrize(
    ("lower", "higher"), [pair for layers in LAYERS for pair in combinations(layers, 2)]
)
def test_a_layer_does_not_know_those_above_it(lower: str, higher: str) -> None:
    assert not [module for module in known_to(lower) if lies_in(module, (higher,))]


def test_a_layer_knows_those_below_it() -> None:
    known = known_to("minipaged.llm")
    for module in ("memory.trace", "engine.scheduler", "models.transformer"):
        assert any(lies_in(name, (f"minipaged.{module}",)) for name in known), module


@pytest.mark.parametrize("module", PLAIN)
def test_a_plain_module_loads_without_torch(module: str) -> None:
    code = f"import sys; sys.modules['torch'] = sys.modules['numpy'] = None; import {module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_memory_loads_with_the_standard_library_alone() -> None:
    modules = ", ".join(
        f"minipaged.memory.{path.stem}"
        for path in sources("minipaged.memory")
        if path.stem != "__init__"
    )
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {modules}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_transformers_loads_where_the_folder_kernels_is_visible() -> None:
    """It looks for a package of that name, and some versions took the folder for it."""
    code = (
        "import kernels; assert kernels.__file__ is None; from transformers import LlamaForCausalLM"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_imports_are_found_wherever_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "from __future__ import annotations\n"
        "import a.b as c, d\n"
        "if TYPE_CHECKING:\n    import only_for_types\n"
        "def f():\n    if x:\n        from e.f import g, h\n"
        "class C:\n    try:\n        import i\n    except ImportError:\n        import j\n",
        encoding="utf-8",
    )
    assert imported(path) == {"__future__.annotations", "a.b", "d", "e.f.g", "e.f.h", "i", "j"}


def test_a_name_that_only_begins_alike_lies_elsewhere() -> None:
    assert lies_in("rich", ("rich",))
    assert lies_in("rich.live.Live", ("rich",))
    assert not lies_in("richer", ("rich",))
    assert not lies_in("minipaged.memory_lab", {"minipaged.memory"})
    assert is_standard("collections.abc.Sequence")
    assert not is_standard("torch")
