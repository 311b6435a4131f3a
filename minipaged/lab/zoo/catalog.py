"""Every bug of the zoo by its name, and the switch."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager

from minipaged.errors import ConfigError
from minipaged.lab.zoo import boundaries, hits, prefixes, references, scheduling
from minipaged.lab.zoo.bug import Bug

BUGS: tuple[Bug, ...] = (
    *references.BUGS,
    *boundaries.BUGS,
    *prefixes.BUGS,
    *hits.BUGS,
    *scheduling.BUGS,
)


def find(name: str) -> Bug:
    """Give the bug with this name.

    Raises:
        ConfigError: There is none; the message has names that are close.
    """
    names = [bug.name for bug in BUGS]
    if name in names:
        return BUGS[names.index(name)]
    close = difflib.get_close_matches(name, names, cutoff=0.5)
    guess = f"did you mean {' or '.join(close)}?" if close else "`minipaged zoo` lists them"
    raise ConfigError(f"no bug is called {name!r:.60}: {guess}")


@contextmanager
def bug(name: str) -> Iterator[Bug]:
    """Switch a bug on for the `with` block: every manager and scheduler used in it has the fault.

    >>> from minipaged.memory.block_pool import BlockPool
    >>> right = BlockPool.share
    >>> with bug("in-use-and-free") as it:
    ...     print(it.place, BlockPool.share is right)
    BlockPool.share False
    >>> BlockPool.share is right
    True

    Raises:
        ConfigError: There is no such bug.
    """
    with find(name).planted() as it:
        yield it
