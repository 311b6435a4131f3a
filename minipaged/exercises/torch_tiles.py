"""A few words of Triton's language in plain torch, for machines that have no Triton.

A tile is a tensor, a pointer a tensor with element numbers. A kernel runs as a function; each of
its loads and stores is kept, and one outside of a tensor is an error.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from minipaged.memory.events import KernelAccess


class OutOfBoundsError(Exception):
    """A load or store outside of the tensor that its address began in."""


@dataclass(frozen=True)
class Pointer:
    """Addresses in a tensor, as element numbers from its start."""

    name: str
    tensor: Tensor
    offsets: Tensor = field(default_factory=lambda: torch.tensor(0))

    def __add__(self, distance: Any) -> Pointer:
        return replace(self, offsets=self.offsets + distance)

    __radd__ = __add__

    def __sub__(self, distance: Any) -> Pointer:
        return self.__add__(-distance)


_touched: ContextVar[list[KernelAccess]] = ContextVar("_touched")


def _load(pointer: Pointer, mask: Any = None, other: float = 0.0) -> Tensor:
    offsets, visible = _lanes(pointer, mask)
    _touch("load", pointer, offsets[visible])
    found = pointer.tensor.flatten()[torch.where(visible, offsets, 0)]
    return found.masked_fill(~visible, other)


def _store(pointer: Pointer, value: Any, mask: Any = None) -> None:
    offsets, visible = _lanes(pointer, mask)
    _touch("store", pointer, offsets[visible])
    pointer.tensor.view(-1)[offsets[visible]] = torch.as_tensor(value).expand_as(offsets)[visible]


def _lanes(pointer: Pointer, mask: Any) -> tuple[Tensor, Tensor]:
    """Give element numbers, and which of them are meant, of the same shape."""
    visible = torch.as_tensor(True if mask is None else mask)
    offsets = pointer.offsets + torch.zeros(visible.shape, dtype=torch.int64)
    return offsets, visible.expand_as(offsets)


def _touch(access: str, pointer: Pointer, offsets: Tensor) -> None:
    frame = sys._getframe(2)
    tensor, line = pointer.tensor, frame.f_lineno
    if offsets.numel() and not 0 <= int(offsets.min()) <= int(offsets.max()) < tensor.numel():
        raise OutOfBoundsError(
            f"{frame.f_code.co_name}, line {line}: a {access} outside of {pointer.name} "
            f"{list(tensor.shape)}: elements {offsets.min()} to {offsets.max()}"
        )
    blocks, slots, heads = _cache_places(tensor, offsets) if tensor.dim() == 4 else ((), (), ())
    code = linecache.getline(frame.f_code.co_filename, line).strip()
    size = offsets.numel() * tensor.element_size()
    where = (access, pointer.name, slots, heads, size)
    _touched.get().append(KernelAccess("kernel", (0,), blocks, line, code, *where))


def _cache_places(tensor: Tensor, offsets: Tensor) -> tuple[tuple[int, ...], ...]:
    """Give blocks in order, slots and heads sorted, of elements of a cache of four dimensions."""
    _, block_size, num_heads, head_dim = tensor.shape
    heads = (offsets // head_dim % num_heads).flatten().tolist()
    slots = (offsets // head_dim // num_heads).flatten().tolist()
    blocks = tuple(dict.fromkeys(slot // block_size for slot in slots))
    return blocks, tuple(sorted(set(slots))), tuple(sorted(set(heads)))


def _reduced(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda tile, axis=None: function(tile) if axis is None else function(tile, dim=axis)


def _pairwise(function: Callable[..., Tensor]) -> Callable[..., Any]:
    def apply(a: Any, b: Any) -> Any:
        return function(torch.as_tensor(a), torch.as_tensor(b))

    return apply


language = SimpleNamespace(
    constexpr=object,
    int32=torch.int32,
    int64=torch.int64,
    float32=torch.float32,
    load=_load,
    store=_store,
    arange=torch.arange,
    zeros=lambda shape, dtype: torch.zeros(shape, dtype=dtype),
    full=lambda shape, value, dtype: torch.full(shape, value, dtype=dtype),
    cdiv=lambda a, b: -(-a // b),
    where=torch.where,
    maximum=_pairwise(torch.maximum),
    minimum=_pairwise(torch.minimum),
    exp=lambda tile: torch.exp(torch.as_tensor(tile)),
    log=lambda tile: torch.log(torch.as_tensor(tile)),
    max=_reduced(torch.amax),
    sum=_reduced(torch.sum),
    trans=lambda tile: tile.T,
    dot=lambda a, b, acc=0, **_: acc + a @ b,
)


def run_kernel(kernel: Any, arguments: dict[str, Any], touched: list[KernelAccess]) -> None:
    """Run a kernel as one program; fill `touched` as far as it comes.

    Raises:
        OutOfBoundsError: It leaves a tensor.
    """
    pointers = {
        name: Pointer(name, value) if isinstance(value, Tensor) else value
        for name, value in arguments.items()
    }
    token = _touched.set(touched)
    try:
        kernel(**pointers)
    finally:
        _touched.reset(token)
