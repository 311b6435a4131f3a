"""Is a story right? Grammar, names, pronouns, possessions and all that was said before.

Contract: a story is right if it is one of those that the grammar can tell after its request. So a
wrong "he", another thing, a second name or a friend who turns into somebody else is a fault, and
the fault says where. A system prompt before the request does not matter.
"""

from __future__ import annotations

from training.storyteller.documents import GAP
from training.storyteller.grammar import GrammarError
from training.storyteller.stories import GRAMMAR, SYSTEM


def find_fault(prompt: str, story: str) -> GrammarError | None:
    r"""Give the first fault of a complete story; None: it is right.

    >>> find_fault("A story, please.\n\n", "Once upon a time there was a shy fox named Ada. He")
    GrammarError("character 66, after 'as a shy fox named Ada. ': found 'He', expected 'She'")
    """
    try:
        GRAMMAR.parse("exchange", prompt.removeprefix(SYSTEM + GAP) + story)
    except GrammarError as fault:
        return fault
    return None
