"""Equal tokens, except behind a tie: there two ways to add up the same numbers may differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from random_models import BeamAnswer, GreedyAnswer


class Ties:
    """Compares tokens, excuses a difference at a tie, and counts: a test can't excuse everything.

    A difference is a tie's if transformers' best two logits lie within `closest` and ours is the
    second of them. What comes behind one is another text and can't be compared.
    """

    def __init__(self, closest: float = 1e-4, most: float = 0.01) -> None:
        self.closest = closest
        self.most = most
        self.num_compared = 0
        self.excused: list[str] = []

    def check_equal(self, token_ids: Sequence[int], answer: GreedyAnswer) -> None:
        self.num_compared += 1
        if list(token_ids) == answer.token_ids:
            return
        pairs = enumerate(zip(token_ids, answer.token_ids, strict=False))
        at = next((i for i, (ours, theirs) in pairs if ours != theirs), None)
        assert at is not None, f"{len(token_ids)} tokens, not {len(answer.token_ids)}"
        place = f"token {at}: {token_ids[at]}, not {answer.token_ids[at]} by {answer.leads[at]:.1e}"
        assert answer.leads[at] <= self.closest, place
        assert token_ids[at] == answer.runners_up[at], place
        self.excused.append(place)

    def check_beams(self, sequences: Sequence[Any], answers: Sequence[BeamAnswer]) -> None:
        """Scores lie within `closest`, sequences are equal; those of one score in any order."""
        assert len(sequences) == len(answers)
        for found, answer in zip(sequences, answers, strict=True):
            self.num_compared += 1
            assert abs(found.score - answer.score) <= self.closest, f"{found}, not {answer}"
            if found.token_ids != answer.token_ids:
                alike = [a for a in answers if abs(a.score - found.score) <= self.closest]
                assert found.token_ids in [a.token_ids for a in alike], f"{found}, not {answer}"
                self.excused.append(f"beams of score {found.score}")

    def check_few_excused(self) -> None:
        allowed = int(self.most * self.num_compared)
        assert len(self.excused) <= allowed, f"more than {allowed} ties: {self.excused}"
