"""What keeping keys and values in 8 bits costs in accuracy, on a real model.

    python kernels/benchmarks/int8_error.py [--model smollm2-q4] [--tokens 512]

The pages of docs/ are read by the model twice: with keys and values as they are (fp32), and with
each rounded to what a cache would keep. Every position then predicts the next token, and the two
predictions are compared. bf16, what caches usually keep, is measured beside it. Runs on a CPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from minipaged_kernels.reference import quantize
from torch import Tensor

from minipaged.engine import kv_cache
from minipaged.engine.attention import (
    AttentionBackend,
    AttentionMetadata,
    AttentionPlan,
    build_metadata,
    get_attention_backend,
)
from minipaged.engine.model_runner import load_model
from minipaged.memory.block_table import blocks_for
from minipaged.models.catalog import resolve
from minipaged.models.tokenizer import load_tokenizer
from minipaged.models.transformer import Transformer

DOCS = Path(__file__).parents[2] / "docs"
BLOCK_SIZE = 16
Rounding = Callable[[Tensor], Tensor]


def as_int8(heads: Tensor) -> Tensor:
    """Give what an int8 cache makes of [num_tokens, num_kv_heads, head_dim]."""
    integers, scales = quantize(heads)
    return integers * scales[..., None]


def as_bf16(heads: Tensor) -> Tensor:
    """Give what a bf16 cache makes of it."""
    return heads.bfloat16().float()


@dataclass(frozen=True)
class RoundingBackend:
    """Attends as another backend does, to rounded keys and values."""

    inner: AttentionBackend
    rounding: Rounding

    def plan(
        self, metadata: AttentionMetadata, kv_cache: Tensor, num_heads: int, window: int | None
    ) -> AttentionPlan:
        """Plan as the other does."""
        attend = self.inner.plan(metadata, kv_cache, num_heads, window)

        def attend_rounded(
            query: Tensor, key: Tensor, value: Tensor, layer_cache: Tensor
        ) -> Tensor:
            return attend(query, self.rounding(key), self.rounding(value), layer_cache)

        return attend_rounded


def log_probabilities(
    model: Transformer, backend: AttentionBackend, token_ids: list[int]
) -> tuple[Tensor, Tensor]:
    """Read a text at once: logits and log-probabilities, each [num_tokens, vocab_size]."""
    model.attention = backend
    count = len(token_ids)
    blocks = list(range(blocks_for(count, BLOCK_SIZE)))
    cache = kv_cache.allocate(model.config, len(blocks), BLOCK_SIZE, model.dtype)
    metadata = build_metadata([count], [count], [blocks], list(range(count)))
    ids, positions = torch.tensor(token_ids), torch.arange(count)
    logits = model.compute_logits(model.forward(ids, positions, cache, metadata))
    return logits, logits.log_softmax(-1)


@dataclass(frozen=True)
class Difference:
    """How far a rounded cache's predictions are from the exact one's, over all positions."""

    nats: float  # mean Kullback-Leibler divergence
    worst_nats: float
    worst_logit: float  # the largest change of any logit
    same_choice: float  # the share of positions with the same likeliest token
    loss: float  # change of the mean loss of the text, in nats a token


def compare(
    exact: tuple[Tensor, Tensor], rounded: tuple[Tensor, Tensor], ids: Tensor
) -> Difference:
    """Compare two readings of one text."""
    (logits, p), (other_logits, q) = exact, rounded
    divergence = (p.exp() * (p - q)).sum(-1)
    told = [-side[:-1].gather(1, ids[1:, None]).mean() for side in (p, q)]
    return Difference(
        nats=divergence.mean().item(),
        worst_nats=divergence.max().item(),
        worst_logit=(logits - other_logits).abs().max().item(),
        same_choice=(logits.argmax(-1) == other_logits.argmax(-1)).double().mean().item(),
        loss=(told[1] - told[0]).item(),
    )


def main() -> None:
    """Measure, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-q4")
    parser.add_argument("--tokens", type=int, default=512, help="of each page")
    options = parser.parse_args()
    files = resolve(options.model, print)
    model = load_model(files, "float32", "cpu", "sdpa")
    tokenizer, inner = load_tokenizer(files), get_attention_backend("sdpa", "cpu")
    print("| page | cache | mean nats | worst nats | worst logit | same choice | loss |")
    print("|---|---|---|---|---|---|---|")
    for page in sorted(DOCS.glob("*.md")):
        ids = tokenizer.encode(page.read_text(encoding="utf-8"))[: options.tokens]
        exact = log_probabilities(model, inner, ids)
        for name, rounding in (("bf16", as_bf16), ("int8", as_int8)):
            rounded = log_probabilities(model, RoundingBackend(inner, rounding), ids)
            d = compare(exact, rounded, torch.tensor(ids))
            print(
                f"| {page.name} | {name} | {d.nats:.6f} | {d.worst_nats:.5f} | {d.worst_logit:.3f} "
                f"| {d.same_choice:.1%} | {d.loss:+.5f} |"
            )


if __name__ == "__main__":
    main()
