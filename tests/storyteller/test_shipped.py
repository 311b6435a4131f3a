"""The storyteller that ships: small, what the recipe makes, and a teller of right stories."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import minipaged
from minipaged import LLM, SamplingParams
from training.storyteller import checkpoint
from training.storyteller.checker import find_fault
from training.storyteller.documents import GAP, held_out
from training.storyteller.evaluate import sample_stories
from training.storyteller.model import ModelShape
from training.storyteller.scoring import score
from training.storyteller.stories import SYSTEM

FOLDER = Path(minipaged.__file__).parent / "models" / "builtin" / "storyteller"
REQUEST = "Tell a story about a fox and a kite."


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def test_it_ships_in_bf16_and_four_megabytes() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 4_000_000
    weights = load_file(FOLDER / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.bfloat16}
    assert 0.9e6 < sum(weight.numel() for weight in weights.values()) < 1.3e6


def test_its_files_are_those_that_the_training_script_writes_now() -> None:
    config = json.loads((FOLDER / "config.json").read_text(encoding="utf-8"))
    assert config == checkpoint.config(ModelShape())
    assert asdict(ModelShape())["max_position_embeddings"] >= 1024
    template = (FOLDER / "chat_template.jinja").read_text(encoding="utf-8")
    assert template == checkpoint.CHAT_TEMPLATE
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert "## Figures" in card
    assert "$" not in card


def assert_excess(stories: int) -> None:
    model, tokenizer = checkpoint.load(FOLDER)
    assert 0 < score(model, tokenizer, list(held_out(stories))).excess <= 0.10


def assert_most_are_right(samples: int) -> None:
    told = list(sample_stories(FOLDER, list(held_out(samples, "samples"))))
    faults = [sample.fault for sample in told if sample.fault]
    assert len(faults) <= 0.05 * samples, faults


def test_it_is_close_to_the_grammar() -> None:
    assert_excess(40)


def test_nearly_all_of_its_stories_are_right() -> None:
    assert_most_are_right(40)


@pytest.mark.slow
def test_its_figures() -> None:
    assert_excess(1000)
    assert_most_are_right(200)


def test_transformers_tells_the_same_greedy_story() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    prompt = SYSTEM + GAP + REQUEST + GAP
    with LLM(str(FOLDER), dtype="float32") as llm:
        ours = llm.generate([prompt], SamplingParams(temperature=0, max_tokens=400))[0].outputs[0]
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    inputs = tokenizer(prompt, return_tensors="pt")
    with torch.no_grad():
        theirs = model.generate(**inputs, do_sample=False, max_new_tokens=400)[0]
    story = tokenizer.decode(theirs[inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    assert ours.text == story
    assert find_fault(prompt, story) is None


@pytest.mark.parametrize(
    "prompt",
    [
        REQUEST + GAP,
        SYSTEM + GAP,
        "Continue this story: Once upon a time there was a shy fox named Ruby." + GAP,
        "Once upon a time there was a shy fox named Ruby. She lived",
    ],
)
def test_it_goes_on_from_each_kind_of_beginning(prompt: str) -> None:
    params = SamplingParams(temperature=0, max_tokens=400)
    with LLM(str(FOLDER)) as llm:
        answer = llm.generate([prompt], params)[0].outputs[0]
    assert answer.finish_reason == "stop"
    assert find_fault(prompt, answer.text) is None


def test_it_tells_a_second_story_in_one_chat() -> None:
    messages = [{"role": "user", "content": REQUEST}]
    params = SamplingParams(temperature=0, max_tokens=400)
    with LLM(str(FOLDER)) as llm:
        first = llm.chat(messages, params)[0].outputs[0].text
        messages += [
            {"role": "assistant", "content": first},
            {"role": "user", "content": "Tell another story about a bear and a drum."},
        ]
        second = llm.chat(messages, params)[0].outputs[0].text
    assert find_fault(REQUEST + GAP, first) is None
    assert find_fault(messages[2]["content"] + GAP, second) is None
