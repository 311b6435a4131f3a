"""Rotary position embeddings (Su et al., 2021), and the ways to stretch them over longer texts.

Pair i of a head's dimensions (i and i + head_dim / 2) turns by `position * frequency[i]`. Scaling
changes the frequencies once, when the model is built; cos and sin are worked out once a step and
shared by all layers.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minipaged.models.config import ModelConfig, RopeScaling


class RotaryEmbedding:
    """cos and sin of every pair's angle, for any positions."""

    def __init__(self, config: ModelConfig, device: torch.device) -> None:
        frequencies, self.magnitude = rope_frequencies(config)
        self.frequencies = frequencies.to(device)

    def __call__(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Give cos and sin, each [num_tokens, 1, head_dim], for `rotate_`.

        The first half of sin is negative: the sign that a rotation gives to its second component.
        """
        angles = (
            positions[:, None, None].float() * self.frequencies
        )  # [num_tokens, 1, head_dim / 2]
        cos, sin = angles.cos() * self.magnitude, angles.sin() * self.magnitude
        return torch.cat([cos, cos], dim=-1).to(dtype), torch.cat([-sin, sin], dim=-1).to(dtype)


def rotate_(heads: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Turn each pair of `heads` [num_tokens, num_heads, head_dim] by its angle, in place."""
    swapped = heads.roll(heads.shape[-1] // 2, dims=-1)
    heads.mul_(cos).addcmul_(swapped, sin)


def rope_frequencies(config: ModelConfig) -> tuple[Tensor, float]:
    """Give each pair's radians a position [head_dim / 2], and the factor on cos and sin."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequencies = 1.0 / (config.rope_theta**exponents)
    scaling = config.rope_scaling
    if scaling is None:
        return frequencies, 1.0
    if scaling.kind == "linear":
        return frequencies / scaling.factor, 1.0
    if scaling.kind == "llama3":
        return _llama3(frequencies, scaling), 1.0
    return _yarn(frequencies, scaling, config), _yarn_magnitude(scaling)


def _llama3(frequencies: Tensor, scaling: RopeScaling) -> Tensor:
    """Slow pairs turn `factor` times slower, fast ones as ever, the rest are blended (Llama 3.1).

    A pair counts by its turns within the original length: slow is below `low_freq_factor` of them.
    """
    turns = scaling.original_max_position_embeddings * frequencies / (2 * math.pi)
    span = scaling.high_freq_factor - scaling.low_freq_factor
    keep = ((turns - scaling.low_freq_factor) / span).clamp(0, 1)
    return keep * frequencies + (1 - keep) * frequencies / scaling.factor


def _yarn(frequencies: Tensor, scaling: RopeScaling, config: ModelConfig) -> Tensor:
    """Blend like llama3, but linearly in a pair's index, not in its turns (Peng et al., 2023)."""
    first = _yarn_index(scaling.beta_fast, scaling, config)
    last = _yarn_index(scaling.beta_slow, scaling, config)
    if scaling.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, config.head_dim - 1)
    span = (last - first) or 0.001  # as transformers does: one step, and no division by zero
    slow = ((torch.arange(config.head_dim // 2, dtype=torch.float32) - first) / span).clamp(0, 1)
    return slow * frequencies / scaling.factor + (1 - slow) * frequencies


def _yarn_index(turns: float, scaling: RopeScaling, config: ModelConfig) -> float:
    """Give the fractional index of the pair that makes `turns` turns in the original length."""
    original = scaling.original_max_position_embeddings
    radians = turns * 2 * math.pi / original
    return -config.head_dim * math.log(radians) / (2 * math.log(config.rope_theta))


def _yarn_magnitude(scaling: RopeScaling) -> float:
    """Give YaRN's factor on cos and sin: longer texts get sharper attention."""
    if scaling.attention_factor is not None:
        return scaling.attention_factor
    if scaling.mscale and scaling.mscale_all_dim:
        above = _log_growth(scaling.factor, scaling.mscale)
        return above / _log_growth(scaling.factor, scaling.mscale_all_dim)
    return _log_growth(scaling.factor, 1.0)


def _log_growth(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0
