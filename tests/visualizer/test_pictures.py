"""The views' README: its pictures are small and stand alone, and a script draws them."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest
from scenes import Script

from minipaged.memory.events import Attended
from minipaged.memory.trace import Trace

ROOT = Path(__file__).parents[2]
README = ROOT / "visualizer" / "README.md"
PICTURES = sorted((ROOT / "docs" / "pictures").iterdir())


def deep_scene() -> Trace:
    """A fork, a copy-on-write, and attention after it."""
    script = Script(num_blocks=16)
    script.request(0, ["a"] * 6, samples=2)
    script.admit(0)
    script.step()
    script.step()
    blocks = len(script.manager.block_table(0))
    script.trace.observe(Attended(0, 1, -1, (1000 - blocks + 1, *[1] * (blocks - 1))))
    script.step()
    return script.trace


def test_readme_shows_every_picture_and_every_link_leads_somewhere() -> None:
    text = README.read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    for target in targets:
        assert (README.parent / target).exists(), target
    shown = {(README.parent / target).resolve() for target in targets}
    assert set(PICTURES) <= shown
    assert len(PICTURES) >= 7


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_is_small_and_stands_alone(picture: Path) -> None:
    assert picture.stat().st_size < 200_000
    if picture.suffix == ".svg":
        svg = picture.read_text(encoding="utf-8")
        assert ElementTree.fromstring(svg).tag.endswith("svg")
        rest = svg.replace('xmlns="http://www.w3.org/2000/svg"', "", 1)
        assert not re.search(r"@import|href|<script|url\((?!#)", rest)


def test_the_script_draws_them_from_a_trace() -> None:
    svgs = runpy.run_path(str(ROOT / "docs" / "pictures.py"))["svgs"](deep_scene())
    assert set(svgs) == {p.stem for p in PICTURES if p.suffix == ".svg"}
    assert "copies block" in svgs["still"]
    assert "%" in svgs["attention"]
    for svg in svgs.values():
        ElementTree.fromstring(svg)
