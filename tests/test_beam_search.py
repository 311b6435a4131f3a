"""Beam search against transformers' `generate` on small random models, and its rules one by one.

Bugs that were planted here and caught: too few candidates for several kinds of EOS; an end beyond
the first `beam_width` candidates that is kept; the length without EOS; comparing with the best
finished sequence instead of the worst; stopping as soon as `beam_width` sequences have ended.
"""

from __future__ import annotations

import math

import pytest
import torch

from minipaged.engine.beam_search import BeamSearch, BeamSequence
from minipaged.engine.sampling_params import BeamSearchParams
from minipaged.errors import ModelError

VOCAB_SIZE = 24
PROMPT = [5, 17, 3, 11]


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def random_model(seed: int):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=128,
        initializer_range=0.2,
        eos_token_id=None,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config).float().eval()


@torch.inference_mode()
def search_with(model, params: BeamSearchParams, eos_token_ids) -> list[BeamSequence]:
    """Beam search without a cache: the sequences are copied, and computed anew at every step."""
    search = BeamSearch(params, eos_token_ids)
    sequences = [list(PROMPT)]
    while not search.is_done:
        logits = model(torch.tensor(sequences)).logits[:, -1]
        extensions = search.advance(logits.log_softmax(-1))
        sequences = [[*sequences[parent], token_id] for parent, token_id in extensions]
        assert [tuple(sequence[len(PROMPT) :]) for sequence in sequences] == [
            beam.token_ids for beam in search.running
        ]
    return search.finish()


def generate_with_transformers(model, params: BeamSearchParams, eos_token_ids):
    """Give the generated tokens up to EOS and the score of each sequence, best first."""
    output = model.generate(
        torch.tensor([PROMPT]),
        attention_mask=torch.ones(1, len(PROMPT), dtype=torch.long),
        num_beams=params.beam_width,
        num_return_sequences=params.beam_width,
        do_sample=False,
        early_stopping=False,
        length_penalty=params.length_penalty,
        max_new_tokens=params.max_tokens,
        eos_token_id=list(eos_token_ids) or None,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_scores=True,
    )
    sequences = []
    for row in output.sequences[:, len(PROMPT) :].tolist():
        ends = [i for i, token_id in enumerate(row) if token_id in eos_token_ids]
        sequences.append(tuple(row[: ends[0] + 1] if ends else row))
    return sequences, output.sequences_scores.tolist()


def assert_equal_to_transformers(model, params: BeamSearchParams, eos_token_ids):
    ours = search_with(model, params, eos_token_ids)
    sequences, scores = generate_with_transformers(model, params, eos_token_ids)
    assert [sequence.token_ids for sequence in ours] == sequences
    assert [sequence.score for sequence in ours] == pytest.approx(scores, abs=1e-4)
    return ours


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("beam_width", [2, 3, 4])
def test_equals_transformers(seed, beam_width):
    model = random_model(seed)
    for length_penalty in (1.0, 0.0, -0.7, 2.0):
        for eos_token_ids in ((), (7,), (1, 7, 9, 20)):
            params = BeamSearchParams(
                beam_width=beam_width, max_tokens=12, length_penalty=length_penalty
            )
            assert_equal_to_transformers(model, params, eos_token_ids)


@pytest.mark.parametrize("max_tokens", [1, 2, 40])
def test_equals_transformers_at_any_length(max_tokens):
    reasons = set()
    for seed in range(3):
        for eos_token_ids in ((3,), (3, 4, 5, 6, 7, 8)):
            params = BeamSearchParams(beam_width=4, max_tokens=max_tokens)
            found = assert_equal_to_transformers(random_model(seed), params, eos_token_ids)
            reasons |= {sequence.finish_reason for sequence in found}
    assert "stop" in reasons
    assert max_tokens == 40 or "length" in reasons


# ---- The rules, with hand-made probabilities


def logprobs(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows).log()


def new_search(beam_width: int = 2, max_tokens: int = 8, eos=(0,), **kwargs) -> BeamSearch:
    params = BeamSearchParams(beam_width=beam_width, max_tokens=max_tokens, **kwargs)
    return BeamSearch(params, eos)


def test_a_beam_can_be_continued_twice_and_another_dropped():
    search = new_search()
    assert search.advance(logprobs([0.0, 0.6, 0.4])) == [(0, 1), (0, 2)]
    assert search.advance(logprobs([0.0, 0.1, 0.9], [0.1, 0.5, 0.4])) == [(0, 2), (1, 1)]
    assert search.advance(logprobs([0.0, 0.5, 0.5], [0.9, 0.1, 0.0])) == [(0, 1), (0, 2)]
    assert [beam.token_ids for beam in search.running] == [(1, 2, 1), (1, 2, 2)]
    assert search.running[0].cumulative_logprob == pytest.approx(math.log(0.6 * 0.9 * 0.5))
    assert search.finished == []  # (2, 1, 0) was the third best candidate


def test_scores_are_normalised_by_the_generated_length_with_eos():
    search = new_search(length_penalty=2.0)
    search.advance(logprobs([0.0, 0.6, 0.4]))
    search.advance(logprobs([0.9, 0.1, 0.0], [0.0, 0.5, 0.5]))
    (sequence,) = search.finished
    assert (sequence.token_ids, sequence.finish_reason) == ((1, 0), "stop")
    assert sequence.cumulative_logprob == pytest.approx(math.log(0.6 * 0.9))
    assert sequence.score == pytest.approx(math.log(0.6 * 0.9) / 2**2)


def test_ignored_eos_is_a_token_like_others():
    search = new_search(ignore_eos=True, max_tokens=2)
    assert search.advance(logprobs([0.8, 0.1, 0.1])) == [(0, 0), (0, 1)]
    search.advance(logprobs([0.8, 0.1, 0.1], [0.4, 0.3, 0.3]))
    found = [(sequence.token_ids, sequence.finish_reason) for sequence in search.finish()]
    assert found == [((0, 0), "length"), ((0, 1), "length")]


def test_equal_candidates_are_taken_in_order_of_parent_and_token():
    search = new_search(beam_width=3, eos=())
    assert search.advance(torch.full((1, 50), -math.log(50))) == [(0, 0), (0, 1), (0, 2)]
    assert search.advance(torch.full((3, 50), -math.log(50))) == [(0, 0), (0, 1), (0, 2)]


def test_running_beams_are_dropped_when_the_search_is_done():
    search = new_search(beam_width=1)
    search.advance(logprobs([0.0, 0.6, 0.4]))
    assert search.advance(logprobs([0.9, 0.05, 0.05])) == []
    assert search.is_done
    assert search.running == []
    assert [sequence.token_ids for sequence in search.finish()] == [(1, 0)]


def test_a_search_that_is_not_done_gives_what_it_has():
    search = new_search()
    assert [sequence.token_ids for sequence in search.finish()] == [()]
    assert search.advance(logprobs([0.3, 0.5, 0.2])) == [(0, 1), (0, 2)]
    found = search.finish()
    assert [(sequence.token_ids, sequence.finish_reason) for sequence in found] == [
        ((1,), "abort"),
        ((0,), "stop"),
    ]
    assert found == search.finish()
    assert len(search.running) == 2


def test_impossible_tokens_never_come():
    search = new_search(beam_width=3, max_tokens=2, eos=())
    assert search.advance(logprobs([0.0, 1.0, 0.0])) == [(0, 1)]
    search.advance(logprobs([0.5, 0.0, 0.5]))
    assert [sequence.token_ids for sequence in search.finish()] == [(1, 0), (1, 2)]


def test_a_vocabulary_of_eos_alone_ends_the_search():
    search = new_search(eos=(0, 1))
    assert search.advance(logprobs([0.5, 0.5])) == []
    assert search.is_done


def test_nan_is_an_error_that_changes_nothing():
    search = new_search()
    search.advance(logprobs([0.2, 0.5, 0.3]))
    before = (list(search.running), list(search.finished))
    with pytest.raises(ModelError, match="NaN or infinite logits for token 1"):
        search.advance(torch.tensor([[0.0, math.nan, 0.0]] * 2))
    assert (search.running, search.finished) == before
