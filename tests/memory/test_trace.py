from __future__ import annotations

import dataclasses
import gzip
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted_run import scripted_trace
from test_events import EVENTS

from minipaged.errors import MinipagedError, TraceError
from minipaged.memory import trace as trace_module
from minipaged.memory.events import BlockAllocated, Finished, Requested, to_json
from minipaged.memory.integrity import check_trace
from minipaged.memory.trace import Trace, TraceHeader, TraceReader, TraceStep, is_trace
from minipaged.memory.trace_format import header_line, step_line

HEADER = TraceHeader(block_size=4, num_blocks=8)
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
STEPS = st.lists(
    st.builds(
        TraceStep,
        step=st.just(0),
        prefill_tokens=st.integers(0, 2**62),
        decode_tokens=st.integers(0, 9),
        note=TEXT,
        events=st.lists(EVENTS, max_size=4).map(tuple),
        us=st.none() | st.integers(0, 2**62),
    ),
    max_size=4,
).map(lambda steps: [dataclasses.replace(s, step=i) for i, s in enumerate(steps)])
SETTING = st.none() | st.booleans() | st.integers() | TEXT
HEADERS = st.builds(
    TraceHeader,
    block_size=st.integers(1, 2**16),
    num_blocks=st.integers(1, 2**22),
    num_swap_blocks=st.integers(0, 2**22),
    bytes_per_block=st.integers(0, 2**62),
    allocator=TEXT,
    model=st.dictionaries(TEXT, SETTING | st.lists(SETTING, max_size=3), max_size=3),
    scheduler=st.dictionaries(TEXT, SETTING, max_size=3),
    title=TEXT,
)


def trace_of(header: TraceHeader, steps: list[TraceStep]) -> Trace:
    trace = Trace(header)
    trace.steps.extend(steps)
    return trace


def lines_of(path: Path) -> bytes:
    content = path.read_bytes()
    return gzip.decompress(content) if path.suffix == ".gz" else content


def one_line(error: BaseException, path: Path) -> str:
    """Give the message of an error that must be one printable line about this file."""
    message = str(error)
    assert message.startswith(f"{path}: ")
    assert message.isprintable()
    assert len(message) < len(str(path)) + 300
    return message


def refused(path: Path, *, match: str = "") -> str:
    with pytest.raises(TraceError) as raised:
        Trace.load(path)
    message = one_line(raised.value, path)
    assert match in message
    assert isinstance(raised.value, MinipagedError)
    return message


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "run.jsonl"


# --- round trips ----------------------------------------------------------------------------------


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(header=HEADERS, steps=STEPS, suffix=st.sampled_from(["jsonl", "jsonl.gz"]))
def test_any_trace_survives_a_file(tmp_path, header, steps, suffix):
    trace = trace_of(header, steps)
    trace.save(tmp_path / f"run.{suffix}")
    again = Trace.load(tmp_path / f"run.{suffix}")
    assert again == trace
    assert [step.us for step in again.steps] == [step.us for step in trace.steps]
    again.save(tmp_path / f"again.{suffix}")
    assert lines_of(tmp_path / f"run.{suffix}") == lines_of(tmp_path / f"again.{suffix}")


def test_a_file_is_lines_of_json_that_people_can_read(path):
    trace = Trace(dataclasses.replace(HEADER, title="☾"))
    trace.observe(Requested(0, "é", 3))
    trace.end_step(3, 0, "first")
    trace.end_step(0, 1, us=250)
    trace.save(path)
    assert path.read_text(encoding="utf-8").split("\n") == [
        '{"format":"minipaged-trace","version":1,"block_size":4,"num_blocks":8,"num_swap_blocks":0,'
        '"bytes_per_block":0,"allocator":"paged","model":{},"scheduler":{},"title":"☾"}',
        '{"step":0,"prefill_tokens":3,"decode_tokens":0,"note":"first",'
        '"events":[["request",0,"é",3]]}',
        '{"step":1,"prefill_tokens":0,"decode_tokens":1,"note":"","events":[],"us":250}',
        "",
    ]


def test_the_name_decides_about_writing_and_the_content_about_reading(tmp_path):
    trace = scripted_trace()
    trace.save(tmp_path / "run.jsonl.gz")
    assert (tmp_path / "run.jsonl.gz").read_bytes()[:2] == b"\x1f\x8b"
    (tmp_path / "run.jsonl.gz").rename(tmp_path / "run.jsonl")
    assert Trace.load(tmp_path / "run.jsonl") == trace
    trace.save(tmp_path / "plain.jsonl")
    (tmp_path / "plain.jsonl").rename(tmp_path / "plain.gz")
    assert Trace.load(str(tmp_path / "plain.gz")) == trace


def test_the_same_run_gives_the_same_gzipped_bytes(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        scripted_trace().save(tmp_path / folder / "run.jsonl.gz")
    a, b = ((tmp_path / folder / "run.jsonl.gz").read_bytes() for folder in ("a", "b"))
    assert a == b


def test_traces_are_compared_without_durations():
    first, second = Trace(HEADER), Trace(HEADER)
    first.end_step(1, 0, us=100)
    second.end_step(1, 0, us=200)
    assert first == second
    second.end_step(1, 0)
    assert first != second
    assert first != "a trace"
    assert Trace(HEADER) != Trace(dataclasses.replace(HEADER, title="b"))


def test_events_after_the_last_step_are_saved_and_the_run_goes_on(path):
    trace = Trace(HEADER)
    trace.observe(Requested(0, "a", 3))
    assert trace.pending() == (Requested(0, "a", 3),)
    trace.save(path)
    saved = Trace.load(path)
    assert saved == trace
    assert saved.steps == [TraceStep(0, 0, 0, "after the last step", (Requested(0, "a", 3),))]
    assert trace.steps == []  # saving changes nothing
    trace.observe(Finished(0, "stop"))
    step = trace.end_step(1, 0)
    assert step == TraceStep(0, 1, 0, "", (Requested(0, "a", 3), Finished(0, "stop")))
    assert trace.pending() == ()
    trace.save(path)
    assert Trace.load(path) == trace


def test_who_looks_while_a_step_ends_sees_no_event_twice():
    """A notebook may write a page of a run that goes on, on another thread."""
    trace = Trace(HEADER)
    looks = []

    class Steps(list):
        def append(self, step: TraceStep) -> None:
            looks.append(trace.all_steps())
            super().append(step)
            looks.append(trace.all_steps())

    trace.steps = Steps()
    for seq in range(3):
        trace.observe(Requested(seq, "", 1))
        trace.end_step(0, 0)
    seen = [[event.seq for step in steps for event in step.events] for steps in looks]
    assert seen == [[], [0], [0], [0, 1], [0, 1], [0, 1, 2]]


def test_a_loaded_trace_can_go_on(path):
    steps = [TraceStep(3, 0, 0, "", ()), TraceStep(7, 0, 0, "", ())]
    trace_of(HEADER, steps).save(path)
    trace = Trace.load(path)
    assert trace.end_step(1, 0).step == 8
    trace.save(path)
    assert [step.step for step in Trace.load(path).steps] == [3, 7, 8]


def test_half_a_surrogate_pair_is_never_written(path):
    trace = Trace(dataclasses.replace(HEADER, title="a\ud800b"))
    trace.observe(Requested(0, "\udc80", 1))
    trace.save(path)
    again = Trace.load(path)
    assert again.header.title == "a?b"
    assert again.steps[0].events == (Requested(0, "?", 1),)


@pytest.mark.parametrize("setting", [1.5, {"a": 1}, [[1]], [1.5], float("nan"), b"x", Path("x")])
def test_settings_are_plain_values(setting):
    with pytest.raises(ValueError, match="setting 'a' can't be"):
        dataclasses.replace(HEADER, model={"a": setting})
    with pytest.raises(ValueError, match="setting 'a' can't be"):
        dataclasses.replace(HEADER, scheduler={"a": setting})


def test_headers_and_steps_are_values():
    step = TraceStep(0, 1, 2, "", ())
    for value, name in ((HEADER, "num_blocks"), (step, "note")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, name, 9)
    assert TraceStep(0, 1, 2, "", (), us=5) == step != TraceStep(0, 1, 2, "a", ())


# --- a file that grows ----------------------------------------------------------------------------


def test_a_file_can_be_followed_byte_by_byte(path, tmp_path):
    scripted_trace().save(tmp_path / "whole.jsonl")
    whole = (tmp_path / "whole.jsonl").read_bytes()
    start = whole.index(b"\n") + 1
    steps: list[TraceStep] = []
    with open(path, "wb", buffering=0) as file:
        file.write(whole[:start])
        with TraceReader(path) as reader:
            assert reader.header == scripted_trace().header
            for index in range(start, len(whole)):
                file.write(whole[index : index + 1])
                new = reader.poll()
                assert len(new) == (whole[index : index + 1] == b"\n")
                steps += new
            assert reader.poll() == []
            assert reader.line_number == whole.count(b"\n")
    assert steps == scripted_trace().steps


def test_each_step_is_in_the_file_at_once(path):
    trace = Trace(HEADER, path)
    with TraceReader(path) as reader:
        assert reader.header == HEADER
        assert reader.poll() == []
        for number in range(3):
            trace.observe(Requested(number, "", 1))
            assert reader.poll() == []
            step = trace.end_step(1, 0, us=number)
            assert reader.poll() == [step]
        trace.observe(Finished(0, "stop"))
        trace.close()
        (last,) = reader.poll()
        assert last.events == (Finished(0, "stop"),)
    assert Trace.load(path) == trace
    trace.close()  # twice is fine
    trace.end_step(0, 0)  # and goes on in memory


def test_a_gzipped_file_may_grow_too_but_is_read_when_it_is_complete(tmp_path):
    path = tmp_path / "run.jsonl.gz"
    trace = Trace(HEADER, path)
    trace.end_step(1, 0)
    with pytest.raises(TraceError, match="ended before"):
        Trace.load(path)
    trace.end_step(0, 1)
    trace.close()
    assert Trace.load(path) == trace


def test_saving_where_it_grows_changes_nothing(path):
    trace = Trace(HEADER, path)
    trace.end_step(1, 0)
    trace.save(path)
    trace.end_step(0, 1)
    trace.close()
    assert Trace.load(path) == trace


def test_a_line_that_is_cut_off_is_one_error_and_the_steps_before_stay_readable(path):
    trace = scripted_trace()
    trace.save(path)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in (1, len(lines[-1]) // 2, len(lines[-1]) - 1):
        path.write_bytes(whole[: len(whole) - cut])
        message = refused(path, match="is cut off")
        assert f"line {len(lines)} is cut off; the {len(lines) - 1} lines before it" in message
        with TraceReader(path) as reader:
            assert reader.poll() == trace.steps[:-1]
        steps = []
        with TraceReader(path) as reader, pytest.raises(TraceError, match="is cut off"):
            steps.extend(reader)
        assert check_trace_error(path) == message


def check_trace_error(path: Path) -> str:
    with pytest.raises(TraceError) as raised:
        check_trace(path)
    return str(raised.value)


def test_a_cut_in_the_middle_of_a_character_is_waited_for(path):
    line = step_line(TraceStep(0, 0, 0, "☾", ()))
    cut = line.index("☾".encode()) + 1
    path.write_bytes(header_line(HEADER) + line[:cut])
    with TraceReader(path) as reader:
        assert reader.poll() == []
        with open(path, "ab") as file:
            file.write(line[cut:])
        assert [step.note for step in reader.poll()] == ["☾"]


def test_a_bad_line_is_told_when_it_is_reached(path):
    path.write_bytes(header_line(HEADER) + step_line(TraceStep(0, 0, 0, "", ())) + b"{}\n")
    with TraceReader(path) as reader:
        steps = iter(reader)
        assert next(steps).step == 0
        with pytest.raises(TraceError, match="line 3: 'step' is missing"):
            next(steps)


def test_a_bad_line_costs_none_of_the_steps_before_it_when_a_file_is_followed(path):
    good = [TraceStep(number, 0, 0, "", ()) for number in range(3)]
    lines = [header_line(HEADER), *map(step_line, good), b"{}\n", step_line(good[0])]
    path.write_bytes(b"".join(lines))
    with TraceReader(path) as reader:
        assert reader.poll() == good
        for _ in range(2):
            with pytest.raises(TraceError, match="line 5: 'step' is missing"):
                reader.poll()


# --- files that are none --------------------------------------------------------------------------


def test_a_missing_file(path):
    refused(path, match="can't be read: No such file or directory")


def test_a_directory(tmp_path):
    refused(tmp_path, match="can't be read: ")


def test_a_path_that_can_be_none():
    with pytest.raises(TraceError, match=r"can't be read: .*null"):
        Trace.load("a\0b")
    with pytest.raises(TraceError, match=r"can't be written: .*null"):
        Trace(HEADER).save("a\0b")
    with pytest.raises(TraceError, match=r"can't be written: .*null"):
        Trace(HEADER, "a\0b")


def test_a_folder_that_is_missing(tmp_path):
    for name in ("run.jsonl", "run.jsonl.gz"):
        path = tmp_path / "missing" / name
        with pytest.raises(TraceError, match="can't be written: No such file") as raised:
            Trace(HEADER).save(path)
        one_line(raised.value, path)
        with pytest.raises(TraceError, match="can't be written: No such file"):
            Trace(HEADER, path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has a device that is full")
def test_a_full_disk_is_one_error_and_the_steps_are_kept(path):
    with pytest.raises(TraceError, match="/dev/full: can't be written: No space left"):
        Trace(HEADER).save("/dev/full")
    with pytest.raises(TraceError, match="/dev/full: can't be written: No space left"):
        Trace(HEADER, "/dev/full")
    trace = Trace(HEADER, path)
    trace.end_step(1, 0)
    with open("/dev/full", "wb") as full:
        os.dup2(full.fileno(), trace._sink._file.fileno())  # type: ignore[union-attr]
    with pytest.raises(TraceError, match="can't be written: No space left"):
        trace.end_step(0, 1)
    assert len(trace.steps) == 2
    trace.end_step(0, 2)  # the file is given up, memory goes on
    trace.close()
    trace.save(path)
    assert Trace.load(path) == trace


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "not a trace: it has no complete first line"),
        (b"\n", "line 1: not JSON"),
        (b"{}", "it has no complete first line"),
        (b"{}\n", "line 1: not a trace: its first line must have format 'minipaged-trace'"),
        (b"[]\n", "line 1: not a JSON object"),
        (b"null\n", "line 1: not a JSON object"),
        (b"hello\n", "line 1: not JSON (Expecting value"),
        (b"\x00\x01\x02\xff\n\n", "line 1: not JSON ("),
        (b"\xff\xfe{\x00}\x00\n\x00", "line 1: not JSON ("),
        (b"\xef\xbb\xbf{}\n", "line 1: not JSON ("),
        (b"\x89PNG\r\n\x1a\n", "line 1: not JSON ("),
        (b"PK\x03\x04\n", "line 1: not JSON ("),
        (b"\x1f\x8bgarbage", "can't be read after line 0"),
        (b"\x1f\x8b", "can't be read after line 0"),
        (gzip.compress(b"hello\n", mtime=0), "line 1: not JSON"),
        (gzip.compress(header_line(HEADER), mtime=0)[:40], "can't be read after line 0"),
        (b'{"format": "minipaged-trace"}\n', "line 1: trace version None, only 1 can be read"),
    ],
)
def test_a_file_that_is_no_trace(path, content, match):
    path.write_bytes(content)
    refused(path, match=match)
    assert check_trace_error(path) == refused(path)


def test_a_truncated_gzip(tmp_path):
    path = tmp_path / "run.jsonl.gz"
    trace = scripted_trace()
    trace.save(path)
    whole = path.read_bytes()
    for length in range(10, len(whole), 97):
        path.write_bytes(whole[:length])
        refused(path, match="can't be read after line ")
    path.write_bytes(whole[:-20] + bytes(20))
    refused(path)
    path.write_bytes(whole + b"garbage")
    refused(path)


def test_a_line_without_an_end(path, monkeypatch):
    monkeypatch.setattr(trace_module, "MAX_LINE_BYTES", 1000)
    path.write_bytes(header_line(HEADER) + b" " * 5000)
    assert refused(path).endswith("line 2 is longer than 1000 bytes")
    path.write_bytes(b" " * 5000)
    assert refused(path).endswith("line 1 is longer than 1000 bytes")


# --- lines that are wrong -------------------------------------------------------------------------


def header_with(**fields: Any) -> bytes:
    return json.dumps({**json.loads(header_line(HEADER)), **fields}).encode() + b"\n"


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"format": "other"}, "not a trace"),
        ({"format": ["minipaged-trace"]}, "not a trace"),
        ({"version": 2}, "trace version 2, only 1 can be read"),
        ({"version": "1"}, "trace version '1', only 1"),
        ({"version": 1.0}, "trace version 1.0, only 1"),
        ({"version": True}, "trace version True, only 1"),
        ({"version": [[[[]]]]}, "trace version [[[...]]], only 1"),
        ({"version": "\n" * 99}, "trace version '\\n"),
        ({"block_size": 0}, "'block_size' is 0; it must be an integer from 1 to 65536"),
        ({"block_size": None}, "'block_size' is missing"),
        ({"block_size": 4.0}, "'block_size' is 4.0"),
        ({"block_size": True}, "'block_size' is True"),
        ({"block_size": 2**16 + 1}, "'block_size' is 65537"),
        ({"num_blocks": 0}, "'num_blocks' is 0; it must be an integer from 1 to 4194304"),
        ({"num_blocks": 10**12}, "'num_blocks' is 1000000000000"),
        ({"num_blocks": 10**1000}, "'num_blocks' is 1000000000"),
        ({"num_blocks": "8"}, "'num_blocks' is '8'"),
        ({"num_swap_blocks": -1}, "'num_swap_blocks' is -1"),
        ({"num_swap_blocks": 10**12}, "'num_swap_blocks' is 1000000000000"),
        ({"bytes_per_block": 1e99}, "'bytes_per_block' is 1e+99"),
        ({"allocator": 1}, "'allocator' must be a string, not 1"),
        ({"title": ["\u2028"]}, "'title' must be a string, not ['\\u2028']"),
        ({"model": []}, "'model' must be an object, not []"),
        ({"scheduler": "x"}, "'scheduler' must be an object, not 'x'"),
        ({"model": {"\n": {}}}, "setting '\\n' can't be {}"),
        ({"scheduler": {"a": [1, [2]]}}, "setting 'a' can't be [1, [2]]"),
        ({"model": {"a": 0.5}}, "setting 'a' can't be 0.5"),
    ],
)
def test_a_header_with_a_wrong_field(path, fields, match):
    path.write_bytes(header_with(**fields))
    refused(path, match=f"line 1: {match}")


def test_fields_of_the_future_are_ignored_and_some_may_be_left_out(path):
    rows = [
        {"format": "minipaged-trace", "version": 1, "block_size": 4, "num_blocks": 8, "new": {}},
        {"step": 5, "new": [1.5]},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert Trace.load(path) == trace_of(HEADER, [TraceStep(5, 0, 0, "", ())])


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ('{"step": 1, ', "not JSON (Expecting property name"),
        ("", "not JSON ("),
        ("[]", "not a JSON object"),
        ('"step"', "not a JSON object"),
        ("{}", "'step' is missing; it must be an integer from 1 to"),
        ('{"step": null}', "'step' is missing"),
        ('{"step": 0}', "'step' is 0; it must be an integer from 1 to"),
        ('{"step": -1}', "'step' is -1"),
        ('{"step": "1"}', "'step' is '1'"),
        ('{"step": 1.5}', "'step' is 1.5"),
        ('{"step": 1e400}', "'step' is inf"),
        ('{"step": NaN}', "not JSON (NaN is no number)"),
        ('{"step": 1, "x": -Infinity}', "not JSON (-Infinity is no number)"),
        ('{"step": ' + "9" * 400 + "}", "'step' is 99999999"),
        ('{"step": ' + "9" * 9999 + "}", "line 3: "),
        ('{"step": 1, "prefill_tokens": -1}', "'prefill_tokens' is -1"),
        ('{"step": 1, "decode_tokens": []}', "'decode_tokens' is []"),
        ('{"step": 1, "note": 1}', "'note' must be a string, not 1"),
        ('{"step": 1, "note": null}', "'note' must be a string, not None"),
        ('{"step": 1, "us": null}', "'us' is missing"),
        ('{"step": 1, "us": 1.5}', "'us' is 1.5"),
        ('{"step": 1, "events": {}}', "'events' must be an array, not {}"),
        ('{"step": 1, "events": [["x-a"], 1]}', "event 1: an event must be an array"),
        ('{"step": 1, "events": [["warp", 1]]}', "event 0: unknown event 'warp'"),
        ('{"step": 1, "events": [["\\n\\u001b", 1]]}', "event 0: unknown event '\\n\\x1b'"),
        ('{"step": 1, "events": [["' + "a" * 999 + '"]]}', "event 0: unknown event 'aaa"),
        ('{"step": 1, "events": [["fork", 1]]}', "event 0: event 'fork' needs 2 fields, has 1"),
        ('{"step": 1, "events": [["fork", 1, 1e99]]}', "field 'child' must be an integer"),
        ('{"step": 1, "events": [["finish", 1, "\\ud800"]]}', "not JSON ("),
        ('{"step": 1, "note": "\\uDC80"}', "surrogates not allowed"),
        ('{"step": 1, "\\udfff": 0}', "surrogates not allowed"),
        ('{"step": 1} {"step": 2}', "not JSON (Extra data"),
    ],
)
def test_a_step_that_is_wrong(path, line, match):
    good = step_line(TraceStep(0, 0, 0, "", ()))
    path.write_bytes(header_line(HEADER) + good + line.encode() + b"\n")
    refused(path, match="line 3: ")
    assert match in refused(path)
    assert check_trace_error(path) == refused(path)


@pytest.mark.parametrize("raw", [b"\xff", b"\xed\xa0\x80", b"\xc3(", b"\xf5\x80\x80\x80"])
def test_bytes_that_are_no_characters(path, raw):
    path.write_bytes(header_line(HEADER) + b'{"step": 0, "note": "' + raw + b'"}\n')
    refused(path, match="line 2: not JSON ('utf-8' codec can't decode byte")


def test_whole_surrogate_pairs_and_escaped_backslashes_are_text(path):
    path.write_bytes(header_line(HEADER) + b'{"step": 0, "note": "\\ud83c\\udf0a \\\\ud800"}\n')
    assert Trace.load(path).steps[0].note == "🌊 \\ud800"


@pytest.mark.parametrize("depth", [100, 900, 940, 950, 960, 970, 980, 990, 1000, 5000, 100_000])
@pytest.mark.parametrize(
    "template",
    [
        '{"step": 0, "events": %s}',
        '{"step": 0, "events": [["fork", 0, %s]]}',
        '{"step": %s}',
        '{"step": 0, "note": %s}',
        '{"step": 0, "note": "\\ud83c\\udf0a", "x": %s}',
        "%s",
    ],
)
def test_deep_nesting(path, template, depth):
    for nest in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
        path.write_bytes(header_line(HEADER) + (template % nest).encode() + b"\n")
        try:
            Trace.load(path)  # an unknown field may nest, as far as JSON's reader goes
        except TraceError as e:
            one_line(e, path)
        else:
            assert '"x"' in template
        path.write_bytes((template % nest).encode() + b"\n")
        refused(path, match="line 1: ")


@pytest.mark.parametrize("depth", [300, 900, 960, 980])
def test_a_header_that_nests_deeply(path, depth):
    line = header_line(HEADER).decode()
    for nest in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
        for field in ("model", "scheduler"):
            deep = line.replace(f'"{field}":{{}}', f'"{field}":{{"a":{nest}}}')
            path.write_bytes(deep.encode())
            refused(path, match="line 1: ")


def test_foreign_events_are_skipped(path):
    rows = [["x-timing", 1.5, {"a": []}], to_json(Requested(0, "a", 1)), ["x-"]]
    step = {"step": 0, "events": rows}
    path.write_bytes(header_line(HEADER) + json.dumps(step).encode() + b"\n")
    assert Trace.load(path).steps[0].events == (Requested(0, "a", 1),)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["alloc", "swap_in", "x-a", "step", "minipaged-trace"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["step", "events", "note", "us"]) | TEXT, inner, max_size=4
        )
    ),
    max_leaves=12,
)


def loads_or_trace_error(path: Path) -> None:
    for read in (Trace.load, check_trace):
        try:
            read(path)
        except TraceError as e:
            one_line(e, path)


FUZZ = settings(
    max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


@FUZZ
@given(
    value=JSON
    | st.fixed_dictionaries({"step": st.integers(0, 3), "events": st.lists(st.lists(JSON))}),
    place=st.sampled_from(["header", "step"]),
)
def test_any_json_is_read_or_a_trace_error(path, value, place):
    line = json.dumps(value).encode() + b"\n"
    path.write_bytes(line if place == "header" else header_line(HEADER) + line)
    loads_or_trace_error(path)


def test_a_trace_is_saved_over_a_trace_only(tmp_path):
    other, trace = tmp_path / "data.jsonl", scripted_trace()
    other.write_text("precious", encoding="utf-8")
    with pytest.raises(TraceError, match="no trace: it is not overwritten"):
        trace.save(other)
    assert other.read_text(encoding="utf-8") == "precious"
    assert not is_trace(other)
    for _ in range(2):
        trace.save(tmp_path / "run.jsonl.gz")
    assert is_trace(tmp_path / "run.jsonl.gz")
    assert not is_trace(tmp_path)
    assert not is_trace(tmp_path / "none.jsonl")


@FUZZ
@given(data=st.data())
def test_any_field_replaced_is_read_or_a_trace_error(path, data):
    path.unlink(missing_ok=True)
    scripted_trace().save(path)
    rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    row = data.draw(st.sampled_from(rows))
    key = data.draw(st.sampled_from(list(row)))
    if key == "events" and row["events"] and data.draw(st.booleans()):
        event = data.draw(st.sampled_from(row["events"]))
        event[data.draw(st.integers(0, len(event) - 1))] = data.draw(JSON)
    else:
        row[key] = data.draw(JSON)
    path.write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    loads_or_trace_error(path)


@FUZZ
@given(data=st.data(), suffix=st.sampled_from(["jsonl", "jsonl.gz"]))
def test_any_bytes_changed_are_read_or_a_trace_error(tmp_path, data, suffix):
    path = tmp_path / f"run.{suffix}"
    path.unlink(missing_ok=True)
    scripted_trace().save(path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content)))
        length = data.draw(st.integers(0, 4))
        content[at : at + length] = data.draw(st.binary(max_size=4))
    path.write_bytes(content)
    loads_or_trace_error(path)


@pytest.mark.parametrize("seq", [0, -5, 2**63 - 1])
def test_extreme_numbers_are_no_trouble(path, seq):
    big = 2**63 - 1
    trace = Trace(HEADER)
    trace.observe(Requested(seq, "", big))
    trace.observe(BlockAllocated(seq, 0, 7, ""))
    trace.observe(Finished(seq, "stop"))
    trace.end_step(2**62, 0)
    trace.save(path)
    with pytest.raises(TraceError, match=f"seq {seq} has finished, but still holds blocks"):
        check_trace(path)


def test_reading_leaves_no_file_open(path, tmp_path):
    scripted_trace().save(path)
    scripted_trace().save(tmp_path / "run.jsonl.gz")
    for name in (path, tmp_path / "run.jsonl.gz"):
        reader = TraceReader(name)
        file = reader._file
        reader.close()
        assert file.closed
    if sys.platform == "linux":
        before = len(os.listdir("/proc/self/fd"))
        for name in (path, tmp_path / "run.jsonl.gz"):
            Trace.load(name)
            name.write_bytes(name.read_bytes()[:50])
            refused(name)
        assert len(os.listdir("/proc/self/fd")) == before
