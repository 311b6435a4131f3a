"""Linear layers in the fastest form that this machine has for them.

oneDNN can keep a bf16 weight in the order in which its inner loop reads it: a decode step then
takes a quarter to a third less time. PyTorch has this only under private names, so they are in this
one file, and are used where a check against `F.linear` passes when a model is built; elsewhere
`F.linear` does the work.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional


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
    if dtype != torch.bfloat16 or device.type != "cpu" or not _has_packing():
        return PlainLinear
    return PackedLinear if _packing_is_right(dtype) else PlainLinear


def _has_packing() -> bool:
    try:
        supported = torch.ops.mkldnn._is_mkldnn_bf16_supported()
        return bool(supported) and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    except (AttributeError, RuntimeError):
        return False


def _packing_is_right(dtype: torch.dtype) -> bool:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(48, 40, generator=generator).to(dtype)
    bias = torch.randn(48, generator=generator).to(dtype)
    x = torch.randn(5, 40, generator=generator).to(dtype)
    try:
        packed = PackedLinear(weight, bias)(x)
    except (AttributeError, RuntimeError, TypeError):
        return False
    return torch.allclose(
        packed.float(), functional.linear(x, weight, bias).float(), atol=0.1, rtol=0.02
    )
