"""Chapter 5, the attention kernel: online softmax, the kernel's loop, joining parts."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from minipaged.exercises.exercise import Exercise


def _later(place: str) -> Callable[..., Any]:
    """Stand for a function whose module needs torch, so it is imported when it is called."""
    module, _, name = place.partition(":")

    def call(*arguments: Any) -> Any:
        return getattr(import_module(f"minipaged.exercises.{module}"), name)(*arguments)

    return call


ex_5_1 = Exercise(
    "5.1",
    "online softmax, one more block",
    ("attend_one_block(state, scores, values)",),
    _later("scored_context:contexts"),
    _later("running_values:judge_block"),
    max_cases=150,
)
ex_5_2 = Exercise(
    "5.2",
    "the kernel's loop through the block table",
    (
        "paged_decode_inner(q, key_cache, value_cache, block_table, seq_len, kv_head, scale, "
        "BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM)",
    ),
    _later("kernel_loop:all_cases"),
    _later("kernel_loop:judge_kernel"),
)
ex_5_3 = Exercise(
    "5.3",
    "joining the parts of a context",
    ("merge_parts(parts, log_sums)",),
    _later("running_values:splits"),
    _later("running_values:judge_merge"),
    twin="minipaged_kernels.reference:merge_parts",
    max_cases=150,
)
