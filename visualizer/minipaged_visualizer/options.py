"""What a picture shows beside the timeline, and how."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """The player's state, as far as it is seen.

    `status` is one line of text, e.g. that a model is being loaded; `by_event` marks only the last
    event and not the whole step; `focus` is the sequence whose table is shown in full;
    `is_projected` asks for large type.
    """

    is_paused: bool = False
    steps_per_second: float = 4.0
    tokens_per_second: float | None = None
    status: str = ""
    is_error: bool = False
    by_event: bool = False
    focus: int | None = None
    show_help: bool = False
    has_ended: bool = False
    is_projected: bool = False
