"""What a caller asks of decoding: `SamplingParams` to draw tokens, `BeamSearchParams` to search.

Plain Python without torch. Both are frozen and checked when built: whoever holds one need not check
again. Lists become tuples, so that params can be hashed and shared. Names follow vLLM.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any

from minipaged.errors import ConfigError

OUR_NAME_FOR = {
    "best_of": "n, and pick the best of them",
    "do_sample": "temperature (0 takes the likeliest token)",
    "max_new_tokens": "max_tokens",
    "num_beams": "BeamSearchParams(beam_width=...)",
    "num_return_sequences": "n",
    "stop_strings": "stop",
    "use_beam_search": "BeamSearchParams(beam_width=...)",
}


class _NamedArguments:
    """A base for params: refuses an argument that does not exist and names those that do."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        known = [field.name for field in fields(cls)]  # type: ignore[arg-type]  # its heirs are dataclasses
        for name in kwargs:
            if name not in known:
                hint = f"; use {OUR_NAME_FOR[name]}" if name in OUR_NAME_FOR else ""
                raise ConfigError(
                    f"{cls.__name__} has no argument {name!r}{hint}; it takes {', '.join(known)}"
                )
        return super().__new__(cls)

    def _normalise(self, **values: object) -> None:
        """Put the checked values in place, once, while the frozen object is being built."""
        for name, value in values.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, kw_only=True)
class SamplingParams(_NamedArguments):
    """How one request's tokens are chosen and when they end.

    The filters narrow the choice in this order: temperature, min_p, top_k, top_p.

    >>> SamplingParams(temperature=0.8, top_k=-1, stop="END").stop
    ('END',)
    >>> SamplingParams(top_p=1.5)
    Traceback (most recent call last):
    minipaged.errors.ConfigError: top_p must be a finite number above 0 and at most 1, not 1.5

    Attributes:
        n: Samples drawn for one prompt; they share its KV blocks.
        temperature: Divides the logits: below 1 sharpens, above 1 flattens, 0 takes the likeliest.
        top_p: Draw from the fewest likeliest tokens that together have this probability.
        top_k: Draw from this many likeliest tokens; 0 or -1 means all (kept as 0).
        min_p: Draw from tokens that have at least this share of the likeliest one's probability.
        seed: Makes the draws repeatable; sample i of the n draws with seed + i. If None, the
            engine chooses.
        stop: One string or several; the text ends before the first that appears. Kept as a tuple.
        stop_token_ids: Tokens that end the text as EOS does. Kept as a tuple.
        ignore_eos: Go on after EOS.
        max_tokens: The most tokens to generate.
        min_tokens: EOS, stop tokens and stop strings have no effect within this many tokens.
        logprobs: Report this many best tokens and the chosen one at each position; None: nothing.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    ignore_eos: bool = False
    max_tokens: int = 16
    min_tokens: int = 0
    logprobs: int | None = None

    def __post_init__(self) -> None:
        self._normalise(
            n=_integer("n", self.n, 1),
            temperature=_number("temperature", self.temperature, 0, math.inf),
            top_p=_number("top_p", self.top_p, 0, 1, above=True),
            top_k=max(0, _integer("top_k", self.top_k, -1)),
            min_p=_number("min_p", self.min_p, 0, 1),
            stop=_stop_strings(self.stop),
            stop_token_ids=_token_ids("stop_token_ids", self.stop_token_ids),
            ignore_eos=_flag("ignore_eos", self.ignore_eos),
            max_tokens=_integer("max_tokens", self.max_tokens, 1),
        )
        self._normalise(min_tokens=_integer("min_tokens", self.min_tokens, 0, self.max_tokens))
        if self.seed is not None:
            self._normalise(seed=_integer("seed", self.seed, 0, 2**64 - 1))
        if self.logprobs is not None:
            self._normalise(logprobs=_integer("logprobs", self.logprobs, 0))

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken, so that nothing is drawn."""
        return self.temperature == 0


@dataclass(frozen=True, kw_only=True)
class BeamSearchParams(_NamedArguments):
    """How a beam search runs. It draws nothing: there is no temperature and no seed.

    >>> BeamSearchParams(beam_width=4, max_tokens=32).length_penalty
    1.0

    Attributes:
        beam_width: Beams kept alive, and sequences returned.
        max_tokens: The most tokens to generate.
        length_penalty: A sequence's score is its log-probability / length ** length_penalty:
            0 compares sums and favours short ones, 1 compares means, above 1 favours long ones.
        ignore_eos: Go on after EOS.
    """

    beam_width: int
    max_tokens: int
    length_penalty: float = 1.0
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        self._normalise(
            beam_width=_integer("beam_width", self.beam_width, 1),
            max_tokens=_integer("max_tokens", self.max_tokens, 1),
            length_penalty=_number("length_penalty", self.length_penalty, -10, 10),
            ignore_eos=_flag("ignore_eos", self.ignore_eos),
        )


def _integer(name: str, value: object, low: int, high: int | None = None) -> int:
    if not isinstance(value, bool) and isinstance(value, Integral):
        number = int(value)
        if low <= number and (high is None or number <= high):
            return number
    allowed = f"of at least {low}" if high is None else f"from {low} to {high}"
    raise ConfigError(f"{name} must be an integer {allowed}, not {value!r}")


def _number(name: str, value: object, low: float, high: float, *, above: bool = False) -> float:
    """Check a finite number in [low, high], or in (low, high] if it must lie `above`."""
    if not isinstance(value, bool) and isinstance(value, Real):
        number = float(value)
        if math.isfinite(number) and low <= number <= high and not (above and number == low):
            return number
    lowest = f"above {low}" if above else f"of at least {low}"
    allowed = lowest if high == math.inf else f"{lowest} and at most {high}"
    raise ConfigError(f"{name} must be a finite number {allowed}, not {value!r}")


def _flag(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ConfigError(f"{name} must be True or False, not {value!r}")


def _stop_strings(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    strings = (value,) if isinstance(value, str) else _items("stop", value, "strings")
    for string in strings:
        if not isinstance(string, str) or not string:
            raise ConfigError(f"stop must be one or several non-empty strings, not {value!r}")
    return strings


def _token_ids(name: str, value: object) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(_integer(f"each of {name}", item, 0) for item in _items(name, value, "token ids"))


def _items(name: str, value: object, kind: str) -> tuple[Any, ...]:
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return tuple(value)
    raise ConfigError(f"{name} must be a list of {kind}, not {value!r}")
