"""How much a request reserves before it may start, where its cache must lie in one piece.

Three rules, after Orca as the PagedAttention paper describes it (sec. 6.1): the longest text that
the model allows (Max); the prompt and the next power of two of what the output will need (Pow2); or
exactly what it will need, which nobody knows in practice (Oracle).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from minipaged.errors import ConfigError, RequestRefusedError


class ReservationPolicy(Protocol):
    """A rule that turns lengths into a number of tokens to reserve.

    `name` stands in a trace's header as its allocator.
    """

    @property
    def name(self) -> str:
        """Give the rule's name."""
        ...

    def reserve(self, num_prompt_tokens: int, num_new_tokens: int | None) -> int:
        """Give how many tokens of KV one sequence reserves.

        `num_new_tokens` is what it will generate in the end; None where nobody told. The last token
        is sampled but never fed back, so a text of p + n tokens needs p + n - 1 slots.

        Raises:
            RequestRefusedError: The text is longer than the model allows.
            ConfigError: The rule needs `num_new_tokens`, and nobody told.
        """
        ...


@dataclass(frozen=True)
class ReserveMax:
    """Reserve the longest text that the model allows.

    >>> ReserveMax(max_model_len=2048).reserve(num_prompt_tokens=100, num_new_tokens=25)
    2048
    """

    max_model_len: int
    name: str = "orca-max"

    def reserve(self, num_prompt_tokens: int, num_new_tokens: int | None) -> int:
        """Give the model's longest text, whatever the lengths are."""
        _check_length(num_prompt_tokens, num_new_tokens or 1, self.max_model_len)
        return self.max_model_len


@dataclass(frozen=True)
class ReservePow2:
    """Reserve the prompt and the next power of two of the output: at most twice what it needs.

    Nobody reserves more than the longest text that the model allows.

    >>> ReservePow2(max_model_len=2048).reserve(num_prompt_tokens=100, num_new_tokens=25)
    132
    """

    max_model_len: int
    name: str = "orca-pow2"

    def reserve(self, num_prompt_tokens: int, num_new_tokens: int | None) -> int:
        """Give prompt + 2**k, the least k that is enough for the output."""
        num_new = max(_told(self.name, num_new_tokens), 1)
        _check_length(num_prompt_tokens, num_new, self.max_model_len)
        return min(num_prompt_tokens + (1 << (num_new - 1).bit_length()), self.max_model_len)


@dataclass(frozen=True)
class ReserveOracle:
    """Reserve exactly what will be used: infeasible in practice, the best that slabs could do.

    >>> ReserveOracle().reserve(num_prompt_tokens=100, num_new_tokens=25)
    124
    """

    name: str = "orca-oracle"

    def reserve(self, num_prompt_tokens: int, num_new_tokens: int | None) -> int:
        """Give the slots of the finished text."""
        return num_prompt_tokens + max(_told(self.name, num_new_tokens), 1) - 1


def _check_length(num_prompt_tokens: int, num_new_tokens: int, max_model_len: int) -> None:
    needed = num_prompt_tokens + max(num_new_tokens, 1) - 1
    if needed > max_model_len:
        raise RequestRefusedError(
            f"needs {needed} tokens of KV, a slab holds max_model_len = {max_model_len}"
        )


def _told(name: str, num_new_tokens: int | None) -> int:
    if num_new_tokens is None:
        raise ConfigError(f"{name} must know the length of an output before it starts: announce it")
    return num_new_tokens
