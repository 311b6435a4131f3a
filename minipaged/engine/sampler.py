"""From logits to tokens: one draw for each row of a batch.

A row's token depends on its logits, its params and one uniform number, and that number on the row's
seed and position alone. So a request draws the same tokens whatever else is in the batch, after a
preemption, and with its prompt cut into any chunks.

Log-probabilities are those of the model's own distribution: before bans, temperature and filters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from minipaged.engine.sampling_params import SamplingParams
from minipaged.engine.uniform import uniform
from minipaged.errors import ModelError


@dataclass(frozen=True)
class SamplingRow:
    """What to draw from one row of logits.

    Attributes:
        params: The request's.
        seed: Of this sample: the request's seed + the sample's index.
        position: Of the token to draw: how many tokens the sample has generated so far.
        banned: Tokens that may not come yet (EOS and stop tokens within `min_tokens`).
    """

    params: SamplingParams
    seed: int
    position: int
    banned: tuple[int, ...] = ()


class SampledToken(NamedTuple):
    """A token, its log-probability and, if asked for, those of the best tokens, best first."""

    token_id: int
    logprob: float
    top_logprobs: dict[int, float] | None


def sample(logits: Tensor, rows: Sequence[SamplingRow]) -> list[SampledToken]:
    """Choose a token for each row of `logits`, which are left as they are.

    Args:
        logits: fp32 [num_rows, vocab_size].
        rows: How to choose; one for each row of logits.

    Raises:
        ModelError: A row has a NaN, an infinity, or no token that may come.
    """
    assert len(logits) == len(rows), f"{len(logits)} rows of logits for {len(rows)} choices"
    _refuse_unusable(logits, rows, "NaN or infinite logits")
    logprobs = logits.log_softmax(-1)
    allowed = _without_banned(logits, rows)
    token_ids = allowed.argmax(-1)  # of equal ones the lowest id
    for i, row in enumerate(rows):
        if not row.params.greedy:
            token_ids[i] = _draw(allowed[i], row)
    chosen = logprobs.gather(-1, token_ids[:, None]).squeeze(-1)
    return [
        SampledToken(token_id, logprob, _top_logprobs(logprobs[i], token_id, row.params.logprobs))
        for i, (token_id, logprob, row) in enumerate(
            zip(token_ids.tolist(), chosen.tolist(), rows, strict=True)
        )
    ]


def _refuse_unusable(logits: Tensor, rows: Sequence[SamplingRow], what: str) -> None:
    usable = logits.amax(-1).isfinite()  # a NaN anywhere in a row makes its maximum a NaN
    if not usable.all():
        i = usable.tolist().index(False)
        raise ModelError(
            f"the model gave {what} in row {i} of {len(rows)}, for token {rows[i].position}"
        )


def _without_banned(logits: Tensor, rows: Sequence[SamplingRow]) -> Tensor:
    """Give the logits with -inf for banned tokens: a copy, if there are any."""
    if not any(row.banned for row in rows):
        return logits
    allowed = logits.clone()
    for i, row in enumerate(rows):
        allowed[i, [token_id for token_id in row.banned if token_id < allowed.shape[1]]] = -math.inf
    _refuse_unusable(allowed, rows, "no token that may come")
    return allowed


def _top_logprobs(logprobs: Tensor, token_id: int, count: int | None) -> dict[int, float] | None:
    """Give the `count` best of `logprobs` [vocab_size], best first, and the chosen token's."""
    if count is None:
        return None
    ids = top_k(logprobs, count).tolist() if count else []
    if token_id not in ids:
        ids.append(token_id)
    return dict(zip(ids, logprobs[ids].tolist(), strict=True))


# ---- One draw


def _draw(logits: Tensor, row: SamplingRow) -> int:
    """Draw a token from `logits` [vocab_size]."""
    # The maximum becomes 0, so that dividing by a tiny temperature can't overflow.
    logits = (logits - logits.max()) / min(max(row.params.temperature, 1e-30), 1e30)
    ids = torch.arange(len(logits), device=logits.device)
    for keep in _filters(row.params):
        kept = keep(logits)
        ids, logits = ids[kept], logits[kept]
    return int(ids[_inverse_cdf(logits.softmax(-1), uniform(row.seed, row.position))])


def _inverse_cdf(probs: Tensor, u: float) -> int:
    """Walk along `probs` [num_tokens] until they add up to more than `u`; give the index reached.

    They are added up as integers, in units of 2 ** -40: exactly, in any order. So no rounding can
    carry the walk past the end or let it stop at a probability of 0.

    >>> [_inverse_cdf(torch.tensor([0.25, 0.0, 0.75]), u) for u in (0.0, 0.2499, 0.25, 0.9999)]
    [0, 0, 2, 2]
    """
    reached = (probs * 2.0**40).long().cumsum(-1)
    target = int(u * int(reached[-1]))
    return int(torch.searchsorted(reached, target, right=True))


# ---- Filters: each takes logits [num_tokens] and gives the indices of the tokens that stay


def _filters(params: SamplingParams) -> Iterator[Callable[[Tensor], Tensor]]:
    """Give the filters that `params` asks for, in the order in which they narrow the choice."""
    if params.min_p > 0:
        yield partial(_min_p, min_p=params.min_p)
    if params.top_k > 0:
        yield partial(top_k, k=params.top_k)
    if params.top_p < 1:
        yield partial(_top_p, p=params.top_p)


def _min_p(logits: Tensor, min_p: float) -> Tensor:
    """Keep the tokens that are at least `min_p` times as likely as the likeliest."""
    return (logits >= logits.max() + math.log(min_p)).nonzero().squeeze(-1)


def top_k(logits: Tensor, k: int) -> Tensor:
    """Keep the `k` likeliest tokens, best first; of equals the first."""
    # Which of equal ones torch.topk takes is not defined, so only its last value is used.
    kth_best = logits.topk(min(k, len(logits))).values[-1]
    return _best_first((logits >= kth_best).nonzero().squeeze(-1), logits)[:k]


def _top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the fewest likeliest tokens that together have probability `p`; of equals the first."""
    probs = logits.softmax(-1)
    # Those below (1 - p) / num_tokens weigh less than 1 - p together: never needed, so not sorted.
    likely = (probs >= (1 - p) / len(probs)).nonzero().squeeze(-1)
    order = _best_first(likely, probs)
    mass_before = probs[order].cumsum(-1) - probs[order]
    return order[mass_before < max(p, 1e-30)]  # in fp32 a smaller one is 0, and none would stay


def _best_first(indices: Tensor, values: Tensor) -> Tensor:
    """Sort ascending `indices` by their `values`, falling; equal ones stay in order."""
    return indices[values[indices].argsort(descending=True, stable=True)]
