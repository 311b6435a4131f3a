"""Byte-pair encoding, trained on the stories: most of their words become one token each.

Contract: every text can be encoded, as all 256 bytes are tokens. Words, punctuation and line breaks
are split before the merges, so the ids of a prompt are the beginning of the ids of the whole text
wherever the prompt ends with a word, a stop or an empty line.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from training.storyteller.documents import END, texts

_PIECES = r" ?[A-Za-z]+| ?[0-9]+| ?[^A-Za-z0-9\s]+|\s+"


def train_tokenizer(vocab_size: int, num_texts: int = 6000, seed: str = "tokenizer") -> Tokenizer:
    """Train on `num_texts` texts of the grammar; END has the id 0."""
    return train_on(itertools.islice(texts(random.Random(seed)), num_texts), vocab_size)


def train_on(corpus: Iterable[str], vocab_size: int) -> Tokenizer:
    """Train on any texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(END, special=True, normalized=False)],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer
