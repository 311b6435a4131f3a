"""SmolLM2 in fp32: 32 prompts of 20 to 200 tokens, 64 tokens each, equal to those of transformers.

Slow, and the one test that fetches a model (93 MB, once): `smollm2-q4`. Transformers gets the same
dequantized weights.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
import transformers
from random_models import GreedyAnswer
from ties import Ties
from watched_engine import WatchedLLM

from minipaged import SamplingParams
from minipaged.models.catalog import resolve
from minipaged.models.model_files import ModelFiles
from minipaged.models.weights import load_weights

pytestmark = pytest.mark.slow

MODEL = "smollm2-q4"
NUM_PROMPTS = 32
NUM_TOKENS = 64
GREEDY = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True)
SENTENCES = [
    "The moon is the only place beyond the Earth where people have walked.",
    "Once upon a time there was a baker who could not count to ten.",
    "Water boils at a lower temperature on a high mountain.",
    "def fibonacci(n): return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)",
    "My grandmother's recipe asks for three eggs, a cup of flour and a lot of patience.",
    "An operating system gives each process pages of memory and keeps a table of them.",
    "Die Katze schläft auf dem warmen Ofen, und draußen schneit es.",
    "Q: What is the capital of France? A: Paris. Q: And of Peru? A:",
    "In 1969, 12 + 30 = 42 people signed the letter; nobody answered it.",
    "She opened the old book, and a pressed flower fell out of it.",
]


@pytest.fixture(scope="module")
def files() -> ModelFiles:
    return resolve(MODEL, print)


@pytest.fixture(scope="module")
def model(files: ModelFiles) -> Any:
    """Transformers' model with the weights of the GGUF file, in fp32."""
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig.from_pretrained(files.folder))
    lacking = model.load_state_dict(dict(load_weights(files.weight_files)), strict=False)
    assert lacking.missing_keys == ["lm_head.weight"]  # tied to the embedding
    assert not lacking.unexpected_keys
    model.generation_config.eos_token_id = None  # all texts have their full length
    return model.float().eval()


@pytest.fixture(scope="module")
def texts() -> list[str]:
    choices = random.Random(0)
    return [" ".join(choices.choices(SENTENCES, k=1 + i * 9 // 31)) for i in range(NUM_PROMPTS)]


@pytest.fixture(scope="module")
def outputs(texts: list[str]) -> list[Any]:
    watched = WatchedLLM(MODEL, dtype="float32", num_blocks=600)
    return watched.run([(text, GREEDY) for text in texts])


def test_prompts_are_short_and_long(outputs) -> None:
    lengths = [len(output.prompt_token_ids) for output in outputs]
    assert min(lengths) <= 20
    assert 150 <= max(lengths) <= 220


@pytest.fixture(scope="module")
@torch.inference_mode()
def answers(outputs, model) -> list[GreedyAnswer]:
    """What transformers finds likeliest behind the prompt and behind each of our tokens."""
    answers = []
    for output in outputs:
        prompt, ours = output.prompt_token_ids, output.outputs[0].token_ids
        logits = model(torch.tensor([prompt + ours])).logits[0, len(prompt) - 1 : -1]
        best = logits.topk(2)
        leads = (best.values[:, 0] - best.values[:, 1]).tolist()
        answers.append(
            GreedyAnswer(best.indices[:, 0].tolist(), leads, best.indices[:, 1].tolist())
        )
    return answers


def test_every_token_is_the_likeliest_to_transformers(outputs, answers) -> None:
    ties = Ties(closest=1e-3)
    for output, answer in zip(outputs, answers, strict=True):
        # Each token by itself: the text before it is ours, so ties don't end the comparison.
        each = zip(answer.token_ids, answer.leads, answer.runners_up, strict=True)
        for token_id, one in zip(output.outputs[0].token_ids, each, strict=True):
            ties.check_equal([token_id], GreedyAnswer(*([value] for value in one)))
    assert ties.num_compared == NUM_PROMPTS * NUM_TOKENS
    ties.check_few_excused()


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_pressure_changes_nothing(preemption, texts, outputs, answers) -> None:
    watched = WatchedLLM(
        MODEL,
        dtype="float32",
        block_size=4,
        num_blocks=120,
        num_swap_blocks=60 if preemption == "swap" else 0,
        max_num_seqs=8,
        max_num_batched_tokens=48,
        preemption=preemption,
    )
    ties = Ties(closest=1e-3, most=0.2)
    others = watched.run([(text, GREEDY) for text in texts[::4]])
    assert watched.num_preempted
    for other, output, answer in zip(others, outputs[::4], answers[::4], strict=True):
        expected = output.outputs[0].token_ids
        ties.check_equal(
            other.outputs[0].token_ids, GreedyAnswer(expected, answer.leads, answer.runners_up)
        )
    ties.check_few_excused()


def test_generate_of_transformers_writes_the_same(outputs, model) -> None:
    """The same once more in transformers' own way, for some: token by token, with its own cache."""
    ties = Ties(closest=1e-3, most=0.5)
    for output in outputs[::10]:
        ids = torch.tensor([output.prompt_token_ids])
        theirs = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=NUM_TOKENS,
            pad_token_id=0,
            output_logits=True,
            return_dict_in_generate=True,
        )
        best = torch.cat(theirs.logits).topk(2)
        answer = GreedyAnswer(
            theirs.sequences[0, ids.shape[1] :].tolist(),
            (best.values[:, 0] - best.values[:, 1]).tolist(),
            best.indices[:, 1].tolist(),
        )
        ties.check_equal(output.outputs[0].token_ids, answer)
    ties.check_few_excused()
