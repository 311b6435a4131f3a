"""The browser's half is one module that needs nothing beside it, and ships with the package."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from minipaged_visualizer import browser_module, captions

STATIC = Path(browser_module.__file__).parent / "static"
NODE = shutil.which("node")


@pytest.mark.parametrize("module", [browser_module.page_script, browser_module.widget_module])
def test_it_imports_nothing_and_asks_for_nothing(module) -> None:
    text = module()
    assert not re.search(r"^import\b|\bimport\(|\bfetch\(|XMLHttpRequest|WebSocket", text, re.M)
    assert "https://" not in text
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")


def test_texts_never_become_markup() -> None:
    for path in STATIC.glob("*.mjs"):
        source = path.read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", source
        )


def test_every_file_is_used() -> None:
    entries = ("page", "widget", "side_by_side", "microscope")
    joined = "".join(map(browser_module.joined, entries))
    for path in STATIC.glob("*.mjs"):
        assert f"const {path.stem} = (() => {{" in joined, path.name


def test_a_file_that_can_not_be_joined_is_an_error() -> None:
    with pytest.raises(AssertionError, match="can't be joined"):
        browser_module._as_function("x", 'import * as y from "./y.mjs";\n')
    with pytest.raises(AssertionError, match="can't be joined"):
        browser_module._as_function("x", "export default 1;\n")


def test_files_and_functions_stay_small() -> None:
    for path in STATIC.glob("*.mjs"):
        source = path.read_text(encoding="utf-8")
        assert source.count("\n") <= 400, path.name
        assert source.startswith("// "), f"{path.name}: its first line tells what it is for"


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_has_a_contrast_of_at_least_four_and_a_half(theme: int) -> None:
    found = re.findall(r"--mp-([a-z-]+): light-dark\((#\w{6}), (#\w{6})\)", browser_module.style())
    colours = {name: pair[theme] for name, *pair in found}
    pairs = [
        *((text, ground) for text in ("ink", "quiet", "accent") for ground in ("page", "panel")),
        *(("ink", "free"), ("quiet", "free"), ("ink", "cached"), ("ink", "accent-page")),
        ("accent", "accent-page"),
    ]
    for text, ground in pairs:
        light, dark = sorted(map(luminance, (colours[text], colours[ground])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, f"{text} on {ground}"


@pytest.mark.skipif(NODE is None, reason="needs Node.js")
def test_node_can_load_what_the_widget_loads(tmp_path: Path) -> None:
    path = tmp_path / "widget.mjs"
    path.write_text(browser_module.widget_module(), encoding="utf-8")
    code = f"const m = await import({str(path)!r}); console.log(Object.keys(m.default()).join())"
    assert run_node(code) == "initialize,render"


@pytest.mark.skipif(NODE is None, reason="needs Node.js")
def test_letters_and_harmless_text_are_those_of_the_terminal() -> None:
    seqs = [0, 25, 26, 701, 702, 18277, 18278, -1]
    code = (
        f"const {{ letters }} = await import({str(STATIC / 'marks.mjs')!r});"
        f"const {{ safe }} = await import({str(STATIC / 'dom.mjs')!r});"
        f"console.log({seqs}.map(letters).join());"
        r"console.log(safe('a\x1b[31m\n\t\x00\u202eb\u2028\u200f<b>'));"
    )
    names, text = run_node(code).splitlines()
    assert names.split(",") == [captions.letters(seq) for seq in seqs]
    assert text == "a␛[31m↵⇥␀�b↵�<b>"


def run_node(code: str) -> str:
    command = [NODE or "node", "--input-type=module", "-e", code]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
