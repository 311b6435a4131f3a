"""Why a sequence ends, and how much of its text may be shown before that is known.

Pure functions, to be asked after each token in this order:

1. `finish_reason` looks at the token's id. If it says "stop", the token's own text is left out.
2. `find_stop_string` looks at the text, the token's own appended. If it finds one, the text is cut
   there and the reason is "stop", even if step 1 said "length". The token ids keep the token.
3. `safe_length` tells a stream how much to show: the rest may be the start of a stop string.

Within `min_tokens` nothing stops a sequence: step 2 is left out, and `banned_tokens` keeps the
sampler from choosing a token that step 1 would have to let pass.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from minipaged.engine.sampling_params import SamplingParams

FinishReason = Literal["stop", "length", "abort"]


def stop_tokens(params: SamplingParams, eos_token_ids: Collection[int]) -> frozenset[int]:
    """Give the tokens that end a sequence.

    >>> sorted(stop_tokens(SamplingParams(stop_token_ids=[7]), eos_token_ids=[2]))
    [2, 7]
    >>> sorted(stop_tokens(SamplingParams(stop_token_ids=[7], ignore_eos=True), eos_token_ids=[2]))
    [7]
    """
    return frozenset(params.stop_token_ids or ()).union(() if params.ignore_eos else eos_token_ids)


def banned_tokens(
    params: SamplingParams, eos_token_ids: Collection[int], num_output_tokens: int
) -> tuple[int, ...]:
    """Give the tokens that may not come next: those that end a sequence, within `min_tokens`.

    With `ignore_eos` EOS may come, as it ends nothing.

    >>> banned_tokens(SamplingParams(min_tokens=3), eos_token_ids=[2], num_output_tokens=2)
    (2,)
    >>> banned_tokens(SamplingParams(min_tokens=3), eos_token_ids=[2], num_output_tokens=3)
    ()
    """
    if num_output_tokens >= params.min_tokens:
        return ()
    return tuple(sorted(stop_tokens(params, eos_token_ids)))


def finish_reason(
    params: SamplingParams, eos_token_ids: Collection[int], output_token_ids: Sequence[int]
) -> FinishReason | None:
    """Tell whether the last of `output_token_ids` ends the sequence, and why.

    `params.max_tokens` must be what the model's length leaves at most.

    >>> params = SamplingParams(max_tokens=3)
    >>> finish_reason(params, {2}, output_token_ids=[8, 9])
    >>> finish_reason(params, {2}, output_token_ids=[8, 2])
    'stop'
    >>> finish_reason(params, {2}, output_token_ids=[8, 9, 9])
    'length'
    """
    num_output_tokens = len(output_token_ids)
    if num_output_tokens > params.min_tokens and (
        output_token_ids[-1] in stop_tokens(params, eos_token_ids)
    ):
        return "stop"
    return "length" if num_output_tokens >= params.max_tokens else None


def find_stop_string(text: str, start: int, stop: Sequence[str]) -> int | None:
    """Give the length to cut `text` to: up to the first stop string that ends beyond `start`.

    The first to be complete counts, so the cut does not depend on how the text comes in pieces.
    Only the text since `start` and as much before it as a stop string could span is looked at.

    Args:
        text: All that was generated.
        start: How much of it was looked at before, in characters.
        stop: Non-empty strings.

    >>> find_stop_string("one, two.", start=7, stop=["three", "two"])
    5
    >>> find_stop_string("one, two.", start=8, stop=["three", "two"])
    """
    found = []
    for string in stop:
        begin = text.find(string, max(0, start - len(string) + 1))
        if begin >= 0:
            found.append((begin + len(string), begin))
    return min(found)[1] if found else None


def safe_length(text: str, stop: Sequence[str]) -> int:
    """Give how much of `text`, which holds no stop string, can't become part of one.

    Grows with the text: what was safe once stays safe.

    >>> safe_length("one tw", stop=["two", "w!"])
    4
    >>> safe_length("one tw", stop=[])
    6
    """
    longest = max(map(len, stop), default=0)
    for begin in range(max(0, len(text) - longest + 1), len(text)):
        if any(string.startswith(text[begin:]) for string in stop):
            return begin
    return len(text)
