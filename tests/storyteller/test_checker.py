"""The checker: each planted fault is found, at its place."""

from __future__ import annotations

import random
import re

import pytest

from training.storyteller.checker import find_fault
from training.storyteller.stories import GRAMMAR, SYSTEM

PROMPT = "Tell a story about a fox and a kite.\n\n"
STORY = (
    "Once upon a time there was a shy fox named Ruby. She lived near an old oak and owned a red "
    "kite. She wanted to give the kite to her uncle, who lived behind the mill. One windy morning "
    "Ruby took the red kite and ran down the hill. Suddenly the wind blew the kite into a pine. "
    'Ruby sighed. Just then a kind owl came by and asked, "What is wrong, little fox?" "My red '
    'kite hangs in the pine," said Ruby. "I will help you," said the owl. Together they shook the '
    "pine and got the kite. Ruby thanked the owl with a song. Now she could give the kite to her "
    "uncle. At sunset she reached the mill and gave the red kite to her uncle. Ever after Ruby and "
    "the owl were good friends and often sang near the old oak."
)


@pytest.mark.parametrize("prompt", [PROMPT, f"{SYSTEM}\n\n{PROMPT}", ""])
def test_a_right_story_is_accepted(prompt: str) -> None:
    assert find_fault(prompt, STORY) is None


def test_a_story_may_go_on_from_its_first_sentence() -> None:
    opening, rest = STORY.split(" She lived", 1)
    assert find_fault(f"Continue this story: {opening}\n\n", "She lived" + rest) is None


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("She lived", "He lived"),  # pronoun
        ("to her uncle, who", "to his uncle, who"),  # possession
        ("kite to her uncle.", "kite to his uncle."),
        ("At sunset she", "At sunset he"),
        ("said Ruby", "said Rosa"),  # name
        ("Ruby thanked", "Nick thanked"),
        ("little fox", "little hen"),  # kind
        ("shy fox", "shy cat"),  # not the one that was asked for
        ("My red kite", "My red drum"),  # thing
        ("My red", "My blue"),  # color
        ("took the red", "took the pink"),
        ("owned a red kite", "owned a red drum"),
        ("the red kite to", "the blue kite to"),  # color
        ("said the owl", "said the crow"),  # friend
        ("reached the mill", "reached the farm"),  # place
        ("gave the red kite to her uncle", "gave the red kite to her aunt"),  # who waits
        ("gave the red", "lent the red"),  # wish
        ("could give", "could lend"),
        ("in the pine", "in the birch"),  # trouble
        ("shook the pine", "chased the pine"),
        ("near the old oak", "near the tall elm"),  # home
        ("an old oak and", "a old oak and"),  # article
        ("friends and", "friends  and"),  # a space
        ("Suddenly the", "suddenly the"),
        (" Ruby sighed.", ""),  # a sentence left out
        ("old oak.", "old oak"),  # the end
        ("old oak.", "old oak. The end."),
    ],
)
def test_a_planted_fault_is_found_at_its_place(right: str, wrong: str) -> None:
    place = STORY.rindex(right)
    story = STORY[:place] + wrong + STORY[place + len(right) :]
    fault = find_fault(PROMPT, story)
    assert fault is not None
    same = next(i for i in range(len(story) + 1) if story[: i + 1] != STORY[: i + 1])
    assert 0 <= len(PROMPT) + same - fault.position < 30


def test_a_swapped_word_of_any_sample_is_found() -> None:
    """Names, friends and things of one story put into another one, at one place."""
    rng = random.Random(6)
    for _ in range(200):
        text = GRAMMAR.sample("exchange", rng)
        facts = GRAMMAR.parse("exchange", text).facts
        slot = rng.choice(["name", "kind", "thing", "helper", "goal", "color"])
        word = facts[slot][slot]
        words = ("Max", "Mia", "hen", "key", "toad", "inn", "red", "blue")
        other = rng.choice([w for w in words if w != word])
        place = text.rindex(word)
        assert find_fault("", text[:place] + other + text[place + len(word) :]) is not None


FLIPPED = {"he": "she", "she": "he", "his": "her", "her": "his", "He": "She", "She": "He"}


def test_a_flipped_pronoun_of_any_sample_is_found() -> None:
    rng, flips = random.Random(8), 0
    for _ in range(60):
        text = GRAMMAR.sample("exchange", rng)
        for match in re.finditer(r"\b(he|she|his|her|He|She)\b", text):
            story = text[: match.start()] + FLIPPED[match[0]] + text[match.end() :]
            assert find_fault("", story) is not None
            flips += 1
    assert flips > 200


def test_an_unfinished_story_is_a_fault() -> None:
    for stop in range(0, len(STORY), 7):
        assert find_fault(PROMPT, STORY[:stop]) is not None
