"""One layer's cache in which every number tells where it belongs: a wrong one gives itself away.

The cache is `[2, num_blocks, block_size, num_kv_heads, head_dim]` and holds 0, 1, 2, ... in order.
New keys and values count on from there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from minipaged.memory.events import KernelAccess

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("key", "value")
_BYTES = 4


class Row(NamedTuple):
    """Where a number comes from: a slot of the cache, or a token that is new."""

    kind: str
    slot: int | None
    token: int | None

    def __str__(self) -> str:
        return (
            f"the {self.kind} of slot {self.slot}"
            if self.token is None
            else f"the {self.kind} of new token {self.token}"
        )


@dataclass(frozen=True)
class CacheShape:
    """The sizes of a layer's cache."""

    num_blocks: int
    block_size: int
    num_kv_heads: int
    head_dim: int

    def __str__(self) -> str:
        return (
            f"layer_cache [2, {self.num_blocks}, {self.block_size}, "
            f"{self.num_kv_heads}, {self.head_dim}]"
        )

    @property
    def num_slots(self) -> int:
        """The slots of all blocks."""
        return self.num_blocks * self.block_size

    @property
    def row_size(self) -> int:
        """The numbers of one token's key; its value has as many."""
        return self.num_kv_heads * self.head_dim

    def cache(self) -> Tensor:
        """Give the cache: 0, 1, 2, ... in the order of memory."""
        import torch

        sizes = (2, self.num_blocks, self.block_size, self.num_kv_heads, self.head_dim)
        return torch.arange(2 * self.num_slots * self.row_size).float().view(sizes)

    def new(self, num_tokens: int) -> Tensor:
        """Give new keys and values: [2, num_tokens, num_kv_heads, head_dim]."""
        import torch

        first, size = 2 * self.num_slots * self.row_size, 2 * num_tokens * self.row_size
        numbers = torch.arange(first, first + size).float()
        return numbers.view(2, num_tokens, self.num_kv_heads, self.head_dim)

    def origin(self, number: float, num_new_tokens: int = 0) -> Row | None:
        """Tell where a number comes from; None if it is nobody's."""
        first = 2 * self.num_slots * self.row_size
        if not math.isfinite(number) or number != int(number) or number < 0:
            return None
        if number < first:
            kind, slot = divmod(int(number) // self.row_size, self.num_slots)
            return Row(KINDS[kind], slot, None)
        if number < first + 2 * num_new_tokens * self.row_size:
            kind, token = divmod((int(number) - first) // self.row_size, num_new_tokens)
            return Row(KINDS[kind], None, token)
        return None

    def access(self, attempt: Any, row: int, slot: int, kind: str) -> KernelAccess:
        """Give what a student's function did to one slot, as an event: a "load" or a "store"."""
        name = getattr(attempt, "__name__", "function")
        code = getattr(attempt, "__code__", None)
        return KernelAccess(
            name=f"your {name}",
            program=(row,),
            blocks=(slot // self.block_size,),
            line=getattr(code, "co_firstlineno", 0),
            code=f"def {name}",
            access=kind,
            tensor="layer_cache",
            slots=(slot,),
            heads=tuple(range(self.num_kv_heads)),
            num_bytes=2 * self.row_size * _BYTES,
        )


def first_wrong(got: Tensor, expected: Tensor) -> tuple[int, ...]:
    """Give the index of the first number that differs."""
    return tuple(int(i) for i in (got != expected).nonzero()[0])


def others(table: Iterable[int], num_blocks: int) -> list[int]:
    """Give the blocks that are not in a table.

    >>> others([2, 0], num_blocks=4)
    [1, 3]
    """
    held = set(table)
    return [block for block in range(num_blocks) if block not in held]
