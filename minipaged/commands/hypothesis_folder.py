"""Where hypothesis keeps its notes: in the cache, not in the folder that a student works in."""

from __future__ import annotations

import os

from minipaged.models.catalog import cache_folder


def keep_notes_in_the_cache() -> None:
    """Tell hypothesis, and the processes that this one starts; whoever has told it goes first."""
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(cache_folder() / "hypothesis"))
