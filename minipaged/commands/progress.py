"""How far a set of simulations is, on standard error, and on how many processes it runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console


def num_workers() -> int:
    """Give how many simulations run at once: two at most, as memory and laptops are shared."""
    return min(os.cpu_count() or 1, 2)


@contextmanager
def counting() -> Iterator[Callable[[int, int], None]]:
    """Count simulations where somebody watches."""
    with Console(stderr=True).status("simulating ...") as status:
        yield lambda done, total: status.update(f"simulating ... {done} of {total}")
