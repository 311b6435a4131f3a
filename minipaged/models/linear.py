"""Linear layers in the fastest form that this machine has for them.

oneDNN can keep a weight in the order in which its inner loop reads it. A decode step of 32 tokens
then takes a third less time in bf16, and less than half in fp32. PyTorch has this only under
private names: they are in this one file, and used where a check against `F.linear` passes when a
model is built; elsewhere `F.linear` does the work.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

# What packs, and how far from `F.linear` sums of 40 products of normal numbers may be.
_PACKED_ACCURACY = {torch.float32: 1e-4, torch.bfloat16: 0.25}


class Linear(Protocol):
    """`x [..., in_features] -> x @ weight.T + bias [..., out_features]`."""

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""


class PlainLinear:
    """A weight [out_features, in_features] as it came, and `F.linear`."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        return functional.linear(x, self.weight, self.bias)


class PackedLinear:
    """A weight in oneDNN's own order; the one that it is given is not kept."""

    _ROWS_HINT = 32  # the number of tokens a step that the order is chosen for: a full decode batch

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.bias = bias
        self.weight: Any = torch.ops.mkldnn._reorder_linear_weight(weight, self._ROWS_HINT)

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        output: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self.weight, self.bias, "none", [], ""
        )
        return output


def choose_linear(
    dtype: torch.dtype, device: torch.device
) -> type[PackedLinear] | type[PlainLinear]:
    """Give PackedLinear if it works here and agrees with `F.linear`, else PlainLinear."""
    packs = device.type == "cpu" and dtype in _PACKED_ACCURACY
    return PackedLinear if packs and _packing_works(dtype) else PlainLinear


def _packing_works(dtype: torch.dtype) -> bool:
    generator = torch.Generator().manual_seed(0)
    weight, bias, x = (
        torch.randn(shape, generator=generator).to(dtype) for shape in ((48, 40), (48,), (5, 40))
    )
    try:
        packed = PackedLinear(weight, bias)(x)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False
    error = (packed - PlainLinear(weight, bias)(x)).abs().max()
    return float(error) < _PACKED_ACCURACY[dtype]
