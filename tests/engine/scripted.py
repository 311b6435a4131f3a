"""Makes an LLM write a given text: the model runs, but what it says is not asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minipaged import LLM
from minipaged.engine.sampler import SampledToken


def let_it_write(llm: LLM, text: str | Sequence[int]) -> list[int]:
    """From now on every sample is `text`, then token 1 without end. Gives the text's token ids."""
    token_ids = llm.engine.tokenizer.encode(text) if isinstance(text, str) else list(text)

    def sample(logits: Any, rows: Sequence[Any]) -> list[SampledToken]:
        return [
            SampledToken(
                token_ids[row.position] if row.position < len(token_ids) else 1, -0.5, None
            )
            for row in rows
        ]

    llm.engine.runner.sample = sample  # type: ignore[method-assign]
    return token_ids
