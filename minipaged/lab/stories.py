"""Small made-up stories, so that every slot of a simulated run shows a word."""

from __future__ import annotations

import random

# A story goes round and round: the old cat saw a red boat near the hill and ...
_STORY = (
    ("the", "a", "one"),
    ("old", "red", "big", "wise", "shy", "tiny", "kind", "wet"),
    ("cat", "dog", "fox", "owl", "bear", "king", "girl", "frog"),
    ("saw", "met", "lost", "had", "drew", "kept", "hid"),
    ("a", "the", "his", "her"),
    ("boat", "kite", "bell", "hat", "lamp", "cake", "drum", "star"),
    ("near", "on", "over", "by", "in"),
    ("the", "a"),
    ("hill", "lake", "tree", "moon", "barn", "road", "sea"),
    ("and", "then", "but", "so"),
)
VOCABULARY = tuple(dict.fromkeys(word for words in _STORY for word in words))


def story(seed: str, num_words: int) -> tuple[int, ...]:
    """Give the tokens of a story; the same seed tells the same one.

    >>> "".join(map(token_text, story("a seed", 6)))
    ' a old bear had his boat'
    """
    draw = random.Random(seed)
    words = (draw.choice(_STORY[n % len(_STORY)]) for n in range(num_words))
    return tuple(map(VOCABULARY.index, words))


def token_text(token: int) -> str:
    """Give a token's word, behind a space."""
    return f" {VOCABULARY[token]}"
