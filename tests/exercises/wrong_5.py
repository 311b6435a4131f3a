"""Wrong solutions of chapter 5, and what the counterexample must say about each."""

from __future__ import annotations

import linecache
import math
from typing import Any

import torch

from minipaged.exercises.chapter_5 import ex_5_2
from minipaged.exercises.files import solution

# --- 5.1: one more block --------------------------------------------------------------------------


def never_rescales(state: Any, scores: Any, values: Any) -> Any:
    largest, total, weighted = state
    new = torch.maximum(largest, scores.max())
    weights = torch.exp(scores - new)
    return new, total + weights.sum(), weighted + weights @ values


def rescales_total_alone(state: Any, scores: Any, values: Any) -> Any:
    """Subtle: the accumulator is forgotten."""
    largest, total, weighted = state
    new = torch.maximum(largest, scores.max())
    weights = torch.exp(scores - new)
    return new, total * torch.exp(largest - new) + weights.sum(), weighted + weights @ values


def rescales_the_wrong_way(state: Any, scores: Any, values: Any) -> Any:
    largest, total, weighted = state
    new = torch.maximum(largest, scores.max())
    weights = torch.exp(scores - new)
    if largest == -math.inf:
        return new, weights.sum(), weights @ values
    rescale = torch.exp(new - largest)
    return new, total * rescale + weights.sum(), weighted * rescale + weights @ values


def largest_of_the_block(state: Any, scores: Any, values: Any) -> Any:
    """Subtle: right in exact numbers, but exp(largest - new) may be anything."""
    largest, total, weighted = state
    new = scores.max()
    weights, rescale = torch.exp(scores - new), torch.exp(largest - new)
    return new, total * rescale + weights.sum(), weighted * rescale + weights @ values


def rescales_everything(state: Any, scores: Any, values: Any) -> Any:
    largest, total, weighted = state
    new = torch.maximum(largest, scores.max())
    weights, rescale = torch.exp(scores - new), torch.exp(largest - new)
    if largest == -math.inf:
        return new, weights.sum(), weights @ values
    return new, (total + weights.sum()) * rescale, (weighted + weights @ values) * rescale


def forgets_the_past(state: Any, scores: Any, values: Any) -> Any:
    new = torch.maximum(state[0], scores.max())
    weights = torch.exp(scores - new)
    return new, weights.sum(), weights @ values


def shifts_by_nothing(state: Any, scores: Any, values: Any) -> Any:
    largest, total, weighted = state
    weights = torch.exp(scores)
    return torch.maximum(largest, scores.max()), total + weights.sum(), weighted + weights @ values


def returns_the_result(state: Any, scores: Any, values: Any) -> Any:
    return torch.softmax(scores, 0) @ values


# --- 5.2: the kernel's loop -----------------------------------------------------------------------

KERNEL = solution(ex_5_2).read_text(encoding="utf-8")


def mistake(*changes: tuple[str, str]) -> Any:
    """The solution with lines that are not as they should be; its source can be found."""
    text = KERNEL
    for right, wrong in changes:
        assert right in text, right
        text = text.replace(right, wrong)
    file = f"<paged_decode_inner with {changes}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    names: dict[str, Any] = {"__name__": file}
    exec(compile(text, file, "exec"), names)
    return names["paged_decode_inner"]


MASK = ", mask=visible[:, None], other=0.0)"
NO_MINUS_INF = ('scores = tl.where(visible[None, :], scores, float("-inf"))', "pass")
ROWS = "((block * BLOCK_SIZE + slots) * NUM_KV_HEADS + kv_head) * HEAD_DIM"
RESCALED = "weighted * rescale[:, None]"

KERNELS = {
    "table-ignored": (
        mistake(("block = tl.load(block_table + index)", "block = index")),
        "where B's tokens lie: entry 0 of A's table says block 1",
    ),
    "first-block-again": (
        mistake(("tl.load(block_table + index)", "tl.load(block_table)")),
        "entry 1 of the table, was not read to its end from key_cache",
    ),
    "neighbours": (
        mistake(("tl.load(block_table + index)", "tl.load(block_table) + index")),
        "of A's table says block",
    ),
    "last-block-not-read": (
        mistake(("tl.cdiv(seq_len, BLOCK_SIZE)", "seq_len // BLOCK_SIZE")),
        "block 1, entry 0 of the table, was not read to its end from key_cache; it holds 1 of",
    ),
    "tail-not-masked": (
        mistake((MASK, ")"), NO_MINUS_INF),
        "hold no token",
    ),
    "tail-scores-zero": (mistake(NO_MINUS_INF), "their score must be -inf"),
    "values-not-masked": (
        mistake(("value_cache + here" + MASK, "value_cache + here)")),
        "0 * NaN is NaN: mask both",
    ),
    "one-token-too-many": (
        mistake(("+ slots < seq_len", "+ slots <= seq_len")),
        "1 of 2 slots of block 1 hold no token",
    ),
    "head-forgotten": (
        mistake((ROWS, "(block * BLOCK_SIZE + slots) * NUM_KV_HEADS * HEAD_DIM")),
        "reads KV head 0 of key_cache; this program is KV head 1's",
    ),
    "heads-before-slots": (
        mistake((ROWS, "((block * NUM_KV_HEADS + kv_head) * BLOCK_SIZE + slots) * HEAD_DIM")),
        "reads KV head",
    ),
    "not-rescaled": (
        mistake((RESCALED, "weighted")),
        "the old weighted values were not rescaled",
    ),
    "total-not-rescaled": (
        mistake(("total * rescale", "total")),
        "block 2 has a larger score than all before: the old total was not rescaled",
    ),
    "wrong-way": (
        mistake(("tl.exp(largest - new_largest)", "tl.exp(new_largest - largest)")),
        "the wrong way round",
    ),
    "no-shift": (
        mistake(
            ("tl.exp(scores - new_largest[:, None])", "tl.exp(scores)"),
            ("tl.exp(largest - new_largest)", "tl.exp(total * 0)"),
        ),
        "more than fp32 can hold",
    ),
    "largest-of-the-block": (
        mistake(("tl.maximum(largest, tl.max(scores, axis=1))", "tl.max(scores, axis=1)")),
        "more than fp32 can hold",
    ),
    "no-scale": (mistake((" * scale", "")), "not multiplied by scale"),
    "no-division": (mistake((" / total[:, None]", "")), "not divided by total"),
    "total-returned": (
        mistake(("return weighted / total[:, None]", "return total")),
        "returned a tile [1], not [rows, HEAD_DIM] = [1, 2]",
    ),
    "nothing-returned": (mistake(("return weighted / total[:, None]", "pass")), "returned None"),
    "an-error": (mistake(("slots, dims =", "slots, dim =")), "name 'dims' is not defined"),
    "beyond-the-table": (
        mistake(("tl.cdiv(seq_len, BLOCK_SIZE)", "tl.cdiv(seq_len, BLOCK_SIZE) + 1"), (MASK, ")")),
        "what lies behind it names no block",
    ),
}

# --- 5.3: joining parts ---------------------------------------------------------------------------


def plain_mean(parts: Any, log_sums: Any) -> Any:
    return parts.mean(0)


def adds_up(parts: Any, log_sums: Any) -> Any:
    """Weighs by the sums, and forgets to divide by all of them."""
    return torch.exp(log_sums) @ parts


def no_shift(parts: Any, log_sums: Any) -> Any:
    """Subtle: right until a score is large."""
    sums = torch.exp(log_sums)
    return sums @ parts / sums.sum()


def weighs_by_logs(parts: Any, log_sums: Any) -> Any:
    return log_sums @ parts / log_sums.sum()


def wrong_sign(parts: Any, log_sums: Any) -> Any:
    return torch.softmax(-log_sums, 0) @ parts


def likeliest_part(parts: Any, log_sums: Any) -> Any:
    return parts[log_sums.argmax()]


def empty_parts_count(parts: Any, log_sums: Any) -> Any:
    """Subtle: an empty part's log-sum becomes 0, as if it had one token with a score of 0."""
    return torch.softmax(log_sums.masked_fill(log_sums == -math.inf, 0), 0) @ parts


def one_number_each(parts: Any, log_sums: Any) -> Any:
    return float(torch.softmax(log_sums, 0) @ parts[:, 0])


WRONG: dict[str, dict[str, tuple[Any, str]]] = {
    "5.1": {
        "never-rescales": (never_rescales, "the old total 1 was summed up when 0 was the largest"),
        "accumulator-not-rescaled": (rescales_total_alone, "the old weighted"),
        "wrong-way": (rescales_the_wrong_way, "the wrong way round, by exp("),
        "largest-of-the-block": (largest_of_the_block, "from an earlier block"),
        "everything-rescaled": (rescales_everything, "not what this block adds"),
        "past-forgotten": (forgets_the_past, "it was forgotten"),
        "no-shift": (shifts_by_nothing, "exp(score - "),
        "result-instead": (returns_the_result, "three values were expected"),
    },
    "5.2": KERNELS,
    "5.3": {
        "plain-mean": (plain_mean, "in yours every part weighs 1 / 2"),
        "not-divided": (adds_up, "your weights add up to"),
        "no-shift": (no_shift, "too large for fp32: subtract the largest"),
        "weighs-by-logs": (weighs_by_logs, "% of the sum of exp(score)"),
        "wrong-sign": (wrong_sign, "% of the sum of exp(score)"),
        "likeliest-part": (likeliest_part, "% of the sum of exp(score)"),
        "empty-part-counts": (empty_parts_count, "the logarithm of that -inf, its weight 0"),
        "one-number": (one_number_each, "a tensor [head_dim] was expected"),
    },
}
