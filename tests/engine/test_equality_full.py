"""Every family with every ratio of heads, head, RoPE and window, in every block size: all lengths.

The full cross of what `test_equality.py` tries in pairs. Slow.
"""

from __future__ import annotations

from typing import Any

import pytest
from all_pairs import full_cross
from random_models import Variant, random_prompt
from scenario import FORBIDDEN, VARIANT_FACTORS, name_of
from watched_engine import WatchedLLM

from minipaged import SamplingParams

pytestmark = pytest.mark.slow

MAX_TOKENS = 6
ROWS = full_cross({**VARIANT_FACTORS, "block_size": [1, 4, 16]}, FORBIDDEN)


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_greedy_tokens_equal_those_of_transformers(row, random_model, ties) -> None:
    size = row["block_size"]
    model = random_model(Variant(**{name: row[name] for name in VARIANT_FACTORS}))
    prompts = [random_prompt(length) for length in sorted({1, size - 1, size, size + 1, 200} - {0})]
    answers = [model.greedy(prompt, MAX_TOKENS) for prompt in prompts]

    def requests(*samples: int) -> list[Any]:
        return [
            (
                prompt,
                SamplingParams(n=samples[i % len(samples)], temperature=0, max_tokens=MAX_TOKENS),
            )
            for i, prompt in enumerate(prompts)
        ]

    def check(outputs: list[Any], at: slice = slice(None)) -> None:
        for output, answer in zip(outputs, answers[at], strict=True):
            for one in output.outputs:
                ties.check_equal(one.token_ids, answer)

    def start(**options: Any) -> WatchedLLM:
        options = {"block_size": size, "num_blocks": 2000 // size, "max_num_seqs": 20, **options}
        return WatchedLLM(model.folder, **options)

    plain = start(enable_prefix_caching=False)
    for i, request in enumerate(requests(1)):
        check(plain.run([request]), slice(i, i + 1))
    check(plain.run(requests(1)))
    check(plain.run(requests(4)))
    cached = start(max_num_batched_tokens=40)
    check(cached.run(requests(1)))
    outputs = cached.run(requests(1))
    check(outputs)
    assert [output.num_cached_tokens for output in outputs] == [
        (len(prompt) - 1) // size * size for prompt in prompts
    ]
    for how, num_swap_blocks in (("recompute", 0), ("swap", 2000 // size)):
        pressed = start(preemption=how, num_swap_blocks=num_swap_blocks, max_num_batched_tokens=80)
        check(pressed.run(requests(1, 4)))
        for step in range(1, pressed.num_steps):
            check(pressed.run_preempting(requests(1, 4), at_step=step, victim=step))
