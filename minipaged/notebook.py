"""In a notebook: one line that opens a live session on a model.

    session = live()                        # or: live("smollm2", num_blocks=64, block_size=8)
    session                                 # shows it
    await session.run_async()               # runs until all is done, or somebody presses pause

It needs the extra `notebook`. This file may know both an engine and a view.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from minipaged.engine.sampling_params import SamplingParams
from minipaged.errors import ConfigError, MinipagedError
from minipaged.memory.events import short
from minipaged.models.catalog import DEFAULT_MODEL

_FIELDS_OF_A_REQUEST = ("n", "max_tokens")

if TYPE_CHECKING:
    from minipaged_visualizer.live_session import LiveSession


def live(
    model: str = DEFAULT_MODEL, *, sampling: Mapping[str, Any] | None = None, **options: Any
) -> LiveSession:
    """Give a widget around an engine that runs a model.

    Args:
        model: What `LLM` takes.
        sampling: What `SamplingParams` takes beside `n` and `max_tokens`: {"temperature": 0.8}.
        options: What else `LLM` takes. Those that have a field in the widget stand in it at first.

    Raises:
        ConfigError: A setting makes no sense or does not exist.
        MinipagedError: The extra `notebook` is not installed, or the engine can't be built.
    """
    try:
        from minipaged_visualizer.live_fields import ENGINE_FIELDS
        from minipaged_visualizer.live_session import LiveSession
    except ImportError:
        raise MinipagedError(
            "a live session needs more packages: pip install 'minipaged[notebook]'"
        ) from None
    from minipaged.llm import LLM

    _check_sampling(sampling)
    make_params = partial(SamplingParams, **(sampling or {}))
    make_params()  # what makes no sense is told here, not when a button is pressed
    fields = {name: options.pop(name) for name in ENGINE_FIELDS if name in options}

    def make_engine(**settings: Any) -> LLM:
        return LLM(model, **{"trace": True, **options, **settings})

    return LiveSession(make_engine, make_params, **fields)


def _check_sampling(sampling: object) -> None:
    if not (sampling is None or isinstance(sampling, Mapping)):
        raise ConfigError(f"sampling is a dictionary, not {short(sampling)}")
    for name in _FIELDS_OF_A_REQUEST:
        if sampling and name in sampling:
            raise ConfigError(f"{name} stands in a field of the widget: set it there")
