"""Why sequences end. The text functions are compared with twins that look at every character.

Bugs that were planted here and caught: looking for stop strings in the new piece alone; cutting at
the first string of the list instead of the first that is complete; holding back one character too
few; counting `min_tokens` one token short.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.engine.sampling_params import SamplingParams
from minipaged.engine.stopping import (
    banned_tokens,
    find_stop_string,
    finish_reason,
    safe_length,
    stop_tokens,
)

EOS = (2, 3)


def reason(output: list[int], **kwargs):
    return finish_reason(SamplingParams(**kwargs), EOS, output)


@pytest.mark.parametrize(
    ("output", "kwargs", "expected"),
    [
        ([8], {}, None),
        ([8, 2], {}, "stop"),
        ([8, 3], {}, "stop"),
        ([2, 8], {}, None),
        ([8, 2], {"ignore_eos": True}, None),
        ([8, 7], {"stop_token_ids": [7]}, "stop"),
        ([8, 7], {"stop_token_ids": [7], "ignore_eos": True}, "stop"),
        ([8, 9], {"max_tokens": 2}, "length"),
        ([8, 9], {"max_tokens": 3}, None),
        ([8, 2], {"max_tokens": 2}, "stop"),
        ([8, 2], {"max_tokens": 2, "ignore_eos": True}, "length"),
        ([8, 2], {"min_tokens": 2}, None),
        ([8, 7], {"min_tokens": 2, "stop_token_ids": [7]}, None),
        ([8, 9, 2], {"min_tokens": 2}, "stop"),
        ([8, 9, 2], {"min_tokens": 3, "max_tokens": 3}, "length"),
    ],
)
def test_finish_reason(output, kwargs, expected):
    assert reason(output, **kwargs) == expected


def test_stop_tokens_are_banned_exactly_where_they_would_not_stop():
    params = SamplingParams(min_tokens=3, stop_token_ids=[7])
    for count in range(6):
        banned = banned_tokens(params, EOS, count)
        output = [8] * count
        for token in (2, 3, 7):
            assert (token in banned) == (finish_reason(params, EOS, [*output, token]) is None)
    assert banned_tokens(params, EOS, 0) == (2, 3, 7)


def test_ignored_eos_is_not_banned():
    params = SamplingParams(min_tokens=3, stop_token_ids=[7], ignore_eos=True)
    assert banned_tokens(params, EOS, 0) == (7,)
    assert stop_tokens(SamplingParams(ignore_eos=True), EOS) == frozenset()


def test_a_stop_string_may_span_tokens():
    assert find_stop_string("the end", start=6, stop=["end"]) == 4
    assert find_stop_string("the end", start=4, stop=["end"]) == 4
    assert find_stop_string("the end", start=7, stop=["end"]) is None
    assert find_stop_string("the end", start=0, stop=[]) is None


def test_the_stop_string_that_is_complete_first_counts():
    assert find_stop_string("xabcd", start=0, stop=["abcd", "bc"]) == 2
    assert find_stop_string("xabcd", start=0, stop=["bcd", "abcd"]) == 1
    assert find_stop_string("aXbY", start=0, stop=["Y", "X"]) == 1


def twin_cut(text: str, start: int, stop: list[str]) -> int | None:
    for end in range(start + 1, len(text) + 1):
        cuts = [end - len(string) for string in stop if text[:end].endswith(string)]
        if cuts:
            return min(cuts)
    return None


texts = st.text("ab.", max_size=14)
stops = st.lists(st.text("ab.", min_size=1, max_size=5), max_size=3)


@given(texts, st.integers(0, 14), stops)
def test_find_stop_string_equals_its_twin(text, start, stop):
    start = min(start, len(text))
    assert find_stop_string(text, start, stop) == twin_cut(text, start, stop)


@given(texts, stops)
def test_safe_length_is_all_that_no_continuation_can_make_part_of_a_stop_string(text, stop):
    held = [i for i in range(len(text)) if any(s.startswith(text[i:]) for s in stop)]
    partial = [i for i in held if any(len(s) > len(text) - i for s in stop)]
    length = safe_length(text, stop)
    assert min(held, default=len(text)) <= length <= min(partial, default=len(text))


@given(st.lists(st.text("ab.", max_size=4), max_size=8), stops, st.integers(0, 4))
def test_a_stream_shows_the_cut_text_however_it_comes_in_pieces(pieces, stop, min_tokens):
    """The loop that an engine runs: it shows no part of a stop string and takes nothing back."""
    text, shown, cut = "", "", None
    for number, piece in enumerate(pieces, start=1):
        start = len(text)
        text += piece
        if number > min_tokens:
            cut = find_stop_string(text, start, stop)
        if cut is not None:
            break
        safe = text[: safe_length(text, stop)]
        assert safe.startswith(shown)
        shown = safe
    unstopped = len("".join(pieces[:min_tokens]))
    whole = "".join(pieces)
    expected = twin_cut(whole, unstopped, stop) if len(pieces) > min_tokens else None
    assert text[:cut].startswith(shown)
    assert text[:cut] == whole[:expected]


def test_long_texts_cost_no_more_than_their_tail():
    """A megabyte, looked at ten thousand times, would take minutes if each look scanned it all."""
    import time

    text = "a" * 1_000_000
    began = time.process_time()
    for _ in range(10_000):
        assert find_stop_string(text, len(text) - 3, ["aab", "b"]) is None
        assert safe_length(text, ["b" * 10]) == len(text)
    assert time.process_time() - began < 2.0
