"""Beam search on paged memory finds what transformers' `generate(num_beams=4)` finds.

Random models in fp32, pairs of circumstances; memory is checked after every step.
"""

from __future__ import annotations

import pytest
from all_pairs import all_pairs
from random_models import EOS_IDS, NUM_BEAMS, Variant, random_prompt
from scenario import (
    FORBIDDEN,
    MAX_TOKENS,
    MODE_FACTORS,
    SHAPE_FACTORS,
    VARIANT_FACTORS,
    Scenario,
    name_of,
)
from watched_engine import WatchedLLM

from minipaged import BeamSearchParams, SamplingParams

ROWS = all_pairs(
    {
        **VARIANT_FACTORS,
        "ends": [False, True],
        **SHAPE_FACTORS,
        **MODE_FACTORS,
        "length_penalty": [0.0, 1.0, 2.0],
    },
    FORBIDDEN,
)


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_beams_equal_those_of_transformers(row, random_model, ties) -> None:
    model = random_model(Variant(**{name: row[name] for name in [*VARIANT_FACTORS, "ends"]}))
    scenario = Scenario(**{name: row[name] for name in [*SHAPE_FACTORS, *MODE_FACTORS]})
    penalty = row["length_penalty"]
    params = BeamSearchParams(beam_width=NUM_BEAMS, max_tokens=MAX_TOKENS, length_penalty=penalty)
    answers = [model.beams(prompt, MAX_TOKENS, penalty) for prompt in scenario.prompts]
    for outputs in scenario.runs(model, lambda index: params):
        for output, answer in zip(outputs, answers, strict=True):
            ties.check_beams(output.sequences, answer)


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
@pytest.mark.parametrize("seed", range(4))
def test_long_searches_end_where_those_of_transformers_end(
    seed, preemption, random_model, ties
) -> None:
    model = random_model(Variant("Qwen3", ends=True))
    prompts = [random_prompt(length, seed) for length in (2, 5, 9, 12, 20, 3)]
    params = BeamSearchParams(beam_width=NUM_BEAMS, max_tokens=40)
    watched = WatchedLLM(
        model.folder,
        block_size=4,
        num_blocks=56,
        preemption=preemption,
        num_swap_blocks=40 if preemption == "swap" else 0,
    )
    outputs = watched.run([(prompt, params) for prompt in prompts])
    assert watched.num_preempted
    for output in outputs:
        ties.check_beams(output.sequences, model.beams(output.prompt_token_ids, 40, 1.0))
        for beam in output.sequences:
            assert beam.finish_reason == ("stop" if beam.token_ids[-1] in EOS_IDS else "length")
            score = beam.cumulative_logprob / len(beam.token_ids)
            assert beam.score == pytest.approx(score)


def test_beams_and_samples_side_by_side(random_model, ties) -> None:
    model = random_model(Variant("Llama", ends=True))
    beams = BeamSearchParams(beam_width=NUM_BEAMS, max_tokens=MAX_TOKENS)
    greedy = SamplingParams(n=2, temperature=0, max_tokens=MAX_TOKENS)
    drawn = SamplingParams(n=2, temperature=1.0, max_tokens=3)
    prompts = [random_prompt(length, seed=8) for length in (4, 11, 7, 4, 18)]
    watched = WatchedLLM(model.folder, block_size=4, num_blocks=32, max_num_seqs=9)
    outputs = watched.run(list(zip(prompts, [beams, greedy, drawn, greedy, beams], strict=True)))
    for index in (0, 4):
        answer = model.beams(prompts[index], MAX_TOKENS, 1.0)
        ties.check_beams(outputs[index].sequences, answer)
    for index in (1, 3):
        for one in outputs[index].outputs:
            ties.check_equal(one.token_ids, model.greedy(prompts[index], MAX_TOKENS))


def test_beams_that_may_not_end(random_model) -> None:
    ends, endless = random_model(Variant(ends=True)), random_model(Variant(ends=False))
    prompt = random_prompt(6)
    params = BeamSearchParams(beam_width=NUM_BEAMS, max_tokens=12, ignore_eos=True)
    watched = WatchedLLM(ends.folder, block_size=4, num_blocks=64)
    (output,) = watched.run([(prompt, params)])
    answers = endless.beams(prompt, 12, 1.0)  # the same weights, but no token is EOS
    assert [beam.token_ids for beam in output.sequences] == [a.token_ids for a in answers]
