"""The kernel microscope in a real Chromium: what it shows is what was recorded, by keys alone."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from chromium import CHROMIUM, Chromium
from hostile import TOKENS
from minipaged_visualizer import browser_module
from minipaged_visualizer.microscope_page import (
    microscope_page,
    microscope_payload,
    recording_names,
    recording_of,
)
from pages import assert_quiet, open_html, text_of, texts_of

from minipaged.commands.export import export
from minipaged.errors import ConfigError, TraceError
from minipaged.memory.kernel_recording import KernelRecording, ProgramRun
from minipaged.memory.trace import Trace, TraceHeader

RECORDINGS = Path(browser_module.__file__).parent / "recordings"
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")


def hostile_recording() -> KernelRecording:
    """The decode whose every text is hostile."""
    recording = recording_of("paged_decode")
    (launch,) = recording.launches
    source = tuple(TOKENS[i % len(TOKENS)] for i in range(len(launch.source)))
    launch = replace(launch, kernel=TOKENS[0], file=TOKENS[1], source=source)
    programs = tuple(
        replace(
            program,
            rows=(TOKENS[10], TOKENS[5]),
            steps=tuple(
                replace(step, tensor=f"{TOKENS[2]} {step.tensor}") for step in program.steps
            ),
        )
        for program in recording.programs
    )
    return replace(recording, title=TOKENS[0], launches=(launch,), programs=programs)


def merged(recording: KernelRecording) -> ProgramRun:
    """All its steps, as if one program had taken them."""
    steps = tuple(step for program in recording.programs for step in program.steps)
    return replace(recording.programs[0], steps=steps)


# --- which recording


def test_recordings_ship_with_the_package_and_are_small() -> None:
    assert {"paged_decode", "paged_decode_split_kv", "paged_prefill", "kv_write"} <= set(
        recording_names()
    )
    assert {path.stem for path in RECORDINGS.iterdir()} == set(recording_names())
    for path in RECORDINGS.iterdir():
        assert path.stat().st_size < 100_000, path.name


def test_a_name_a_file_and_an_object_stand_for_a_recording(tmp_path: Path) -> None:
    recording = recording_of("kv_write")
    recording.save(tmp_path / "mine.jsonl")
    assert recording_of(tmp_path / "mine.jsonl") == recording
    assert recording_of(str(tmp_path / "mine.jsonl")) == recording
    assert recording_of(SimpleNamespace(kernel_recording=lambda: recording)) is recording
    assert recording_of(recording) is recording


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nix", "'nix' is neither a file nor one of copy_blocks, kv_write, paged_decode"),
        (7, "nothing to look at: give a recording of a kernel, its file or its name"),
        (SimpleNamespace(kernel_recording=lambda: 7), "nothing to look at"),
        (replace(recording_of("kv_write"), programs=()), "nothing to look at: no kernel ran"),
    ],
)
def test_what_is_no_recording_is_one_clear_error(source: object, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        recording_of(source)


def test_the_widget_has_the_recording_and_writes_the_page(tmp_path: Path) -> None:
    pytest.importorskip("anywidget")
    from minipaged_visualizer import KernelMicroscope

    widget = KernelMicroscope("paged_decode")
    assert widget._payload["block_size"] == 4
    page = widget.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text("utf-8") == page
    assert page == microscope_page(recording_of("paged_decode"))
    widget.close()
    with pytest.raises(TraceError, match="can't be written: No such file"):
        widget.to_html(tmp_path / "no" / "page.html")


def test_export_takes_a_name_or_a_file(tmp_path: Path) -> None:
    export(Path("paged_prefill"), tmp_path / "a.html")
    recording_of("paged_prefill").save(tmp_path / "mine.jsonl")
    export(tmp_path / "mine.jsonl", tmp_path / "b.html")
    pages = [(tmp_path / name).read_text("utf-8") for name in ("a.html", "b.html")]
    assert pages[0] == pages[1] == microscope_page(recording_of("paged_prefill"))
    with pytest.raises(ConfigError, match="a recording of a kernel becomes html, not svg"):
        export(Path("paged_prefill"), tmp_path / "a.svg")
    (tmp_path / "mine.jsonl").write_bytes((tmp_path / "mine.jsonl").read_bytes()[:-9])
    with pytest.raises(TraceError, match=r"mine.jsonl: it is cut off"):
        export(tmp_path / "mine.jsonl", tmp_path / "b.html")


# --- in the browser


def test_a_file_goes_before_a_recording_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recording_of("kv_write").save("paged_decode")
    export(Path("paged_decode"), Path("page.html"))
    assert recording_of("kv_write").title in Path("page.html").read_text("utf-8")
    Trace(TraceHeader(4, 4)).save("a.jsonl")
    for pair in ([Path("kv_write"), Path("a.jsonl")], [Path("a.jsonl"), Path("paged_decode")]):
        with pytest.raises(ConfigError, match=r"--beside is for traces: .* recording of a kernel"):
            export(pair[0], Path("two.html"), beside=pair[1])


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as chromium:
        yield chromium


def open_page(browser: Chromium, folder: Path, recording: KernelRecording, place: str = "") -> None:
    open_html(browser, folder, microscope_page(recording), place)


def shown(number: float) -> str:
    """A number as the page writes it."""
    return "−∞" if number == -math.inf else f"{number:.2f}".replace("-", "−")


@needs_chromium
def test_every_update_shows_the_state_that_was_recorded(browser: Chromium, tmp_path: Path) -> None:
    recording = recording_of("paged_decode")
    open_page(browser, tmp_path, recording)
    checked = 0
    for program in recording.programs:
        for step in program.steps:
            if step.kind == "update":
                state = step.state[0]
                cells = texts_of(browser, ".mk-rounds tr.mk-now > *")
                assert cells[1:3] == [shown(max(state.scores)), shown(state.largest)]
                assert cells[4] == shown(state.total)
                if state.before != -math.inf:
                    assert cells[3] == f"× {shown(state.rescale)}"
                words = text_of(browser, ".mp-caption")
                assert f"= {shown(state.total)}." in words
                if -math.inf < state.before < state.largest:
                    assert f"{shown(state.largest)} > {shown(state.before)}" in words
                    assert f"shrinks to {shown(state.rescale)}" in words
                labels = texts_of(browser, ".mk-chart")
                assert len(labels) == 2
                checked += 1
            browser.press("n")
    assert checked == 2 * (3 + 2 + 4)
    assert_quiet(browser)


@needs_chromium
def test_blocks_are_ahead_then_read_now_then_read(browser: Chromium, tmp_path: Path) -> None:
    open_page(browser, tmp_path, recording_of("paged_decode"))
    label = "document.querySelector('.mk-cell[data-block=\"2\"]').getAttribute('aria-label')"
    seen = []
    for _ in range(15):
        words = browser.evaluate(label)
        if not seen or seen[-1] != words:
            seen.append(words)
        browser.press("n")
    assert seen == [f"block 2, held by A, {what}" for what in ("to come", "being read", "read")]
    assert browser.evaluate(label) == "block 2, held by A, to come"  # the next program, KV head 1
    browser.press("p")
    assert "output" in text_of(browser, ".mp-caption")


@needs_chromium
def test_keys_and_buttons_lead_everywhere(browser: Chromium, tmp_path: Path) -> None:
    open_page(browser, tmp_path, recording_of("paged_decode"))
    assert text_of(browser, ".mp-place").startswith("program (0, 0), sequence A, head 0 and head 1")
    browser.press("PageDown", "Shift+ArrowRight")
    assert text_of(browser, ".mp-place").startswith("program (1, 0), sequence B")
    assert text_of(browser, ".mk-program.mk-runs") == "B 1, 0"
    browser.press("ArrowRight", "PageUp")
    assert text_of(browser, ".mp-place").startswith("program (1, 0), sequence B")
    browser.press("Shift+ArrowLeft", "PageUp", "PageUp")
    assert text_of(browser, ".mp-place").startswith("program (0, 0)")
    browser.press(".", ".")
    assert "New maximum" in text_of(browser, ".mp-caption")
    first_row = text_of(browser, ".mk-rounds tr.mk-now")
    browser.press("r")
    assert text_of(browser, ".mk-rows [aria-pressed=true]") == "head 1"
    assert text_of(browser, ".mk-rounds tr.mk-now") != first_row
    browser.press(",")
    assert "First scores" in text_of(browser, ".mp-caption")
    browser.press("End")
    assert text_of(browser, ".mp-place").startswith("program (2, 1), sequence C")
    browser.press("Home", "ArrowRight", "ArrowLeft")
    assert "step 1 of" in text_of(browser, ".mp-place")
    browser.press("?")
    assert browser.evaluate("document.querySelector('dialog').open")
    browser.press("Escape", "t")
    assert not browser.evaluate("document.querySelector('dialog').open")
    rows = texts_of(browser, ".mp-text tbody tr")
    assert len(rows) == 15
    assert "New maximum" in rows[9] or "No score above" in rows[9]
    browser.press("t")
    browser.evaluate("document.querySelectorAll('.mk-program')[4].click()")
    browser.settle()
    assert text_of(browser, ".mp-place").startswith("program (2, 0), sequence C")
    assert_quiet(browser)


@needs_chromium
def test_what_is_pressed_keeps_the_focus(browser: Chromium, tmp_path: Path) -> None:
    open_page(browser, tmp_path, recording_of("paged_decode"), "#10")
    active = "document.activeElement.innerText"
    browser.evaluate("document.querySelectorAll('.mk-rows button')[1].focus()")
    browser.press("Enter")
    assert text_of(browser, ".mk-rows [aria-pressed=true]") == "head 1"
    assert browser.evaluate(active) == "head 1"
    browser.press("t")
    browser.evaluate("document.querySelectorAll('.mp-text button')[3].focus()")
    browser.press("Enter")
    assert "step 4 of" in text_of(browser, ".mp-place")
    assert browser.evaluate(active) == "4"
    assert_quiet(browser)


@needs_chromium
@pytest.mark.parametrize(
    ("place", "step"), [("#3", 4), ("#3.7", 4), ("#-3", 1), ("#x", 1), ("#999999", 21), ("#1e1", 2)]
)
def test_an_address_names_a_step(browser: Chromium, tmp_path: Path, place: str, step: int) -> None:
    recording = recording_of("kv_write")
    alone = replace(recording, programs=(merged(recording),))
    open_page(browser, tmp_path, alone, place)
    assert f"step {step} of 21" in text_of(browser, ".mp-place")
    assert_quiet(browser)


@needs_chromium
def test_a_run_of_one_step_plays_and_ends(browser: Chromium, tmp_path: Path) -> None:
    program = recording_of("kv_write").programs[0]
    short = replace(program, steps=program.steps[:1])
    open_page(browser, tmp_path, replace(recording_of("kv_write"), programs=(short,)))
    browser.press("+", "+", "+", "+", "+", " ")
    browser.wait_until("document.querySelector('.mp-play path').getAttribute('d').length < 15")
    assert "step 1 of 1" in text_of(browser, ".mp-place")
    assert_quiet(browser)


@needs_chromium
def test_it_plays_to_the_end_and_stops_there(browser: Chromium, tmp_path: Path) -> None:
    open_page(browser, tmp_path, recording_of("kv_write"), "#18")
    browser.press("+", "+", "+", "+", "+", " ")
    browser.wait_until("document.querySelector('.mp-caption').innerText.startsWith('Slot -1')")
    browser.wait_until("document.querySelector('.mp-play path').getAttribute('d').length < 15")
    assert_quiet(browser)


@needs_chromium
@pytest.mark.parametrize("name", recording_names())
def test_every_step_of_every_recording_has_words_and_a_line(
    browser: Chromium, tmp_path: Path, name: str
) -> None:
    recording = recording_of(name)
    open_page(browser, tmp_path, recording)
    for program in recording.programs:
        for step in program.steps:
            words = text_of(browser, ".mp-caption")
            assert not re.search(r"NaN|undefined|null|Infinity", words), words
            lines = browser.evaluate(
                "[...document.querySelectorAll('.mk-source .mk-now')].map((line) => line.value)"
            )
            assert lines == list(range(step.line, step.last_line + 1))
            browser.press("n")
    assert_quiet(browser)


@needs_chromium
def test_hostile_texts_stay_text(browser: Chromium, tmp_path: Path) -> None:
    open_page(browser, tmp_path, hostile_recording())
    browser.press(*"nnnnnnnn", ".", ".", "t", "t", "End")
    shown_source = text_of(browser, ".mk-source")
    assert "<img src=x onerror=alert(3)>" in shown_source
    assert TOKENS[0] in text_of(browser, ".mp-title")
    count = "document.querySelectorAll('main img, main b:not([class]):empty, main script').length"
    assert browser.evaluate(count) == 0
    assert "\u202e" not in browser.evaluate("document.body.innerText")
    assert_quiet(browser)


HARNESS = """<!DOCTYPE html><style>{style}</style><div id="one"></div><div id="two"></div>
<script type="module">{module}
const payload = {payload};
window.show = (id) => microscope.createWidget().render({{
    model: {{ get: () => payload }}, el: document.getElementById(id) }});
</script>"""


@needs_chromium
def test_in_a_notebook_keys_stay_in_the_widget_and_two_views_are_two(
    browser: Chromium, tmp_path: Path
) -> None:
    payload = json.dumps(microscope_payload(recording_of("paged_decode")))
    module = browser_module.widget_module("microscope")
    text = HARNESS.format(style=browser_module.style("microscope"), module=module, payload=payload)
    (tmp_path / "page.html").write_text(text, "utf-8")
    browser.complaints.clear()
    browser.open((tmp_path / "page.html").as_uri())
    browser.evaluate("window.close_first = show('one'), show('two'), null")
    browser.evaluate("window.heard = 0; document.addEventListener('keydown', () => heard++)")
    browser.evaluate("document.querySelectorAll('.minipaged')[1].focus()")
    browser.press("n", "x", "PageDown", "n")
    first, second = texts_of(browser, ".mp-place")
    assert first.startswith("program (0, 0), sequence A, head 0 and head 1 · step 1 of 15")
    assert second.startswith("program (0, 1), sequence A, head 2 and head 3 · step 2 of 15")
    assert browser.evaluate("heard") == 0
    browser.evaluate("close_first()")
    assert len(texts_of(browser, ".minipaged")) == 1
    assert browser.complaints == []


@needs_chromium
@pytest.mark.parametrize("name", recording_names())
def test_steps_without_details_have_words(browser: Chromium, tmp_path: Path, name: str) -> None:
    recording = recording_of(name)
    bare = tuple(
        replace(
            program,
            steps=tuple(replace(s, values=(), slots=(), box=(), heads=()) for s in program.steps),
        )
        for program in recording.programs[:2]
    )
    open_page(browser, tmp_path, replace(recording, programs=bare))
    for _ in range(sum(len(program.steps) for program in bare)):
        assert not re.search(r"NaN|undefined|null|Infinity", text_of(browser, ".mp-caption"))
        browser.press("n")
    assert_quiet(browser)


@needs_chromium
def test_a_payload_that_is_none_is_one_message(browser: Chromium, tmp_path: Path) -> None:
    broken = replace(recording_of("kv_write"), programs=())
    open_page(browser, tmp_path, broken)
    assert text_of(browser, "[role=alert]") == "This recording can't be shown: no program ran"


@needs_chromium
@pytest.mark.parametrize("name", recording_names())
@pytest.mark.parametrize("width", [420, 1280])
def test_nothing_sticks_out(browser: Chromium, tmp_path: Path, name: str, width: int) -> None:
    open_page(browser, tmp_path, recording_of(name))
    browser.resize(width, 900)
    browser.press(".")
    try:
        assert browser.evaluate("document.documentElement.scrollWidth") == width
    finally:
        browser.resize(1280, 800)
