from __future__ import annotations

import io
import os
import re
import unicodedata
from pathlib import Path

import pytest
from minipaged_visualizer.block_chip import Cell, draw_chip
from minipaged_visualizer.captions import letters
from minipaged_visualizer.options import Options
from minipaged_visualizer.palette import owner_style
from minipaged_visualizer.pool_view import choose_shape, num_rows
from minipaged_visualizer.safe_text import fit, safe, tail, wrap
from minipaged_visualizer.sequence_state import choose_sequences
from minipaged_visualizer.terminal import Screen, draw
from minipaged_visualizer.timeline import Position, Timeline
from rich.cells import cell_len
from rich.console import Console
from scenes import Script, everything

from minipaged.memory.trace import TraceHeader

GOLDEN = Path(__file__).parent / "golden"
HOSTILE = [
    "\x1b[2J\x1b]0;title\x07",
    "[bold red]no markup[/]",
    "line\nbreak\r\ttab\x7f\x9b31m",
    "\u202eright to left\u2066\u200f",
    "zero\u200b\u200d\ufeffwidth\u00ad",
    "half \ud800 of \udfff pairs",
    "家族👨‍👩‍👧‍👦 日本語 ❤️ 👍🏽 🇩🇪",
    "z" + "\u0301\u0302\u0303\u0304" * 9 + "algo",
    "\u0301 begins with a mark",
    "\u2028\u2029\x00\x0b\x0c\x08\x85\ue000\U000e0041",
    "x" * 300,
    "",
]


def timeline_of(script_or_trace) -> Timeline:
    trace = getattr(script_or_trace, "trace", script_or_trace)
    timeline = Timeline(trace.header)
    for step in trace.steps:
        timeline.append(step)
    timeline.last()
    return timeline


def scene_at(number: int, event: int | None = None) -> Timeline:
    timeline = timeline_of(everything())
    timeline.go_to_step(number)
    if event is not None:
        timeline.go_to(Position(number, event))
    return timeline


def printed(
    timeline: Timeline, width: int, height: int, options: Options | None = None, **environ: str
) -> str:
    """What a terminal of this size gets, escape sequences included."""
    console = Console(
        width=width,
        height=height,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
        _environ={"TERM": "xterm-256color", **environ},
    )
    console.print(Screen(timeline, options or Options()), end="")
    return console.file.getvalue()


def seen(timeline: Timeline, width: int, height: int, options: Options | None = None) -> list[str]:
    """The lines without their styles."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", printed(timeline, width, height, options))
    return [line.rstrip() for line in text.split("\n")]


# --- the whole picture ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "width", "height", "number", "event"),
    [
        ("watch-80x24", 80, 24, 1, None),
        ("watch-80x24-event", 80, 24, 11, 2),
        ("watch-120x40", 120, 40, 5, None),
    ],
)
def test_exact_picture(name: str, width: int, height: int, number: int, event: int | None):
    options = Options(tokens_per_second=41.4, by_event=event is not None)
    picture = "\n".join(seen(scene_at(number, event), width, height, options)) + "\n"
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(picture, encoding="utf-8")
    assert picture == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("width", "height"),
    [(200, 50), (120, 40), (110, 30), (80, 24), (60, 16), (59, 15), (40, 10), (20, 5), (5, 3)],
)
@pytest.mark.parametrize("by_event", [False, True])
@pytest.mark.parametrize("focus", [None, 0, 3, 99])
def test_every_moment_fits_every_size(width: int, height: int, by_event: bool, focus: int | None):
    timeline = timeline_of(everything())
    timeline.first()
    options = Options(by_event=by_event, focus=focus, status="loading")
    while True:
        lines = draw(timeline, options, width, height)
        assert len(lines) == height
        assert max(line.cell_len for line in lines) <= width
        if not (timeline.forward_event() if by_event else timeline.forward_step()):
            break


@pytest.mark.parametrize(("width", "height"), [(1, 1), (1, 2), (3, 40), (200, 1), (200, 2)])
def test_absurd_sizes_do_not_fail(width: int, height: int):
    for options in (Options(), Options(show_help=True), Options(status="x" * 500)):
        assert len(draw(scene_at(5), options, width, height)) == height


def test_a_small_terminal_tells_the_most_important_and_what_it_takes():
    lines = seen(scene_at(11), 40, 10, Options(is_paused=True))
    assert lines[0] == "minipaged       ‖ paused · step 11 of 15"
    assert lines[1] == "12 used, 4 cached, 0 free"
    assert lines[2] == "60x16 or more shows the blocks"
    assert "is evicted" in lines[3]
    assert lines[9] == "space pause   ←→ step   ? help   q quit"


def test_an_empty_trace_is_shown():
    timeline = Timeline(TraceHeader(block_size=16, num_blocks=64))
    lines = seen(timeline, 80, 24)
    assert "no requests yet" in lines
    assert "nothing has happened yet" in lines
    assert any("free 64" in line for line in lines)


def test_the_preview_of_a_step_is_shown_while_the_model_is_loaded():
    trace = everything()
    timeline = Timeline(trace.header)
    timeline.preview(trace.steps[0].events[:5])
    timeline.last()
    text = "\n".join(seen(timeline, 80, 24, Options(status="loading smollm2 ...")))
    assert "loading smollm2 ...   space pause" in text
    assert "A takes blocks 0 to 3: room for its prompt" in text
    assert "used 4" in text
    assert "prompt: 0 of 14 tokens" in "\n".join(seen(timeline, 120, 40))


def test_help_explains_every_key_in_80x24():
    lines = seen(scene_at(5), 80, 24, Options(show_help=True))
    text = "\n".join(lines)
    for word in ("space", "Home End", "Tab", "quit", "copy-on-write", "evicted", "reserved"):
        assert word in text
    assert not any(line.endswith("…") for line in lines)
    assert len(lines) == 24


def test_an_error_stands_where_the_status_was():
    lines = seen(scene_at(5), 80, 24, Options(status="line 7 is cut off", is_error=True))
    assert lines[-1].startswith("line 7 is cut off   ")
    assert lines[-1].endswith("q quit")


def test_without_room_for_all_keys_the_most_needed_stay():
    assert seen(scene_at(5), 20, 5)[-1] == "? help   q quit"


# --- what it says ---------------------------------------------------------------------------------


def test_event_by_event_only_the_last_event_is_marked():
    timeline = scene_at(1)
    copies = [n for n, event in enumerate(timeline.events, 1) if event.kind == "copy"]
    timeline.go_to(Position(1, copies[0]))
    whole, single = (
        "\n".join(seen(timeline, 80, 24, Options(by_event=by_event))[2:5])
        for by_event in (False, True)
    )
    assert "« 3" in single
    assert "» 5" in single
    assert "+ 4" not in single
    assert "+ 4" in whole


def test_a_swapped_sequence_shows_its_swap_blocks():
    text = "\n".join(seen(scene_at(8), 120, 40))
    assert "↓ swapped" in text
    assert " s0 " in text
    assert "Swap↓0 D" in text


def test_the_next_token_stands_in_the_slot_it_will_be_written_to():
    text = "\n".join(seen(scene_at(1), 120, 40))
    assert "moon│.│ The│‹ moon›" in text
    assert "Salt›" in text


def test_finished_sequences_give_way_when_there_is_no_room():
    state = scene_at(11).state
    chosen, left_out = choose_sequences(state, 2)
    assert [state.sequences[seq].status for seq in chosen] == ["running", "running"]
    assert left_out == {"preempted": 1, "finished": 2}
    assert "not shown: 2 finished" in seen(scene_at(11), 60, 16)


def test_the_focused_sequence_is_shown_in_full():
    plain = "\n".join(seen(scene_at(6), 80, 24))
    focused = "\n".join(seen(scene_at(6), 80, 24, Options(focus=0)))
    assert "   4 →    8   4/4" in focused
    assert "   4 →    8   4/4" not in plain


def test_numbers_are_those_of_the_snapshot():
    timeline = scene_at(5)
    memory = timeline.state.snapshot()
    text = "\n".join(seen(timeline, 120, 40))
    assert f"used {memory.num_used} " in text
    assert f"cached {memory.num_cached} " in text
    assert f"free {memory.num_free - memory.num_cached} " in text
    assert f"wasted {memory.num_empty_slots} slots" in text
    assert f"sharing saves {memory.num_blocks_saved} blocks" in text


def test_bytes_are_told_if_they_are_known():
    trace = everything()
    header = TraceHeader(4, 16, 6, bytes_per_block=92160)
    timeline = Timeline(header)
    for step in trace.steps:
        timeline.append(step)
    timeline.go_to_step(5)
    assert any("used 10 = 900.0 KiB" in line for line in seen(timeline, 120, 40))


# --- the pool -------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_blocks", [1, 7, 16, 24, 64, 100, 256, 1024, 4096, 100_000, 2**22])
@pytest.mark.parametrize(("width", "rows"), [(60, 3), (80, 4), (120, 7), (200, 9)])
def test_every_pool_fits_as_a_whole(num_blocks: int, width: int, rows: int):
    shape = choose_shape(num_blocks, width, rows, rows)
    assert num_rows(shape, num_blocks, width) <= rows


def test_a_large_pool_says_what_a_letter_stands_for():
    script = Script(num_blocks=4096)
    for seq in range(60):
        script.request(seq, ["one", " prompt"] * 20 + [f" {seq}"])
        script.admit(seq)
    for _ in range(5):
        script.step()
    lines = seen(timeline_of(script), 80, 24)
    assert lines[1].startswith("Pool  4096 blocks of 4 tokens; a letter stands for 16 of them")
    assert "&" in lines[2]
    assert len(lines) == 24


def test_how_far_a_block_is_filled_is_seen():
    chips = [
        draw_chip(Cell(0, (0,), filled, 16, False, ""), 4).plain for filled in (0, 1, 6, 10, 16)
    ]
    assert chips == ["A▁▁▁", "A▁▁▁", "A▌▁▁", "A ▌▁", "A   "]


def test_shared_blocks_name_their_owners_and_count():
    chips = [
        draw_chip(Cell(0, owners, 4, 4, False, ""), width).plain
        for owners, width in [
            ((0, 1), 6),
            ((0, 1, 2), 4),
            (tuple(range(12)), 4),
            (tuple(range(12)), 3),
            (tuple(range(12)), 2),
        ]
    ]
    assert chips == ["AB×2  ", "A×3 ", "A×12", "×12", "&&"]


def test_free_and_cached_blocks_differ_from_used_ones():
    assert draw_chip(Cell(0, (), 0, 4, False, ""), 4).plain == "·   "
    assert draw_chip(Cell(0, (), 0, 4, True, ""), 4).plain == "░░░░"


def test_sequences_differ_in_letter_and_hatching_where_colours_begin_again():
    chips = [draw_chip(Cell(0, (seq,), 4, 4, False, ""), 4) for seq in range(28)]
    assert len({(chip.plain[1:], str(chip.spans[0].style)) for chip in chips}) == 28
    assert owner_style(0) == owner_style(7)
    assert chips[7].plain == letters(7) + "╱╱╱"


# --- no colour-only meaning, no trust -------------------------------------------------------------


def test_no_color_means_no_colour_and_the_same_text():
    timeline = scene_at(1)
    plain = printed(timeline, 80, 24, NO_COLOR="1")
    codes = {code for run in re.findall(r"\x1b\[([0-9;]*)m", plain) for code in run.split(";")}
    assert codes <= {"0", "1", "2", "3", "4", "7"}
    strip = re.compile(r"\x1b\[[0-9;]*m")
    assert strip.sub("", plain) == strip.sub("", printed(timeline, 80, 24))


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (60, 16), (40, 10), (20, 5)])
def test_tokens_can_not_act_on_the_terminal(width: int, height: int):
    script = Script(num_blocks=64)
    script.trace.header.model["name"] = HOSTILE[0] + HOSTILE[3]
    for seq, text in enumerate(HOSTILE):
        script.request(seq, [text, *HOSTILE], name=text)
        script.admit(seq)
    script.step(note="\x1b[31mnote\n")
    timeline = timeline_of(script)
    for focus in range(len(HOSTILE)):
        options = Options(focus=focus, status=HOSTILE[0], by_event=bool(focus % 2))
        text = re.sub(r"\x1b\[[0-9;]*m", "", printed(timeline, width, height, options))
        lines = text.split("\n")
        assert len(lines) == height
        assert all(cell_len(line) <= width for line in lines)
        bad = {c for c in text if unicodedata.category(c)[0] == "C" and c != "\n"}
        assert not bad


def test_markup_is_text():
    script = Script(num_blocks=16)
    script.request(0, ["[bold]", "[/]", "[red]x[/red]"])
    script.admit(0)
    script.step()
    assert "[bold]│[/]│[red]x[/red]" in "\n".join(seen(timeline_of(script), 120, 40))


@pytest.mark.parametrize("text", HOSTILE)
def test_safe_text_is_printable_and_cut_by_cells(text: str):
    shown = safe(text)
    assert all(unicodedata.category(c)[0] != "C" for c in shown)
    for width in range(12):
        assert cell_len(fit(shown, width)) <= width
        assert cell_len(tail(shown, width)) <= width
        assert all(cell_len(line) <= max(width, 1) for line in wrap(shown, max(width, 1)))


def test_ordinary_text_is_left_alone():
    for text in (" moon", "Grüße", "日本語", "é", "नमस्ते", "שלום", "🙂", "⟨E2⟩"):
        assert safe(text) == text
