"""Workloads: as many, as long and as often as asked for, and the same for the same seed."""

from __future__ import annotations

from itertools import islice, pairwise
from statistics import mean

import pytest

from minipaged.errors import ConfigError
from minipaged.lab.workloads import (
    ALPACA,
    MAX_TEXT,
    SHAREGPT,
    LabRequest,
    LengthStatistics,
    arrivals,
    at_rate,
    chat,
    lengths,
    requests,
    text,
    with_beams,
    with_system_prompt,
)

TREE = ((0, 0, 0), (0, 0, 1), (2, 1, 0))


@pytest.mark.parametrize("statistics", [SHAREGPT, ALPACA])
def test_lengths_have_the_means_that_were_asked_for(statistics: LengthStatistics) -> None:
    drawn = list(lengths(statistics, 20_000, max_len=100_000))
    assert mean(prompt for prompt, _ in drawn) == pytest.approx(statistics.mean_prompt, rel=0.03)
    assert mean(new for _, new in drawn) == pytest.approx(statistics.mean_new, rel=0.03)


def test_a_text_never_outgrows_the_model() -> None:
    drawn = list(lengths(SHAREGPT, 5_000, max_len=256))
    assert all(prompt >= 1 and new >= 1 for prompt, new in drawn)
    assert max(prompt + new for prompt, new in drawn) == 256


def test_poisson_arrivals_come_at_their_rate_and_never_go_back() -> None:
    times = list(islice(arrivals(rate=4.0), 20_000))
    gaps = [later - earlier for earlier, later in pairwise([0.0, *times])]
    assert min(gaps) >= 0
    assert mean(gaps) == pytest.approx(0.25, rel=0.03)
    assert mean((gap - 0.25) ** 2 for gap in gaps) == pytest.approx(0.25**2, rel=0.1)


def test_without_a_rate_everybody_waits_from_the_beginning() -> None:
    assert {request.arrival for request in requests(lengths(ALPACA, 9))} == {0.0}


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_is_a_positive_number(rate: float) -> None:
    with pytest.raises(ConfigError, match="rate"):
        next(arrivals(rate))


def test_the_same_seed_draws_the_same_requests_and_another_one_others() -> None:
    def drawn(seed: int) -> list[LabRequest]:
        return [
            *requests(lengths(SHAREGPT, 50, seed=seed), rate=2.0, seed=seed),
            *chat(5, 3, seed=seed),
        ]

    assert drawn(0) == drawn(0)
    assert drawn(0) != drawn(1)


def test_the_draws_are_these_on_every_machine() -> None:
    drawn = list(requests(lengths(SHAREGPT, 2), rate=1.0))
    assert [(r.num_prompt_tokens, r.num_new_tokens) for r in drawn] == [(42, 195), (67, 337)]
    assert [round(r.arrival, 6) for r in drawn] == [1.989676, 2.626168]


def test_other_arrival_times_leave_the_rest_as_it_was() -> None:
    before = list(requests(lengths(ALPACA, 9), width=2))
    after = list(at_rate(before, rate=3.0))
    assert [(r.num_prompt_tokens, r.num_new_tokens, r.width) for r in after] == [
        (r.num_prompt_tokens, r.num_new_tokens, r.width) for r in before
    ]
    assert after[-1].arrival > 0


def test_a_system_prompt_is_shared_and_the_rest_is_not() -> None:
    first, second = with_system_prompt(requests([(5, 1), (7, 1)]), num_tokens=10)
    assert (first.num_prompt_tokens, second.num_prompt_tokens) == (15, 17)
    assert first.token_ids is not None
    assert second.token_ids is not None
    assert first.token_ids[:10] == second.token_ids[:10]
    assert not set(first.token_ids[10:]) & set(second.token_ids[10:])


def test_a_turn_of_a_chat_begins_with_all_that_was_said_before() -> None:
    turns = list(chat(4, 5, statistics=LengthStatistics(9, 9), max_len=400))
    assert [turn.arrival for turn in turns] == sorted(turn.arrival for turn in turns)
    said: dict[int, LabRequest] = {}
    for turn in turns:
        assert turn.token_ids is not None
        person = turn.token_ids[0]
        if person in said:
            before = said[person]
            assert before.token_ids is not None
            whole = len(before.token_ids)
            assert whole == before.num_prompt_tokens + before.num_new_tokens
            assert turn.num_prompt_tokens > whole
            assert turn.token_ids[:whole] == before.token_ids
        said[person] = turn
    assert len(said) == 4


def test_a_chat_ends_before_it_outgrows_the_model() -> None:
    turns = list(chat(20, 50, statistics=LengthStatistics(30, 30), max_len=300))
    assert max(turn.num_prompt_tokens + turn.num_new_tokens for turn in turns) <= 300
    assert len(turns) < 20 * 50


def test_beams_follow_a_recorded_search_as_far_as_it_went() -> None:
    long, short = with_beams(requests([(5, 9), (5, 2)]), [TREE])
    assert (long.width, long.num_new_tokens, long.beam_parents) == (3, 3, TREE)
    assert (short.num_new_tokens, short.beam_parents) == (2, TREE[:2])


def test_made_up_tokens_are_nobody_elses() -> None:
    owners = [text(owner, MAX_TEXT) for owner in (-2, -1, 0, 1)]
    for one, other in pairwise(owners):
        assert one[-1] < other[0]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ((-1.0, 1, 1), "arrival"),
        ((float("nan"), 1, 1), "arrival"),
        ((float("inf"), 1, 1), "arrival"),
        ((0.0, 0, 1), "at least 1, not 0, 1 and 1"),
        ((0.0, 1, 0), "at least 1, not 1, 0 and 1"),
        ((0.0, 1, 1, 0), "at least 1, not 1, 1 and 0"),
        ((0.0, MAX_TEXT, 1), str(MAX_TEXT)),
        ((0.0, 1, 4, 3, None, TREE), "beams for 3 tokens, 4"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(fields: tuple, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        LabRequest(*fields)
