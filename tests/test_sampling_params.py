from __future__ import annotations

import copy
import dataclasses
import math
import pickle
from typing import Any

import numpy as np
import pytest

from minipaged.engine.sampling_params import BeamSearchParams, SamplingParams
from minipaged.errors import ConfigError, MinipagedError


def test_defaults_are_the_documented_ones():
    assert dataclasses.asdict(SamplingParams()) == {
        "n": 1,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "seed": None,
        "stop": (),
        "stop_token_ids": (),
        "ignore_eos": False,
        "max_tokens": 16,
        "min_tokens": 0,
        "logprobs": None,
    }


def test_values_are_normalised():
    params = SamplingParams(
        temperature=1, top_k=-1, stop="###", stop_token_ids=[7, np.int64(8)], n=np.int32(2)
    )
    assert params.temperature == 1.0
    assert isinstance(params.temperature, float)
    assert params.top_k == 0
    assert params.stop == ("###",)
    assert params.stop_token_ids == (7, 8)
    assert [type(i) for i in (params.n, *params.stop_token_ids)] == [int, int, int]
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")
    assert SamplingParams(stop=["a"]) == SamplingParams(stop="a")


def test_params_are_values():
    params = SamplingParams(stop=["a"], seed=3)
    assert hash(params) == hash(SamplingParams(stop="a", seed=3))
    assert copy.deepcopy(params) == params
    assert pickle.loads(pickle.dumps(params)) == params
    assert dataclasses.replace(params, max_tokens=5).max_tokens == 5
    with pytest.raises(dataclasses.FrozenInstanceError):
        params.n = 2  # type: ignore[misc]
    with pytest.raises(ConfigError):
        dataclasses.replace(params, max_tokens=0)


def test_a_list_given_is_not_shared():
    words = ["a"]
    params = SamplingParams(stop=words)
    words.append("b")
    assert params.stop == ("a",)


NOT_A_COUNT = [0, -1, 1.0, True, None, "2", math.nan]
NOT_A_NUMBER = [math.nan, math.inf, -math.inf, True, None, "1", 1j]

BAD: list[tuple[str, Any]] = [
    *(("n", value) for value in NOT_A_COUNT),
    *(("max_tokens", value) for value in NOT_A_COUNT),
    *(("temperature", value) for value in [-0.1, *NOT_A_NUMBER]),
    *(("top_p", value) for value in [0, -0.5, 1.0001, *NOT_A_NUMBER]),
    *(("min_p", value) for value in [-0.1, 1.1, *NOT_A_NUMBER]),
    *(("top_k", value) for value in [-2, 1.0, None, False]),
    *(("seed", value) for value in [-1, 2**64, 0.5, True, "7"]),
    *(("stop", value) for value in ["", [""], [1], 5, b"x", ["a", None]]),
    *(("stop_token_ids", value) for value in [5, "5", [-1], [1.5], [True], [None]]),
    *(("ignore_eos", value) for value in [1, None, "yes"]),
    *(("min_tokens", value) for value in [-1, 17, 1.0, None]),
    *(("logprobs", value) for value in [-1, 2.0, True, "all"]),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_bad_value_is_refused_with_name_and_value(name, value):
    with pytest.raises(ConfigError, match=name) as error:
        SamplingParams(**{name: value})
    message = str(error.value)
    assert isinstance(error.value, MinipagedError)
    assert "\n" not in message
    culprit = value if not isinstance(value, list) or name == "stop" else value[-1]
    assert repr(culprit) in message


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("top_p", 0, "above 0 and at most 1"),
        ("min_p", 2, "of at least 0 and at most 1"),
        ("temperature", -1, "of at least 0,"),
        ("min_tokens", 20, "from 0 to 16"),
        ("n", 0, "of at least 1"),
    ],
)
def test_the_error_gives_the_allowed_range(name, value, allowed):
    with pytest.raises(ConfigError, match=allowed):
        SamplingParams(**{name: value})


@pytest.mark.parametrize(
    "name",
    ["presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "bad_words"],
)
def test_an_argument_of_vllm_that_does_not_exist_names_ours(name):
    with pytest.raises(ConfigError) as error:
        SamplingParams(**{name: 1})
    message = str(error.value)
    assert message.startswith(f"SamplingParams has no argument '{name}'")
    for field in dataclasses.fields(SamplingParams):
        assert field.name in message


def test_a_near_equivalent_is_pointed_out():
    with pytest.raises(ConfigError, match="'best_of'; use n"):
        SamplingParams(best_of=4)
    with pytest.raises(ConfigError, match="use max_tokens"):
        SamplingParams(max_new_tokens=4)
    with pytest.raises(ConfigError, match="BeamSearchParams has no argument 'temperature'"):
        BeamSearchParams(beam_width=2, max_tokens=3, temperature=0.0)


def test_greedy():
    assert SamplingParams(temperature=0).greedy
    assert not SamplingParams(temperature=1e-6).greedy


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("beam_width", value) for value in NOT_A_COUNT),
        *(("max_tokens", value) for value in NOT_A_COUNT),
        *(("length_penalty", value) for value in [11, -11, *NOT_A_NUMBER]),
        ("ignore_eos", 0),
    ],
)
def test_bad_beam_search_values_are_refused(name, value):
    with pytest.raises(ConfigError, match=name):
        BeamSearchParams(**{"beam_width": 4, "max_tokens": 8, name: value})


def test_beam_search_params():
    params = BeamSearchParams(beam_width=4, max_tokens=8)
    assert (params.length_penalty, params.ignore_eos) == (1.0, False)
    assert dataclasses.replace(params, max_tokens=3).max_tokens == 3
