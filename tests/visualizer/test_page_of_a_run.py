"""From a model to a page: a real generation, played from file:// by keys alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from chromium import CHROMIUM, Chromium
from keyboard_walk import (
    check_copy_on_write,
    check_explanations,
    check_playing,
    tab_to_player,
)
from minipaged_visualizer import export_html
from pages import text_of

from minipaged import LLM, SamplingParams


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_generation_plays_from_a_file_by_keys_alone(tmp_path: Path) -> None:
    params = SamplingParams(n=3, seed=7, max_tokens=12, ignore_eos=True)
    with LLM("storyteller", block_size=4, num_blocks=16, trace=True) as llm:
        (output,) = llm.generate("Once upon a time", params, use_tqdm=False)
        trace = llm.trace
    assert trace is not None
    with Chromium() as browser:
        browser.open(export_html(trace, tmp_path / "page.html").as_uri())
        tab_to_player(browser)
        check_copy_on_write(browser, trace)
        check_playing(browser, trace)
        assert check_explanations(browser, trace, (1, 7)) == 3
        browser.press("t")
        written = text_of(browser, ".mp-main")
        assert all(sample.text.split()[0] in written for sample in output.outputs)
        assert browser.complaints == []
        assert all(url.startswith(("file://", "data:,", "about:")) for url in browser.requests)
