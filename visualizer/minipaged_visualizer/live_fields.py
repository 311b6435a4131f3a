"""The fields of a live session: what is asked, and how the engine is built.

Each has the name of the argument that it becomes, so that who presses buttons also learns to type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as ipw
import traitlets

from minipaged.errors import ConfigError

_WRAPPED = {"flex_flow": "row wrap", "grid_gap": "0 10px", "align_items": "center"}
_LABELS = {"n": "samples (n)"}  # the others are called as their arguments


def row(*widgets: Any) -> Any:
    """Give widgets beside each other; where the window is narrow, below each other."""
    return ipw.HBox(widgets, layout=_WRAPPED)


def number(about: str, value: int, least: int, most: int) -> Any:
    """Give a field for an integer within bounds."""
    return ipw.BoundedIntText(value, min=least, max=most, tooltip=about)


def request_fields() -> dict[str, Any]:
    """Give the fields of a request, by the names of their arguments."""
    prompt = ipw.Text("Once upon a time", tooltip="What the model continues; Enter adds a request")
    prompt.layout.min_width = "20em"
    n = number("Samples: the prompt is computed once and forked; they share its blocks", 2, 1, 64)
    max_tokens = number("The most tokens a sample", 16, 1, 2**20)
    return _named({"prompt": prompt, "n": n, "max_tokens": max_tokens})


def engine_fields(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Give the fields of an engine, by the names of their arguments, with these values in them.

    Raises:
        ConfigError: A name is unknown, or its field can't hold the value.
    """
    fields = _named({name: build() for name, build in ENGINE_FIELDS.items()})
    for name, value in settings.items():
        if name not in fields:
            raise ConfigError(
                f"a live session has no field {name!r}; it has {', '.join(ENGINE_FIELDS)}"
            )
        _fill(fields[name], name, value)
    return fields


def _check_box(about: str) -> Any:
    return ipw.Checkbox(True, tooltip=about, indent=False)


def _preemption() -> Any:
    about = "Where the keys and values of a request go that has to give way"
    return ipw.Dropdown(options=["recompute", "swap"], tooltip=about)


ENGINE_FIELDS: dict[str, Callable[[], Any]] = {
    "num_blocks": lambda: number("Blocks in the pool", 32, 1, 2**22),
    "block_size": lambda: number("Tokens a block", 4, 1, 1024),
    "max_num_seqs": lambda: number("The most sequences that run at once", 64, 1, 2048),
    "preemption": _preemption,
    "num_swap_blocks": lambda: number("Blocks in the swap pool", 0, 0, 2**22),
    "enable_prefix_caching": lambda: _check_box("Share blocks of equal prefixes across requests"),
    "enable_chunked_prefill": lambda: _check_box("A long prompt may take several steps"),
}


def _named(fields: dict[str, Any]) -> dict[str, Any]:
    for name, field in fields.items():
        field.description = _LABELS.get(name, name)
        field.style = {"description_width": "initial"}
        is_number = isinstance(field, ipw.BoundedIntText)
        field.layout.width = f"{len(field.description) * 0.6 + 6:.1f}em" if is_number else "auto"
    return fields


def _fill(field: Any, name: str, value: object) -> None:
    try:
        field.value = value
    except traitlets.TraitError:
        raise ConfigError(f"{name} can't be {value!r}") from None
    if field.value != value:  # it took the nearest that it may hold
        raise ConfigError(f"{name} must be from {field.min} to {field.max}, not {value!r}")
