"""A trace as one file: what is in it, and how it plays in a real Chromium, without a network."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from chromium import CHROMIUM, Chromium
from hostile import TOKENS, hostile_trace
from minipaged_visualizer import export_html, html_page
from minipaged_visualizer.html_page import to_html
from minipaged_visualizer.payload import header_payload, step_payload
from pages import assert_quiet, open_html, text_of
from scenes import everything

from minipaged.commands.export import export
from minipaged.errors import TraceError
from minipaged.memory.events import BlockAllocated, Requested, Sampled, SwappedOut
from minipaged.memory.trace import Trace, TraceHeader, TraceStep

GOLDEN = Path(__file__).parents[1] / "golden"
COPIES = GOLDEN / "engine_samples_copy_on_write.jsonl"
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")


class Elements(HTMLParser):
    """The elements of a page, and the text of its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": [], "title": []}
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = tag
        self.tags.append((tag, dict(attrs)))
        self.texts.get(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside in self.texts:
            self.texts[self.inside][-1] += data


# --- the file -------------------------------------------------------------------------------------


def test_nothing_in_a_hostile_trace_becomes_an_element() -> None:
    hostile, harmless = Elements(to_html(hostile_trace())), Elements(to_html(everything()))
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in harmless.tags]
    payload = json.loads(hostile.texts["script"][0])
    texts = [
        t for step in payload["steps"] for e in step["events"] if e[0] == "prefill" for t in e[4]
    ]
    assert set(TOKENS) <= set(texts)
    assert payload["header"]["title"] == TOKENS[0]
    assert "\x1b" not in hostile.texts["title"][0]


def test_the_policy_names_the_only_script_and_style() -> None:
    page = Elements(to_html(everything()))
    (policy,) = [a["content"] for tag, a in page.tags if tag == "meta" and "http-equiv" in a]
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for kind, text in (("script", page.texts["script"][1]), ("style", page.texts["style"][0])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[f"{kind}-src"] == f"'sha256-{digest}'"


def test_nothing_is_asked_for_outside_the_file() -> None:
    page = Elements(to_html(everything()))
    for _, attributes in page.tags:
        assert not {"src", "srcset", "action"} & attributes.keys()
        assert attributes.get("href", "data:,") == "data:,"
    assert not re.search(r"url\(|@import", page.texts["style"][0])


def test_a_path_is_read_and_written(tmp_path: Path) -> None:
    path = export_html(COPIES, tmp_path / "page.html")
    assert path.read_text("utf-8") == to_html(Trace.load(COPIES))


def test_what_is_no_trace_is_one_clear_error(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.json"
    foreign.write_text('{"a": 1}\n', "utf-8")
    with pytest.raises(TraceError, match=r"foreign.json: line 1: not a trace"):
        export_html(foreign, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_a_trace_that_contradicts_itself_is_one_clear_error() -> None:
    trace = everything()
    trace.steps.append(TraceStep(99, 0, 0, "", (BlockAllocated(77, 5, 0, "append"),)))
    with pytest.raises(TraceError, match=r"step 99, event 0 \(alloc\): seq 77 was never requested"):
        to_html(trace)


def test_a_page_that_can_not_be_written_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="can't be written: No such file"):
        export_html(everything(), tmp_path / "no" / "page.html")


LARGE = 2**53


@pytest.mark.parametrize(
    ("step", "place"),
    [
        (TraceStep(LARGE, 0, 0, "", ()), f"step {LARGE}: "),
        (TraceStep(20, 0, LARGE, "", ()), "step 20: "),
        (TraceStep(20, 0, 0, "", (Requested(LARGE, "", 1),)), r"step 20, event 0 \(request\): "),
        (
            TraceStep(
                20, 0, 0, "", (Requested(98, "", 1), Sampled((98,), (-LARGE,), ("a",), (0,)))
            ),
            r"step 20, event 1 \(sample\): -",
        ),
    ],
)
def test_a_number_that_a_browser_can_not_count_is_one_clear_error(
    step: TraceStep, place: str
) -> None:
    trace = everything()
    trace.steps.append(step)
    with pytest.raises(TraceError, match=f"^{place}-?{LARGE} is too large for a browser"):
        to_html(trace)


def test_large_numbers_in_pairs_and_in_the_header_are_found() -> None:
    with pytest.raises(TraceError, match=r"event 0 \(swap_out\): 9007199254740992 is"):
        step_payload(TraceStep(0, 0, 0, "", (SwappedOut(0, ((1, 0), (2, LARGE))),)))
    with pytest.raises(TraceError, match="the header: 9007199254740992 is too large"):
        header_payload(TraceHeader(4, 4, bytes_per_block=LARGE))
    step_payload(TraceStep(LARGE - 1, 0, 0, "", (SwappedOut(LARGE - 1, ()),)))


def test_a_page_that_no_browser_opens_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_page, "MAX_CHARACTERS", 2**10)
    with pytest.raises(TraceError, match=r"the page would have 0 MiB, .* watch --replay shows"):
        to_html(everything())


# --- in the browser -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as chromium:
        yield chromium


def save(trace: Trace, folder: Path) -> Path:
    trace.save(folder / "run.jsonl")
    return folder / "run.jsonl"


def open_page(browser: Chromium, folder: Path, trace: Trace | Path, place: str = "") -> None:
    read = trace if isinstance(trace, Trace) else Trace.load(trace)
    open_html(browser, folder, to_html(read), place)


@needs_chromium
def test_keys_lead_to_a_copy_on_write_and_through_it(browser: Chromium, tmp_path: Path) -> None:
    open_page(browser, tmp_path, COPIES)
    assert text_of(browser, ".mp-place").startswith("step 0")
    browser.press("n")
    assert "A copies block 1 to block 2" in text_of(browser, ".mp-caption")
    assert text_of(browser, ".mp-place").startswith("step 1, event 1 of 7")
    acts = text_of(browser, ".mp-acts")
    assert "A, B and C share block 1. A wants to write" in acts
    assert "Row 1 of A's table now leads to block 2" in acts
    label = "document.querySelectorAll('.mp-pool [data-block]')[2].getAttribute('aria-label')"
    assert browser.evaluate(label) == "block 2, used by A, 3 of 4 tokens, just copied to"
    browser.press("Home", "End", "ArrowLeft", "Shift+ArrowLeft")
    assert text_of(browser, ".mp-place").startswith("step 2, event 4 of 5")
    assert browser.evaluate("document.querySelector('.mp-closeup').hidden")
    assert_quiet(browser)


@needs_chromium
def test_keyboard_alone_chooses_a_block_and_reads_its_history(
    browser: Chromium, tmp_path: Path
) -> None:
    open_page(browser, tmp_path, COPIES, "#1")
    for _ in range(12):
        browser.press("Tab")
        if (
            browser.evaluate("document.activeElement.getAttribute('aria-label')")
            == "Pool of 7 blocks"
        ):
            break
    browser.press("ArrowRight", "ArrowRight")
    explained = text_of(browser, ".mp-explain")
    assert "Block 1 explained" in explained
    assert "held by C as its logical block 1: 1 reference" in explained
    lines = text_of(browser, ".mp-history").splitlines()
    assert lines[0] == "0 + A takes block 1: room for its prompt"
    assert "1 » B copies block 1 to block 3: block 1 is shared by 2 and B wants to write" in lines
    assert "1 ~ C “n”: keys and values written" in lines
    assert lines[-1].startswith("3 - C gives back blocks 6, 1 and 0")
    browser.press(".")
    assert "C gives back blocks 6, 1 and 0" in text_of(browser, ".mp-caption")
    browser.press("Escape")
    assert "Choose a block" in text_of(browser, ".mp-explain")
    assert_quiet(browser)


@needs_chromium
def test_what_is_pressed_keeps_the_focus(browser: Chromium, tmp_path: Path) -> None:
    open_page(browser, tmp_path, COPIES, "#1")
    pressed = "[...document.querySelectorAll('.mp-happened .mp-line-button')].indexOf({})"
    browser.evaluate("document.querySelectorAll('.mp-happened .mp-line-button')[2].focus()")
    browser.press("Enter")
    assert "event 3 of" in text_of(browser, ".mp-place")
    assert browser.evaluate(pressed.format("document.activeElement")) == 2
    browser.evaluate("document.querySelector('.mp-block-button').click()")
    browser.settle()
    browser.evaluate("document.querySelector('.mp-explain .mp-small').focus()")
    browser.press("Enter")  # it closes what it stands in: the player itself is there to go on
    assert browser.evaluate("document.activeElement.ariaLabel") == "Memory player"
    browser.evaluate("document.querySelector('.mp-rail').focus()")
    browser.press("t")  # it hides what has the focus
    assert browser.evaluate("document.activeElement.ariaLabel") == "Memory player"
    assert_quiet(browser)


@needs_chromium
def test_arrows_choose_in_the_list_of_sequences(browser: Chromium, tmp_path: Path) -> None:
    open_page(browser, tmp_path, COPIES, "#1")
    browser.evaluate("document.querySelector('.mp-rail').focus()")
    browser.press("ArrowUp")
    chosen = (
        "document.getElementById(document.activeElement.getAttribute('aria-activedescendant'))"
        ".querySelector('.mp-chip').innerText"
    )
    seen = []
    for _ in range(3):
        browser.press("ArrowDown")
        assert text_of(browser, ".mp-blocks h3 .mp-chip") == browser.evaluate(chosen)
        seen.append(browser.evaluate(chosen))
    assert sorted(seen) == ["A", "B", "C"]
    assert "pinned" in text_of(browser, ".mp-rail .mp-focused")
    assert text_of(browser, ".mp-place").startswith("step 1")
    assert_quiet(browser)


@needs_chromium
def test_it_plays_pauses_and_ends(browser: Chromium, tmp_path: Path) -> None:
    open_page(browser, tmp_path, everything())
    browser.press("+", "+", "+", "+", "+", " ")
    browser.wait_until("document.querySelector('.mp-place').innerText.startsWith('step 15')")
    browser.press("Home", " ", " ")
    place = text_of(browser, ".mp-place")
    browser.evaluate("new Promise(done => setTimeout(done, 200))")
    assert text_of(browser, ".mp-place") == place
    assert_quiet(browser)


@needs_chromium
def test_every_view_opens_and_shows_a_hostile_trace_as_text(
    browser: Chromium, tmp_path: Path
) -> None:
    open_page(browser, tmp_path, hostile_trace())
    for key in (
        "n",
        "x",
        "t",
        "?",
        "Escape",
        "t",
        "b",
        "b",
        "End",
        "e",
        "a",
        "]",
        "[",
        "0",
        ",",
        ".",
    ):
        browser.press(key)
    assert text_of(browser, "h2") == TOKENS[0]
    browser.press("Home", "ArrowRight", "]")
    browser.evaluate("document.querySelector('.mp-block-button').click()")
    browser.settle()
    assert "<b>bold</b>" in text_of(browser, ".mp-explain .mp-slots")
    tokens = text_of(browser, ".mp-blocks")
    assert "<b>bold</b>" in tokens
    assert "�evil" in tokens
    elements = (
        "document.querySelectorAll('main b:not([class]):not(.minipaged *), main img, main script')"
    )
    assert browser.evaluate(f"{elements}.length") == 0
    assert_quiet(browser)


@needs_chromium
def test_charts_of_a_hostile_trace_show_text_and_run_nothing(
    browser: Chromium, tmp_path: Path
) -> None:
    pytest.importorskip("plotly")
    export(save(hostile_trace(), tmp_path), tmp_path / "charts.html", "charts")
    browser.complaints.clear()
    browser.requests.clear()
    browser.open((tmp_path / "charts.html").as_uri())
    browser.wait_until("document.querySelectorAll('svg .gtitle').length === 3")
    assert text_of(browser, "h1") == TOKENS[0]
    assert "</script><script>" in browser.evaluate("document.querySelector('#chart2').textContent")
    assert browser.evaluate("document.querySelectorAll('img, svg a, h1 *').length") == 0
    assert_quiet(browser)


@needs_chromium
def test_pictures_of_a_hostile_trace_show_text_and_run_nothing(
    browser: Chromium, tmp_path: Path
) -> None:
    path = save(hostile_trace(), tmp_path)
    for name in ("svg", "gantt"):
        export(path, tmp_path / f"{name}.svg", name)
        browser.complaints.clear()
        browser.requests.clear()
        browser.open((tmp_path / f"{name}.svg").as_uri())
        assert browser.evaluate("document.querySelectorAll('script, img, a').length") == 0
        assert "</script>" in browser.evaluate("document.documentElement.textContent")
        assert_quiet(browser)


@needs_chromium
def test_a_damaged_page_says_so_in_one_line(browser: Chromium, tmp_path: Path) -> None:
    page = to_html(everything()).replace('["alloc",0,0,', '["unheard-of",0,0,', 1)
    (tmp_path / "page.html").write_text(page, "utf-8")
    browser.open((tmp_path / "page.html").as_uri())
    message = text_of(browser, "[role=alert]")
    assert message == """This trace can't be shown: event 1: unknown event "unheard-of\""""


@needs_chromium
@pytest.mark.parametrize("width", [420, 1280])
def test_nothing_is_wider_than_the_window(browser: Chromium, tmp_path: Path, width: int) -> None:
    browser.resize(width, 800)
    open_page(browser, tmp_path, everything(), "#1")
    browser.press("x")
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert_quiet(browser)
