"""How far a model is from the grammar, in nats a token: zero could not be beaten.

    excess = (-log P(story, END | prompt) by the model  -  the same by the grammar) / tokens

summed over all exchanges before the division. The model's side is over the tokenizer's ids of the
text; END costs the grammar nothing, as it tells itself where a story ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (its usual name)
from torch.nn.utils.rnn import pad_sequence

from training.storyteller.documents import END, Exchange

if TYPE_CHECKING:
    import tokenizers

Logits = Callable[[Tensor], Tensor]  # ids [rows, length] -> [rows, length, vocab_size]
_ROWS = 25
_IGNORED = -100  # cross_entropy's mark for a position that does not count


@dataclass(frozen=True)
class Score:
    """What the stories cost, and how many tokens they have."""

    model_nats: float
    grammar_nats: float
    tokens: int

    @property
    def excess(self) -> float:
        """Nats a token above the grammar's."""
        return (self.model_nats - self.grammar_nats) / self.tokens


def score(model: Logits, tokenizer: tokenizers.Tokenizer, exchanges: Sequence[Exchange]) -> Score:
    """Score a model on exchanges."""
    nats, tokens = 0.0, 0
    for ids, targets in _batches(tokenizer, exchanges):
        with torch.no_grad():
            logits = model(ids).float()
        nats += F.cross_entropy(logits.transpose(1, 2), targets, reduction="sum").item()
        tokens += int((targets != _IGNORED).sum())
    return Score(nats, sum(exchange.nats for exchange in exchanges), tokens)


def _batches(
    tokenizer: tokenizers.Tokenizer, exchanges: Sequence[Exchange]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield ids and targets, both [rows, length]; only a story's own tokens are targets."""
    pairs = sorted((_encode(tokenizer, e) for e in exchanges), key=lambda pair: len(pair[0]))
    for start in range(0, len(pairs), _ROWS):
        ids, targets = zip(*pairs[start : start + _ROWS], strict=True)
        yield (
            pad_sequence(list(ids), batch_first=True),
            pad_sequence(list(targets), batch_first=True, padding_value=_IGNORED),
        )


def _encode(tokenizer: tokenizers.Tokenizer, exchange: Exchange) -> tuple[Tensor, Tensor]:
    prompt = tokenizer.encode(exchange.prompt).ids
    ids = tokenizer.encode(exchange.prompt + exchange.story + END).ids
    assert ids[: len(prompt)] == prompt, "a prompt's ids are the beginning of the text's"
    targets = [_IGNORED] * (len(prompt) - 1) + ids[len(prompt) :]
    return torch.tensor(ids[:-1]), torch.tensor(targets)
