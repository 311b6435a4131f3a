"""From stories to rows of token ids, without end and never twice: a row is a function of its seed.

A text is what the model sees in a chat: the system prompt (not always), a request, an empty line,
the story, END. Texts follow one another in a row until it is full, so a context holds several
stories, and each position is trained. A row's first text begins at position 0, as a prompt does.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from training.storyteller.stories import GRAMMAR, SYSTEM

if TYPE_CHECKING:
    import tokenizers

END: Final = "<|end|>"
GAP: Final = "\n\n"  # between the system prompt, a request and its story
_SYSTEM_FIRST, _SYSTEM_LATER = 0.75, 0.2  # how often the system prompt stands before a text


@dataclass(frozen=True)
class Exchange:
    """What a model is given, and what it should go on with; END follows.

    `nats` is -log P(story | prompt) by the grammar. The system prompt tells nothing about it.
    """

    prompt: str
    story: str
    nats: float


def held_out(count: int, seed: str = "held out") -> Iterator[Exchange]:
    """Yield exchanges with a request, behind the system prompt, that no training run sees."""
    rng = random.Random(seed)
    while count:
        text = GRAMMAR.sample("exchange", rng)
        if GAP in text:
            count -= 1
            yield _split(text)


def _split(text: str) -> Exchange:
    start = text.index(GAP) + len(GAP)
    nats = GRAMMAR.parse("exchange", text).nats(start)
    return Exchange(SYSTEM + GAP + text[:start], text[start:], nats)


def texts(rng: random.Random) -> Iterator[str]:
    """Yield what may stand in one context, one text after the other, without end."""
    share = _SYSTEM_FIRST
    while True:
        system = SYSTEM + GAP if rng.random() < share else ""
        yield system + GRAMMAR.sample("exchange", rng) + END
        share = _SYSTEM_LATER


def row(tokenizer: tokenizers.Tokenizer, seed: str, length: int) -> list[int]:
    """Give `length` token ids: texts one after the other, the last one cut off."""
    ids: list[int] = []
    for text in texts(random.Random(seed)):
        ids += tokenizer.encode(text).ids
        if len(ids) >= length:
            return ids[:length]
    raise AssertionError("texts() has no end")
