"""Training the storyteller: data, tokenizer, model, resuming, what comes out, scoring."""

from __future__ import annotations

import itertools
import json
import math
import random
from pathlib import Path

import pytest
import tokenizers
import torch

from training.storyteller import checkpoint
from training.storyteller.documents import END, GAP, held_out, row, texts
from training.storyteller.evaluate import (
    Sample,
    card,
    sample_figures,
    sample_stories,
    score_figures,
)
from training.storyteller.model import ModelShape, StoryModel, attend
from training.storyteller.scoring import score
from training.storyteller.stories import GRAMMAR, SYSTEM
from training.storyteller.tokenizer import train_tokenizer
from training.storyteller.train import prepare
from training.storyteller.trainer import Recipe, RecipeMismatchError, Trainer

TINY = ModelShape(
    vocab_size=512,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=4,
    max_position_embeddings=256,
)
RECIPE = Recipe(steps=20, tokens_per_step=256, short=128, warmup=5, shape=TINY)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def tokenizer() -> tokenizers.Tokenizer:
    return train_tokenizer(TINY.vocab_size, num_texts=200)


@pytest.fixture(scope="module")
def folder(tokenizer: tokenizers.Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model, saved as one that ships, with a spread that makes its text vary."""
    torch.manual_seed(0)
    model = StoryModel(TINY)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=float(parameter.ndim == 1), std=0.2)
    path = tmp_path_factory.mktemp("model")
    checkpoint.save(path, model, tokenizer)
    return path


# --- data


def test_a_row_is_a_function_of_its_seed(tokenizer: tokenizers.Tokenizer) -> None:
    assert row(tokenizer, "1/0/0", 300) == row(tokenizer, "1/0/0", 300)
    assert row(tokenizer, "1/0/0", 300) != row(tokenizer, "1/0/1", 300)
    assert len(row(tokenizer, "1/0/0", 300)) == 300


def test_a_row_holds_complete_texts_one_after_the_other(tokenizer: tokenizers.Tokenizer) -> None:
    text = tokenizer.decode(row(tokenizer, "1/0/0", 2000), skip_special_tokens=False)
    complete = text.split(END)[:-1]
    assert len(complete) >= 3
    for part in complete:
        GRAMMAR.parse("exchange", part.removeprefix(SYSTEM + GAP))


def test_the_system_prompt_stands_before_most_first_texts_and_few_later_ones() -> None:
    rows = [list(itertools.islice(texts(random.Random(seed)), 2)) for seed in range(400)]
    columns = zip(*rows, strict=True)
    shares = [sum(t.startswith(SYSTEM + GAP) for t in column) / 400 for column in columns]
    assert shares == pytest.approx([0.75, 0.2], abs=0.08)


def test_held_out_stories_have_a_request_and_their_probability() -> None:
    exchanges = list(held_out(30))
    assert exchanges == list(held_out(30))
    for exchange in exchanges:
        request = exchange.prompt.removeprefix(SYSTEM + GAP)
        whole = GRAMMAR.parse("exchange", request + exchange.story)
        assert request.endswith(GAP)
        assert 0 < exchange.nats < whole.nats()


# --- tokenizer


def test_any_text_comes_back(tokenizer: tokenizers.Tokenizer) -> None:
    for text in ("Tell a story about a dragon & a piano!", "日本語 ünïcode\n\n\n  🌊 x1234", ""):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_training_it_again_gives_the_same_one(tokenizer: tokenizers.Tokenizer) -> None:
    assert train_tokenizer(TINY.vocab_size, num_texts=200).to_str() == tokenizer.to_str()
    assert tokenizer.get_vocab_size() == TINY.vocab_size
    assert tokenizer.token_to_id(END) == checkpoint.END_ID


def test_a_prompts_ids_begin_the_ids_of_the_whole_text(tokenizer: tokenizers.Tokenizer) -> None:
    for exchange in held_out(20):
        ids = tokenizer.encode(exchange.prompt + exchange.story + END).ids
        story = exchange.story
        ends = [0, *(i for i, c in enumerate(story) if c == " ")]  # before each word
        for end in ends:
            prompt = tokenizer.encode(exchange.prompt + story[:end]).ids
            assert ids[: len(prompt)] == prompt


# --- model


def test_attention_in_blocks_is_attention() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 37, 8)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    for block in (1, 8, 36, 37, 100):
        torch.testing.assert_close(attend(q, k, v, block), expected)


def test_transformers_runs_the_folder_and_agrees(folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ours, tokenizer = checkpoint.load(folder)
    exchange = next(held_out(1))
    ids = torch.tensor([tokenizer.encode(exchange.prompt).ids])
    with torch.no_grad():
        torch.testing.assert_close(ours(ids), theirs(ids).logits, atol=1e-4, rtol=1e-4)
    assert AutoTokenizer.from_pretrained(folder)(exchange.prompt)["input_ids"] == ids[0].tolist()


def test_minipaged_runs_the_folder_and_agrees(folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    from minipaged import LLM, SamplingParams

    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompt = SYSTEM + GAP + "Tell a story about a fox and a kite." + GAP
    with LLM(str(folder), dtype="float32") as llm:
        params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
        ours = llm.generate([prompt], params)[0].outputs[0].token_ids
    ids = torch.tensor([checkpoint.load(folder)[1].encode(prompt).ids])
    with torch.no_grad():
        for _ in range(20):
            ids = torch.cat((ids, theirs(ids).logits[:, -1:].argmax(-1)), dim=1)
    assert list(ours) == ids[0, -20:].tolist()


def test_the_chat_template_writes_what_the_model_was_trained_on(folder: Path) -> None:
    from transformers import AutoTokenizer

    first, second = held_out(2)
    requests = [e.prompt.removeprefix(SYSTEM + GAP).strip() for e in (first, second)]
    chat = [
        {"role": "user", "content": requests[0]},
        {"role": "assistant", "content": first.story},
        {"role": "user", "content": requests[1]},
    ]
    expected = first.prompt + first.story + END + second.prompt.removeprefix(SYSTEM + GAP)
    theirs = AutoTokenizer.from_pretrained(folder)
    system = {"role": "system", "content": SYSTEM}
    for messages in (chat, [system, *chat]):
        render = theirs.apply_chat_template
        assert render(messages, tokenize=False, add_generation_prompt=True) == expected


def test_minipaged_writes_the_same_chat(folder: Path) -> None:
    from minipaged.models.model_files import open_folder
    from minipaged.models.tokenizer import load_tokenizer

    request = "Tell a story about a fox and a kite."
    tokenizer = load_tokenizer(open_folder(folder, "tiny"))
    text = tokenizer.render_chat([{"role": "user", "content": request}])
    assert text == SYSTEM + GAP + request + GAP


def test_saving_a_loaded_model_changes_nothing(folder: Path, tmp_path: Path) -> None:
    checkpoint.save(tmp_path, *checkpoint.load(folder))
    for path in folder.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


# --- training


def train(recipe: Recipe, tokenizer: tokenizers.Tokenizer, steps: int) -> Trainer:
    trainer = Trainer(recipe, tokenizer)
    for _ in range(steps):
        trainer.advance()
    return trainer


def assert_equal_weights(one: Trainer, other: Trainer) -> None:
    for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("bf16", [True, False])
def test_training_twice_or_in_two_parts_gives_equal_weights(
    bf16: bool, tokenizer: tokenizers.Tokenizer, tmp_path: Path
) -> None:
    """20 steps; the length of contexts changes in the second part."""
    recipe = Recipe(**{**vars(RECIPE), "bf16": bf16})
    once = train(recipe, tokenizer, 20)
    assert_equal_weights(once, train(recipe, tokenizer, 20))
    train(recipe, tokenizer, 10).save(tmp_path / "checkpoint.pt")
    resumed = Trainer(recipe, tokenizer)
    resumed.load(tmp_path / "checkpoint.pt")
    while resumed.step < 20:
        resumed.advance()
    assert_equal_weights(once, resumed)


def test_another_seed_gives_other_weights(tokenizer: tokenizers.Tokenizer) -> None:
    other = train(Recipe(**{**vars(RECIPE), "seed": 2}), tokenizer, 1)
    one = train(RECIPE, tokenizer, 1)
    embeddings = [each.model.model.embed_tokens.weight for each in (one, other)]
    assert not torch.equal(*embeddings)


def test_the_loss_falls(tokenizer: tokenizers.Tokenizer) -> None:
    trainer = Trainer(Recipe(**{**vars(RECIPE), "learning_rate": 5e-2}), tokenizer)
    losses = [trainer.advance() for _ in range(20)]
    assert losses[0] == pytest.approx(math.log(TINY.vocab_size), rel=0.1)
    assert losses[-1] < losses[0] - 0.3


def test_a_checkpoint_of_another_recipe_is_refused(
    tokenizer: tokenizers.Tokenizer, tmp_path: Path
) -> None:
    train(RECIPE, tokenizer, 1).save(tmp_path / "checkpoint.pt")
    other = Trainer(Recipe(**{**vars(RECIPE), "learning_rate": 1.0}), tokenizer)
    with pytest.raises(RecipeMismatchError, match="made by another recipe"):
        other.load(tmp_path / "checkpoint.pt")


def test_an_interrupted_run_goes_on_and_its_curve_too(
    tmp_path: Path, tokenizer: tokenizers.Tokenizer
) -> None:
    folders = tmp_path / "whole", tmp_path / "parts"
    for folder in folders:
        folder.mkdir()
        tokenizer.save(str(folder / "tokenizer.json"))
    whole, part = (prepare(RECIPE, folder, every=2, watched=2) for folder in folders)
    whole.until(8)
    part.until(4)
    with (folders[1] / "curve.jsonl").open("a") as file:
        file.write('{"step": 6}\n')  # it got further than its last checkpoint
    part = prepare(RECIPE, folders[1], every=2, watched=2)
    part.until(8)
    assert_equal_weights(whole.trainer, part.trainer)
    assert curve(folders[0]) == curve(folders[1])
    assert [point["step"] for point in curve(folders[0])] == [2, 4, 6, 8]


def curve(folder: Path) -> list[dict[str, float]]:
    """The learning curve without its times."""
    lines = (folder / "curve.jsonl").read_text().splitlines()
    return [{**json.loads(line), "seconds": 0} for line in lines]


def test_the_schedule_goes_up_and_straight_down() -> None:
    recipe = Recipe(steps=100, warmup=10)
    rates = [recipe.rate(step) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert rates.index(max(rates)) == 9
    assert rates[50:52] == pytest.approx([0.5, 0.49])
    assert 0 < rates[-1] <= 0.01
    assert [recipe.length(step) for step in (0, 74, 75, 99)] == [320, 320, 1024, 1024]


# --- scoring


def test_a_models_score_is_the_sum_over_its_own_probabilities(
    folder: Path, tokenizer: tokenizers.Tokenizer
) -> None:
    """Story by story, token by token, without batches and padding."""
    model, _ = checkpoint.load(folder)
    exchanges = list(held_out(5))
    nats, tokens = 0.0, 0
    for exchange in exchanges:
        start = len(tokenizer.encode(exchange.prompt).ids)
        ids = torch.tensor(tokenizer.encode(exchange.prompt + exchange.story + END).ids)
        with torch.no_grad():
            logprobs = model(ids[None, :-1])[0].log_softmax(-1)
        nats -= logprobs[range(start - 1, len(ids) - 1), ids[start:]].sum().item()
        tokens += len(ids) - start
    result = score(model, tokenizer, exchanges)
    assert result.tokens == tokens
    assert result.model_nats == pytest.approx(nats, rel=1e-5)
    least = sum(exchange.nats for exchange in exchanges)
    assert result.excess == pytest.approx((nats - least) / tokens, rel=1e-5)


def test_samples_of_an_untrained_model_are_faulty(folder: Path) -> None:
    samples = list(sample_stories(folder, list(held_out(2)), max_tokens=30))
    assert len(samples) == 2
    assert all(sample.fault for sample in samples)


def test_the_card_has_no_gaps(folder: Path, tokenizer: tokenizers.Tokenizer) -> None:
    exchanges = list(held_out(2))
    model, _ = checkpoint.load(folder)
    points = [{"tokens": i * 10**6, "excess": 1 / i, "seconds": 60} for i in range(1, 30)]
    samples = [Sample(exchanges[0], exchanges[0].story, None), Sample(exchanges[1], "", "empty")]
    scored = score_figures(score(model, tokenizer, exchanges), 2)
    text = card(folder, model, points, scored, sample_figures(samples))
    assert "$" not in text
    assert "| right stories of 2, sampled at temperature 0.7 | 1 |" in text
    assert "29.0 million tokens in 29 minutes" in text
    assert "| 29.0 | 0.0345 |" in text
