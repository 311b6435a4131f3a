"""The engine gives transformers' tokens, however a request runs: here for pairs of circumstances.

The models are random, in fp32. Each run is checked after every step: the replayed trace equals the
manager's memory, and in the end every block is free.

Bugs that were planted in the engine and caught, here or in the files beside this one: block copies
left out; block copies, or the way into the swap pool, in the wrong order; V not swapped; a window
one token too wide; positions that begin anew with each chunk; a prefix hit that leaves no token to
compute; hashes that are not chained; draws that depend on the prompt's length; samples that share a
seed; recomputation that loses the token sampled last; YaRN without its factor; llama3's frequencies
without blending; a key behind the query that is seen; a slot off by one; a bias left out; samples
that catch up by one token too many.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from all_pairs import all_pairs
from random_models import Variant, random_prompt
from scenario import (
    FORBIDDEN,
    MAX_TOKENS,
    MODE_FACTORS,
    MORE_VARIANT_FACTORS,
    SHAPE_FACTORS,
    Scenario,
    name_of,
)
from watched_engine import WatchedLLM

from minipaged import SamplingParams
from minipaged.engine.sampler import SamplingRow, sample

GREEDY_ROWS = all_pairs(
    {**MORE_VARIANT_FACTORS, "ends": [False, True], **SHAPE_FACTORS, **MODE_FACTORS, "n": [1, 4]},
    FORBIDDEN,
)
DRAW_ROWS = all_pairs(
    {"family": MORE_VARIANT_FACTORS["family"], **SHAPE_FACTORS, **MODE_FACTORS, "n": [1, 4]},
    FORBIDDEN,
)


@pytest.mark.parametrize("row", GREEDY_ROWS, ids=name_of)
def test_greedy_tokens_equal_those_of_transformers(row, random_model, ties) -> None:
    model = random_model(Variant(**{name: row[name] for name in [*MORE_VARIANT_FACTORS, "ends"]}))
    scenario = Scenario(**{name: row[name] for name in [*SHAPE_FACTORS, *MODE_FACTORS]})

    def params(index: int) -> SamplingParams:
        return SamplingParams(n=row["n"] if index == 0 else 1, temperature=0, max_tokens=MAX_TOKENS)

    answers = [model.greedy(prompt, MAX_TOKENS) for prompt in scenario.prompts]
    for outputs in scenario.runs(model, params):
        for output, answer in zip(outputs, answers, strict=True):
            for one in output.outputs:
                ties.check_equal(one.token_ids, answer)


def drawing(index: int, n: int) -> SamplingParams:
    return SamplingParams(n=n, temperature=0.8, seed=70 + 10 * index, max_tokens=MAX_TOKENS)


def tokens_of(output: Any) -> list[list[int]]:
    """The token ids of each sample or beam."""
    samples = output.outputs if hasattr(output, "outputs") else output.sequences
    return [sample.token_ids for sample in samples]


@pytest.mark.parametrize("row", DRAW_ROWS, ids=name_of)
def test_draws_are_the_same_in_all_circumstances(row, random_model) -> None:
    model = random_model(Variant(row["family"], window=row["family"] != "Llama", ends=True))
    scenario = Scenario(**{name: row[name] for name in [*SHAPE_FACTORS, *MODE_FACTORS]})
    alone = WatchedLLM(model.folder, num_blocks=200, enable_prefix_caching=False)
    expected = [
        tokens_of(alone.run([(prompt, drawing(index, n=4))])[0])
        for index, prompt in enumerate(scenario.prompts)
    ]
    for outputs in scenario.runs(
        model, lambda index: drawing(index, row["n"] if index == 0 else 1)
    ):
        for output, samples in zip(outputs, expected, strict=True):
            assert tokens_of(output) == samples[: len(output.outputs)]


@torch.inference_mode()
@pytest.mark.parametrize("family", MORE_VARIANT_FACTORS["family"])
def test_draws_are_those_from_the_logits_of_transformers(family, random_model) -> None:
    model = random_model(Variant(family, ends=True))
    params = SamplingParams(n=4, temperature=0.8, top_p=0.9, seed=3, max_tokens=24)
    prompt = random_prompt(9)
    watched = WatchedLLM(model.folder, block_size=4, num_blocks=64)
    (output,) = watched.run([(prompt, params)])
    assert {one.finish_reason for one in output.outputs} == {"stop", "length"}
    for one in output.outputs:
        text = torch.tensor([prompt + one.token_ids])
        logits = model.model(text).logits[0, len(prompt) - 1 : -1]
        rows = [SamplingRow(params, params.seed + one.index, i) for i in range(len(one.token_ids))]
        assert [token.token_id for token in sample(logits, rows)] == one.token_ids


@pytest.mark.parametrize("window", [False, True])
def test_the_readable_attention_gives_the_same_tokens(window, random_model, ties) -> None:
    model = random_model(Variant("Qwen3", window=window))
    watched = WatchedLLM(model.folder, attention="reference", block_size=4, num_blocks=64)
    prompts = [random_prompt(length) for length in (1, 4, 21)]
    params = SamplingParams(n=2, temperature=0, max_tokens=MAX_TOKENS)
    for output in watched.run([(prompt, params) for prompt in prompts]):
        for one in output.outputs:
            ties.check_equal(one.token_ids, model.greedy(output.prompt_token_ids, MAX_TOKENS))


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_a_conversation_goes_on_from_the_blocks_of_its_own_answers(
    block_size, random_model, ties
) -> None:
    model = random_model(Variant("Qwen2", rope="llama3"))
    watched = WatchedLLM(model.folder, block_size=block_size, num_blocks=256)
    params = SamplingParams(temperature=0, max_tokens=MAX_TOKENS)
    prompt = random_prompt(7)
    for turn in range(4):
        (output,) = watched.run([(prompt, params)])
        ties.check_equal(output.outputs[0].token_ids, model.greedy(prompt, MAX_TOKENS))
        assert output.num_cached_tokens == (len(prompt) - 6) // block_size * block_size * (turn > 0)
        # All that was fed is cached: the last token of the answer was not.
        prompt = prompt + output.outputs[0].token_ids + random_prompt(5, seed=turn)
