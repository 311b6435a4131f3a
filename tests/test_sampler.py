"""The sampler against slow, obvious twins, and its draws against statistics.

Bugs that were planted here and caught: bans that reach the reported log-probabilities; top_p that
drops the token which crosses the limit; top_k that keeps all of several equal tokens; a draw that
can stop at a probability of 0; the number drawn for a row's place in the batch instead of its seed;
a filter that sees the logits before the previous one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged.engine.sampler import SampledToken, SamplingRow, sample
from minipaged.engine.sampling_params import SamplingParams
from minipaged.engine.uniform import hash64, uniform
from minipaged.errors import ModelError

GREEDY = SamplingParams(temperature=0)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def row(seed: int = 0, position: int = 0, banned: tuple[int, ...] = (), **params: Any):
    return SamplingRow(SamplingParams(**params), seed, position, banned)


def random_logits(rows: int, vocab_size: int, seed: int = 0, std: float = 3.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, vocab_size, generator=generator) * std


def allowed_probs(logits: list[float], params: SamplingParams) -> list[float]:
    """The twin: temperature, min_p, top_k, top_p one after the other, in plain Python."""
    best = max(logits)
    weights = [math.exp((x - best) / params.temperature) for x in logits]
    ids = [i for i, weight in enumerate(weights) if weight >= params.min_p]
    ids.sort(key=lambda i: -weights[i])  # stable: of equal ones the lowest id first
    ids = ids[: params.top_k or None]
    total, mass, kept = sum(weights[i] for i in ids), 0.0, []
    for i in ids:
        if mass < params.top_p * total:
            kept.append(i)
        mass += weights[i]
    total = sum(weights[i] for i in kept)
    return [weight / total if i in kept else 0.0 for i, weight in enumerate(weights)]


# ---- The random numbers


def test_hash64_is_splitmix64():
    """The generator's well-known first outputs from state 0, which scrambling leaves at 0."""
    assert [hash64(0, i) for i in range(3)] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]
    assert hash64(2**64 + 5, 9) == hash64(5, 9)


def test_no_seed_continues_where_another_began():
    """Unscrambled, a seed one step further would give the same numbers one position earlier."""
    step = 0x9E3779B97F4A7C15
    assert hash64(step, 0) != hash64(0, 1)
    assert len({hash64(seed, position) for seed in range(100) for position in range(100)}) == 10_000


def chi_square(counts: np.ndarray) -> float:
    """How many standard deviations the chi-square statistic of equal bins lies above its mean."""
    expected = counts.sum() / counts.size
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return (statistic - (counts.size - 1)) / math.sqrt(2 * (counts.size - 1))


SERIES = {
    "positions of one seed": lambda i: (12345, i),
    "seeds at one position": lambda i: (i, 3),
    "samples in step": lambda i: (i % 8, i // 8),
    "distant seeds": lambda i: (i << 40, 0),
    "seed and position together": lambda i: (i, i),
}


@pytest.mark.parametrize("name", SERIES)
def test_uniform_is_uniform_and_independent_of_its_neighbours(name):
    numbers = np.array([uniform(*SERIES[name](i)) for i in range(60_000)])
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert chi_square(np.histogram(numbers, bins=200, range=(0, 1))[0]) < 4.5
    for lag in (1, 2, 8):
        pairs = np.histogram2d(numbers[:-lag], numbers[lag:], bins=16, range=((0, 1), (0, 1)))[0]
        assert chi_square(pairs) < 4.5
        assert abs(np.corrcoef(numbers[:-lag], numbers[lag:])[0, 1]) < 4.5 / math.sqrt(60_000)


def test_each_input_bit_flips_half_of_the_output_bits():
    for bit in range(64):
        flips = [
            bin(hash64(s, p) ^ hash64(s ^ (1 << bit), p)).count("1")
            for s in range(10)
            for p in range(10)
        ]
        assert abs(sum(flips) / len(flips) - 32) < 4.5 * 4 / math.sqrt(len(flips))


# ---- Greedy


def test_greedy_takes_the_best_token_and_reports_its_logprob():
    logits = random_logits(5, 101)
    tokens = sample(logits, [SamplingRow(GREEDY, 0, 0)] * 5)
    assert [token.token_id for token in tokens] == logits.argmax(-1).tolist()
    expected = torch.log_softmax(logits.double(), -1).amax(-1)
    assert torch.allclose(torch.tensor([t.logprob for t in tokens]).double(), expected, atol=1e-5)
    assert isinstance(tokens[0].token_id, int)
    assert tokens[0].top_logprobs is None


def test_equal_logits_give_the_lowest_id():
    logits = torch.zeros(2, 1000)
    logits[1, [40, 400, 900]] = 5.0
    assert [t.token_id for t in sample(logits, [row(temperature=0)] * 2)] == [0, 40]
    assert [t.token_id for t in sample(logits, [row(top_k=1)] * 2)] == [0, 40]
    top = sample(logits, [row(temperature=0, logprobs=4)] * 2)[1].top_logprobs
    assert list(top) == [40, 400, 900, 0]


def test_no_rows():
    assert sample(torch.empty(0, 9), []) == []


def test_logits_are_left_as_they_are():
    logits = random_logits(2, 50)
    before = logits.clone()
    sample(logits, [row(banned=(3,), top_p=0.5), row(temperature=0.5, top_k=3)])
    assert torch.equal(logits, before)


# ---- Draws


FILTERS = [
    {},
    {"temperature": 0.5},
    {"temperature": 1.7},
    {"top_k": 3},
    {"top_p": 0.7},
    {"min_p": 0.2},
    {"temperature": 1.5, "min_p": 0.1, "top_k": 6, "top_p": 0.8},
]


@pytest.mark.parametrize("kwargs", FILTERS, ids=str)
def test_draws_have_the_distribution_that_the_params_ask_for(kwargs):
    logits = random_logits(1, 12, seed=1, std=1.5)
    count = 10_000
    rows = [row(seed=9, position=i, **kwargs) for i in range(count)]
    tokens = sample(logits.expand(count, -1), rows)
    counts = np.bincount([token.token_id for token in tokens], minlength=12)
    probs = np.array(allowed_probs(logits[0].tolist(), rows[0].params))
    assert counts[probs == 0].sum() == 0
    expected = probs[probs > 0] * count
    statistic = ((counts[probs > 0] - expected) ** 2 / expected).sum()
    freedom = max(1, len(expected) - 1)
    assert statistic < freedom + 5 * math.sqrt(2 * freedom)


@settings(max_examples=150, deadline=None)
@given(
    values=st.lists(st.integers(-40, 40), min_size=1, max_size=30),
    temperature=st.sampled_from([0.3, 1.0, 2.0]),
    top_k=st.integers(0, 32),
    top_p=st.sampled_from([0.05, 0.3, 0.62, 0.9, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.013, 0.21, 0.77]),
)
def test_filters_keep_exactly_the_tokens_that_the_twin_keeps(
    values, temperature, top_k, top_p, min_p
):
    """A thousand draws of the flattened survivors would be slow: look at the survivors directly."""
    from minipaged.engine import sampler

    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    numbers = [value / 7 for value in values]
    logits = (torch.tensor(numbers) - max(numbers)) / temperature
    ids = torch.arange(len(values))
    for keep in sampler._filters(params):
        kept = keep(logits)
        ids, logits = ids[kept], logits[kept]
    probs = allowed_probs(numbers, params)
    assert sorted(ids.tolist()) == [i for i, prob in enumerate(probs) if prob > 0]


def test_top_p_of_a_large_vocabulary_keeps_what_a_full_sort_keeps():
    from minipaged.engine.sampler import _top_p

    for std, p in [(0.1, 0.5), (1.0, 0.9), (4.0, 0.99), (8.0, 0.3), (4.0, 0.9999)]:
        logits = random_logits(1, 20_011, std=std)[0]
        probs, order = torch.sort(logits.softmax(-1), descending=True, stable=True)
        expected = order[(probs.cumsum(-1) - probs) < p]
        assert _top_p(logits, p).tolist() == expected.tolist()


def test_the_number_drawn_walks_through_the_ids_in_order():
    from minipaged.engine.sampler import _inverse_cdf

    probs = torch.tensor([0.0, 0.125, 0.0, 0.5, 0.375, 0.0])
    draws = [_inverse_cdf(probs, i / 800) for i in range(800)]
    assert [draws.count(i) for i in range(6)] == [0, 100, 0, 400, 300, 0]
    assert draws == sorted(draws)
    assert _inverse_cdf(probs, 1 - 2**-53) == 4


@pytest.mark.parametrize(("vocab_size", "threads"), [(7, 1), (49_152, 1), (50_257, 2)])
def test_a_rows_result_does_not_depend_on_other_rows(vocab_size, threads):
    torch.set_num_threads(threads)
    kinds = [{"temperature": 0}, {}, {"top_k": 5}, {"top_p": 0.9}, {"min_p": 0.1, "logprobs": 3}]
    rows = [row(seed=i, position=3 * i, **kinds[i % 5]) for i in range(15)]
    rows[4] = replace(rows[4], banned=(0, 5))
    logits = random_logits(15, vocab_size)
    together = sample(logits, rows)
    for size in (1, 2, 7):
        for start in range(0, 15, size):
            part = slice(start, start + size)
            assert sample(logits[part].clone(), rows[part]) == together[part]
    assert sample(logits.flip(0), rows[::-1]) == together[::-1]


def test_seed_and_position_decide_the_draw():
    logits = random_logits(1, 1000, std=0.1).expand(4, -1)
    a, b, c, d = sample(logits, [row(1, 0), row(1, 0), row(1, 1), row(2, 0)])
    assert a == b
    assert len({a.token_id, c.token_id, d.token_id}) == 3


@pytest.mark.parametrize("temperature", [1e-300, 1e-40, 1e-6, 1e6, 1e300])
def test_extreme_temperatures(temperature):
    logits = random_logits(1, 50, std=1000.0).expand(200, -1).clone()
    logits[:, 7] = -math.inf
    rows = [row(position=i, temperature=temperature) for i in range(200)]
    drawn = {token.token_id for token in sample(logits, rows)}
    if temperature < 1:
        assert drawn == {int(logits[0].argmax())}
    else:
        assert len(drawn) > 30
        assert 7 not in drawn


@pytest.mark.parametrize("temperature", [1e-300, 1e-6, 1.0])
def test_extreme_logits(temperature):
    logits = random_logits(20, 50, std=1e37)
    tokens = sample(logits, [row(temperature=temperature, top_p=0.9)] * 20)
    assert [token.token_id for token in tokens] == logits.argmax(-1).tolist()


def test_top_k_of_one_and_tiny_top_p_are_greedy():
    logits = random_logits(20, 300)
    best = logits.argmax(-1).tolist()
    for kwargs in ({"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}):
        rows = [row(position=i, **kwargs) for i in range(20)]
        assert [token.token_id for token in sample(logits, rows)] == best


def test_a_top_k_beyond_the_vocabulary_is_no_filter():
    logits = random_logits(1, 10, std=0.1).expand(500, -1)
    tokens = sample(logits, [row(position=i, top_k=99) for i in range(500)])
    assert {token.token_id for token in tokens} == set(range(10))


@pytest.mark.parametrize("kwargs", [*FILTERS, {"temperature": 0}, {"top_k": 8}], ids=str)
def test_a_logit_of_minus_infinity_never_comes(kwargs):
    logits = torch.full((300, 9), -math.inf)
    logits[:, [2, 5]] = torch.tensor([0.0, 0.3])
    tokens = sample(logits, [row(position=i, **kwargs) for i in range(300)])
    assert {token.token_id for token in tokens} <= {2, 5}
    assert all(math.isfinite(token.logprob) for token in tokens)


# ---- Bans, log-probabilities, errors


@pytest.mark.parametrize("kwargs", [{"temperature": 0}, {}, {"top_k": 2}, {"top_p": 0.5}], ids=str)
def test_banned_tokens_do_not_come(kwargs):
    logits = torch.zeros(100, 6)
    logits[:, [1, 4]] = 9.0
    rows = [row(position=i, banned=(1, 4, 10_000), **kwargs) for i in range(100)]
    assert {token.token_id for token in sample(logits, rows)} <= {0, 2, 3, 5}


def test_a_ban_concerns_one_row():
    logits = torch.tensor([[0.0, 9.0], [0.0, 9.0]])
    tokens = sample(logits, [row(temperature=0, banned=(1,)), row(temperature=0)])
    assert [token.token_id for token in tokens] == [0, 1]


@pytest.mark.parametrize(
    "kwargs", [{"temperature": 0.2}, {"top_k": 2}, {"top_p": 0.3}, {"temperature": 0}], ids=str
)
def test_logprobs_are_of_the_models_own_distribution(kwargs):
    logits = random_logits(1, 40)
    best = int(logits.argmax())
    token = sample(logits, [row(seed=3, logprobs=5, banned=(best,), **kwargs)])[0]
    expected = torch.log_softmax(logits[0].double(), -1)
    assert token.token_id != best
    assert token.top_logprobs is not None
    assert list(token.top_logprobs)[:5] == expected.argsort(descending=True)[:5].tolist()
    for i, logprob in token.top_logprobs.items():
        assert logprob == pytest.approx(float(expected[i]), abs=1e-5)
    assert token.logprob == token.top_logprobs[token.token_id]


def test_top_logprobs_hold_the_chosen_token_too():
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.0]])
    banned = sample(logits, [row(temperature=0, logprobs=2, banned=(0, 1, 2))])[0]
    assert banned.token_id == 3
    assert list(banned.top_logprobs or {}) == [0, 1, 3]
    assert list(sample(logits, [row(temperature=0, logprobs=0)])[0].top_logprobs or {}) == [0]
    assert list(sample(logits, [row(temperature=0, logprobs=2)])[0].top_logprobs or {}) == [0, 1]
    assert len(sample(logits, [row(temperature=0, logprobs=99)])[0].top_logprobs or {}) == 4


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("kwargs", [{"temperature": 0}, {"top_k": 5}])
def test_unusable_logits_are_an_error_that_names_the_row(bad, kwargs):
    logits = random_logits(3, 20)
    logits[1, 13] = bad
    with pytest.raises(ModelError, match="row 1 of 3, for token 8"):
        sample(logits, [row(position=8, **kwargs)] * 3)
    with pytest.raises(ModelError, match="NaN or infinite"):
        sample(torch.full((1, 4), -math.inf), [row()])


def test_a_row_whose_tokens_are_all_banned_is_an_error():
    with pytest.raises(ModelError, match="no token that may come"):
        sample(torch.zeros(1, 2), [row(banned=(0, 1))])


def test_the_result_is_plain_python():
    token = sample(random_logits(1, 9), [row(logprobs=2)])[0]
    assert isinstance(token, SampledToken)
    assert type(token.logprob) is float
    assert all(type(k) is int and type(v) is float for k, v in (token.top_logprobs or {}).items())
