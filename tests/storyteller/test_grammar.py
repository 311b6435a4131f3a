"""The story grammar: one reading of each text, its exact probability, and how many there are."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator

import pytest

from training.storyteller.counting import count, find_clashes, tally
from training.storyteller.grammar import Grammar, GrammarError, Leads, walk
from training.storyteller.notation import NotationError, Slot
from training.storyteller.stories import GRAMMAR, SYSTEM
from training.storyteller.words import SLOTS

# A grammar that is small enough to write every text down.
SMALL_SLOTS = (
    Slot("name", ({"name": "Ada", "he": "she"}, {"name": "Ben", "he": "he"})),
    Slot.of_words("kind", "ant, bear, owl"),
)
SMALL_RULES = {
    "text": "[{A kind}[ met {name}.| slept.]|{name} <met>] [{He} sang.|{name} [ran|sat].] {name}.",
    "met": "met {a kind}.",
}


@pytest.fixture
def small() -> Grammar:
    return Grammar(SMALL_RULES, SMALL_SLOTS)


class Scripted:
    """A voice whose first choices are given; it notes what it says, and then stops to be asked."""

    def __init__(self, script: tuple[int, ...]) -> None:
        self.text = ""
        self.counts: list[int] = []
        self._script = iter(script)

    def say(self, text: str) -> None:
        self.text += text

    def choose(self, count: int, leads: Leads) -> int:
        self.counts.append(count)
        return next(self._script)


def derivations(grammar: Grammar, rule: str, text: str | None = None) -> Iterator[Scripted]:
    """Every derivation of a rule, or of one text, by trying each alternative of each choice."""
    scripts: list[tuple[int, ...]] = [()]
    while scripts:
        script = scripts.pop()
        voice = Scripted(script)
        try:
            walk(grammar.rules[rule], voice, {})
        except StopIteration:
            if text is None or text.startswith(voice.text):
                scripts += [(*script, index) for index in range(voice.counts[-1])]
        else:
            if text in (None, voice.text):
                yield voice


# --- one reading


def test_no_choice_of_the_stories_is_ambiguous() -> None:
    assert find_clashes(GRAMMAR.rules["exchange"]) == []


def test_each_sample_has_exactly_one_derivation() -> None:
    """By a parser that knows nothing of leads: it tries all alternatives."""
    rng = random.Random(3)
    for _ in range(6):
        text = GRAMMAR.sample("exchange", rng)
        found = list(derivations(GRAMMAR, "exchange", text))
        assert len(found) == 1
        choices = [choice.count for choice in GRAMMAR.parse("exchange", text).choices]
        assert choices == found[0].counts


def test_every_sample_is_read_back() -> None:
    rng = random.Random(4)
    for _ in range(300):
        text = GRAMMAR.sample("exchange", rng)
        assert GRAMMAR.parse("exchange", text).text == text


@pytest.mark.parametrize(
    ("rule", "clash"),
    [
        ("[a fox|a fox ran]", "'a fox' begins 'a fox ran'"),
        ("[the {kind}|the owl]", "'the ' begins 'the owl'"),
        ("[|x]", "'' begins 'x'"),
        ("{name} and [{name} sat|Ada sat]", "'Ada sat' begins 'Ada sat'"),
        ("[{name} sat|{kind} sat|owl]", "'owl' begins 'owl'"),  # an open slot: any of its words
    ],
)
def test_an_ambiguous_choice_is_found(rule: str, clash: str) -> None:
    assert clash in find_clashes(Grammar({"text": rule}, SMALL_SLOTS).rules["text"])


def test_words_that_begin_alike_are_found() -> None:
    grammar = Grammar({"text": "{word}"}, [Slot.of_words("word", "hen, hens")])
    assert find_clashes(grammar.rules["text"]) == ["'hen' begins 'hens'"]


def test_what_agrees_may_begin_alike_in_different_worlds() -> None:
    """ "He sat" and "Her hat" cannot stand at one place: one is for Ben, the other for Ada."""
    ada = {"name": "Ada", "he": "she", "his": "her"}
    slot = Slot("name", (ada, {"name": "Ben", "he": "he", "his": "his"}))
    grammar = Grammar({"text": "{name}. [{He} sat|{His} hat]"}, [slot])
    assert find_clashes(grammar.rules["text"]) == []


# --- probability


def test_the_texts_of_a_small_grammar_are_all_different_and_their_probabilities_sum_to_1(
    small: Grammar,
) -> None:
    texts = [voice.text for voice in derivations(small, "text")]
    assert len(texts) == len(set(texts)) == count(small.rules["text"]).texts
    probabilities = [math.exp(-small.parse("text", text).nats()) for text in texts]
    assert math.fsum(probabilities) == pytest.approx(1, abs=1e-12)


def test_the_tally_of_a_small_grammar_is_that_of_its_texts(small: Grammar) -> None:
    nats = [small.parse("text", v.text).nats() for v in derivations(small, "text")]
    total = count(small.rules["text"])
    assert total.probability == pytest.approx(1)
    assert total.weighted_nats == pytest.approx(sum(math.exp(-n) * n for n in nats))
    assert (total.least_nats, total.most_nats) == pytest.approx((min(nats), max(nats)))


def test_samples_come_as_often_as_their_probability_says(small: Grammar) -> None:
    rng, draws = random.Random(0), 20_000
    drawn = [small.sample("text", rng) for _ in range(draws)]
    for text in {voice.text for voice in derivations(small, "text")}:
        expected = draws * math.exp(-small.parse("text", text).nats())
        assert abs(drawn.count(text) - expected) < 5 * math.sqrt(expected)


def test_sampled_entropy_is_the_counted_one() -> None:
    rng = random.Random(7)
    nats = [GRAMMAR.parse("story", GRAMMAR.sample("story", rng)).nats() for _ in range(1500)]
    spread = math.sqrt(sum((n - sum(nats) / len(nats)) ** 2 for n in nats) / len(nats))
    mean = sum(nats) / len(nats)
    assert abs(mean - count(GRAMMAR.rules["story"]).weighted_nats) < 5 * spread / math.sqrt(1500)


def test_nats_after_a_point_are_those_of_the_choices_there() -> None:
    derivation = Grammar({"text": "[a|b] and [c|d|e]"}, ()).parse("text", "a and d")
    assert derivation.nats() == pytest.approx(math.log(6))
    assert derivation.nats(start=6) == pytest.approx(math.log(3))


@pytest.mark.parametrize("rule", ["ask", "please", "question", "opening"])
def test_each_request_leaves_more_than_a_billion_stories(rule: str) -> None:
    """Whatever the request has settled: 40 nats at least are left, for each story."""
    rest = "rest" if rule == "opening" else "story"
    for settled in tally(GRAMMAR.rules[rule]):
        left = count(GRAMMAR.rules[rest], settled)
        assert left.texts > 10**9
        assert left.least_nats >= 40


# --- what a story is


def test_a_story_keeps_to_what_its_request_says() -> None:
    rng = random.Random(1)
    for _ in range(50):
        text = GRAMMAR.sample("exchange", rng)
        facts = GRAMMAR.parse("exchange", text).facts
        said = {name: text.count(row[name]) for name, row in facts.items() if name != "deed"}
        assert said["thing"] >= 4
        assert said["name"] >= 6
        assert min(said["kind"], said["helper"]) >= 2
        assert min(said["goal"], said["person"], said["home"], said["color"]) >= 2


def test_no_word_is_a_hero_and_a_helper() -> None:
    tables = {slot.name: slot.rows for slot in SLOTS}
    words = {name: {row.get(name, "") for row in rows} for name, rows in tables.items()}
    for one, other in itertools.combinations(("kind", "helper", "thief", "thing"), 2):
        assert not words[one] & words[other]


def test_texts_are_plain() -> None:
    rng = random.Random(5)
    for _ in range(100):
        text = GRAMMAR.sample("exchange", rng)
        assert text.isascii()
        assert "  " not in text
        assert not set(text) & set("[]{}<>|")
    assert SYSTEM.startswith("You are a storyteller. ")


# --- the notation


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("[a|b", "rule <text>: a '[' is never closed"),
        ("a]", "rule <text>: ']' stands outside of any bracket"),
        ("a|b", "rule <text>: '|' stands outside of any bracket"),
        ("[a]", "rule <text>: a choice needs two alternatives"),
        ("{dog}", "rule <text>: no slot has a form {dog}"),
        ("{dog", "rule <text>: '{' has no counterpart"),
        ("<nothing>", "rule <text>: there is no rule <nothing>"),
        ("a <text>", "rule <text>: <text> contains itself"),
    ],
)
def test_a_rule_that_is_written_wrongly_is_refused(rule: str, message: str) -> None:
    with pytest.raises(NotationError) as caught:
        Grammar({"text": rule}, SMALL_SLOTS)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("{A kind}", "An owl"), ("{a kind}", "an owl"), ("{Kind} {kind}", "Owl owl")],
)
def test_a_mention_has_its_article_and_its_capital(rule: str, expected: str) -> None:
    grammar = Grammar({"text": rule}, [Slot.of_words("kind", "owl, owl")])
    assert grammar.sample("text", random.Random(0)) == expected


def test_a_fault_says_where_and_what_was_expected(small: Grammar) -> None:
    with pytest.raises(GrammarError) as caught:
        small.parse("text", "An owl met Ada. He sang. Ada.")
    assert caught.value.position == 16
    assert caught.value.expected == ("Ada ", "She sang.")
    assert "found 'He sang. Ada.', expected 'Ada ', 'She sang.'" in str(caught.value)


def test_what_follows_the_end_is_a_fault(small: Grammar) -> None:
    with pytest.raises(GrammarError, match="expected 'the end'"):
        small.parse("text", "An owl met Ada. She sang. Ada. And")
