"""Muon for the matrices inside the layers, AdamW for the embedding and the norms.

Contract: `step` takes the learning rate as a share of the highest one, so the schedule is a
function of the step alone and nothing of it has to be saved. Needs torch 2.9, which brings Muon.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_WEIGHT_DECAY = 0.1
_EMBEDDING_SHARE = 0.1  # of the learning rate: so words stay apart (see model.py)
_MAX_GRADIENT_NORM = 1.0


class Optimizer:
    """Two optimizers that act as one."""

    def __init__(self, model: nn.Module, learning_rate: float) -> None:
        self._learning_rate = learning_rate
        self._parameters = list(model.parameters())
        named = list(model.named_parameters())
        matrices = [p for name, p in named if p.ndim == 2 and "embed" not in name]
        others = [p for name, p in named if p.ndim != 2 or "embed" in name]
        self._parts: list[torch.optim.Optimizer] = [
            # its updates get AdamW's usual size
            torch.optim.Muon(
                matrices, lr=0.0, weight_decay=_WEIGHT_DECAY, adjust_lr_fn="match_rms_adamw"
            ),
            torch.optim.AdamW(others, lr=0.0, betas=(0.9, 0.98), weight_decay=_WEIGHT_DECAY),
        ]

    def step(self, share: float) -> None:
        """Move the weights along their gradients and clear these."""
        nn.utils.clip_grad_norm_(self._parameters, _MAX_GRADIENT_NORM)
        for part, rate in zip(self._parts, (1.0, _EMBEDDING_SHARE), strict=True):
            for group in part.param_groups:
                group["lr"] = share * rate * self._learning_rate
            part.step()
            part.zero_grad(set_to_none=True)

    def state_dict(self) -> list[dict[str, Any]]:
        """Give what `load_state_dict` needs to go on from here."""
        return [part.state_dict() for part in self._parts]

    def load_state_dict(self, states: list[dict[str, Any]]) -> None:
        """Go on from a saved state."""
        for part, state in zip(self._parts, states, strict=True):
            part.load_state_dict(state)
