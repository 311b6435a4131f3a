"""Measure a trained storyteller and write its card: `python -m training.storyteller.evaluate RUN`.

Two figures: the excess over the grammar on held-out stories, by the plain model of the training
script; and how many of its own stories are right, sampled with minipaged's engine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import torch

from training.storyteller import checkpoint
from training.storyteller.checker import find_fault
from training.storyteller.counting import count
from training.storyteller.documents import Exchange, held_out
from training.storyteller.model import StoryModel
from training.storyteller.scoring import Score, score
from training.storyteller.stories import GRAMMAR

TEMPERATURE = 0.7
_MAX_TOKENS = 400  # the longest story has fewer
_CARD = Path(__file__).with_name("card.md")
_CURVE_ROWS = 12

Point = dict[str, Any]  # a line of curve.jsonl


@dataclass(frozen=True)
class Sample:
    """A story that the model told, and what is wrong with it."""

    exchange: Exchange
    story: str
    fault: str | None


def sample_stories(
    folder: Path, exchanges: Sequence[Exchange], max_tokens: int = _MAX_TOKENS
) -> Iterator[Sample]:
    """Let minipaged's engine answer the exchanges' prompts, and check each answer."""
    from minipaged import LLM, SamplingParams

    params = [
        SamplingParams(temperature=TEMPERATURE, seed=seed, max_tokens=max_tokens)
        for seed in range(len(exchanges))
    ]
    with LLM(str(folder)) as llm:
        outputs = llm.generate([exchange.prompt for exchange in exchanges], params)
    for exchange, output in zip(exchanges, outputs, strict=True):
        answer = output.outputs[0]
        fault = find_fault(exchange.prompt, answer.text)
        unfinished = None if answer.finish_reason == "stop" else "it does not end"
        yield Sample(exchange, answer.text, str(fault) if fault else unfinished)


def card(folder: Path, model: StoryModel, points: Sequence[Point], *values: dict[str, Any]) -> str:
    """Fill the card's placeholders."""
    shape = model.shape
    known = {
        "parameters": f"{sum(p.numel() for p in model.parameters()):,}",
        "layers": shape.num_hidden_layers,
        "width": shape.hidden_size,
        "heads": shape.num_attention_heads,
        "kv_heads": shape.num_key_value_heads,
        "context": shape.max_position_embeddings,
        "vocabulary": shape.vocab_size,
        "kilobytes": (folder / "model.safetensors").stat().st_size // 1000,
        "magnitude": len(str(count(GRAMMAR.rules["story"]).texts)) - 1,
        "trained_tokens": f"{points[-1]['tokens'] / 1e6:.1f} million",
        "minutes": round(sum(point["seconds"] for point in points) / 60),
        "curve": _curve_table(points),
    }
    for more in values:
        known.update(more)
    return Template(_CARD.read_text(encoding="utf-8")).substitute(known)


def score_figures(result: Score, stories: int) -> dict[str, Any]:
    """Give the card's figures of a score."""
    return {
        "num_stories": f"{stories:,}",
        "excess": f"{result.excess:.4f}",
        "model_nats": f"{result.model_nats / stories:.2f}",
        "grammar_nats": f"{result.grammar_nats / stories:.2f}",
        "story_tokens": f"{result.tokens / stories:.0f}",
    }


def sample_figures(samples: Sequence[Sample]) -> dict[str, Any]:
    """Give the card's figures of sampled stories."""
    return {
        "num_samples": len(samples),
        "accepted": sum(sample.fault is None for sample in samples),
        "temperature": TEMPERATURE,
    }


def _curve_table(points: Sequence[Point]) -> str:
    stride = -(-len(points) // _CURVE_ROWS)
    chosen = points[::-1][::stride][::-1]
    rows = [f"| {p['tokens'] / 1e6:.1f} | {p['excess']:.4f} |" for p in chosen]
    return "\n".join(["| million tokens | excess |", "|---|---|", *rows])


def main() -> None:
    """Read the command line, measure, print, and write the card into the model's folder."""
    parser = argparse.ArgumentParser(description="Measure the storyteller.")
    parser.add_argument("run", type=Path, help="the folder that train.py was given")
    parser.add_argument("--stories", type=int, default=1000, help="held-out stories to score")
    parser.add_argument("--samples", type=int, default=200, help="stories to let it tell")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    folder = args.run / "model"
    curve = (args.run / "curve.jsonl").read_text(encoding="utf-8")
    model, tokenizer = checkpoint.load(folder)
    result = score(model, tokenizer, list(held_out(args.stories)))
    scored = score_figures(result, args.stories)
    print(json.dumps(scored))  # noqa: T201
    samples = list(sample_stories(folder, list(held_out(args.samples, "samples"))))
    for sample in samples:
        if sample.fault:
            print(f"--- {sample.fault}\n{sample.story}\n")  # noqa: T201
    sampled = sample_figures(samples)
    print(json.dumps(sampled))  # noqa: T201
    points = [json.loads(line) for line in curve.splitlines()]
    text = card(folder, model, points, scored, sampled)
    (folder / "README.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
