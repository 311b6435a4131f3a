"""How many requests fit on a GPU, and what becomes of the rest of its memory: plain arithmetic.

Every request is taken to be as long as the mean, and to be anywhere in its life: over it, its KV
grows from the prompt to the whole text. Percentages are of the KV memory, and add up to 100:

    token states   hold keys and values
    reserved       will hold some later
    internal       reserved, and never used
    external       in nobody's reservation: rounded up by the buddy allocator, or too little
                   for one more request

The simulator tells what differing lengths do; here they are all alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from minipaged.errors import ConfigError
from minipaged.lab.hardware import GIB, Gpu
from minipaged.lab.models import ModelShape
from minipaged.lab.workloads import SHAREGPT
from minipaged.memory.block_table import blocks_for
from minipaged.memory.buddy import most_slabs
from minipaged.memory.reservation import (
    ReservationPolicy,
    ReserveMax,
    ReserveOracle,
    ReservePow2,
)

UTILIZATION = 0.9  # vLLM's default for gpu_memory_utilization; the rest is for activations
MAX_GPUS = 2**20

# The share of the prompt in ShareGPT's texts.
PROMPT_SHARE = SHAREGPT.mean_prompt / (SHAREGPT.mean_prompt + SHAREGPT.mean_new)


@dataclass(frozen=True)
class AllocatorPlan:
    """What one allocator makes of the KV memory.

    `num_requests` fit at any moment, `num_at_end` if all came to their end at once (more would be
    preempted then). `slots_per_request` is what a request has at its end, `unused` the part (%) of
    it that it has not touched by then. The last four are % of the KV memory.
    """

    allocator: str
    slots_per_request: int
    num_requests: int
    num_at_end: int
    unused: float
    token_states: float
    reserved: float
    internal: float
    external: float


@dataclass(frozen=True)
class Plan:
    """The sizes that follow from a model, a GPU and the lengths of texts (tokens and bytes)."""

    model: ModelShape
    gpu: Gpu
    num_gpus: int
    max_len: int
    num_prompt_tokens: int
    num_new_tokens: int
    block_size: int
    weight_bytes: int
    kv_bytes: int
    bytes_per_token: int
    num_slots: int
    num_blocks: int
    allocators: tuple[AllocatorPlan, ...]

    @property
    def mean_len(self) -> int:
        """Tokens of a text whose keys and values are kept."""
        return self.num_prompt_tokens + self.num_new_tokens

    @property
    def bytes_per_block(self) -> int:
        """Bytes of a block, over all layers."""
        return self.block_size * self.bytes_per_token


def plan(
    model: ModelShape,
    gpu: Gpu,
    *,
    mean_len: int = 512,
    max_len: int | None = None,
    mean_prompt: int | None = None,
    block_size: int = 16,
    num_gpus: int = 1,
) -> Plan:
    """Work out how many requests fit.

    Args:
        model: In fp16, split evenly over the GPUs.
        gpu: One of them.
        mean_len: Tokens of a text whose KV is kept, prompt included.
        max_len: The longest text that may come (tokens); None: the model's.
        mean_prompt: Tokens of the prompt; None: the share that ShareGPT's have, a third.
        block_size: Tokens in a block.
        num_gpus: How many.

    Raises:
        ConfigError: A number makes no sense, or the weights don't fit.
    """
    max_len = _checked_max_len(model, max_len, mean_len)
    prompt = _checked_prompt(mean_len, mean_prompt)
    if not 1 <= block_size <= max_len:
        raise ConfigError(f"block_size must be from 1 to max_len ({max_len}), not {block_size}")
    kv_bytes = _kv_bytes(model, gpu, num_gpus)
    num_slots = kv_bytes // model.kv_bytes_per_token()
    num_blocks = num_slots // block_size
    if not num_blocks:
        raise ConfigError(f"not one block of {block_size} tokens fits beside the weights")
    text = _Text(prompt, mean_len - prompt)
    slabs = (ReserveMax(max_len), ReservePow2(max_len), ReserveOracle())
    return Plan(
        model=model,
        gpu=gpu,
        num_gpus=num_gpus,
        max_len=max_len,
        num_prompt_tokens=text.prompt,
        num_new_tokens=text.new,
        block_size=block_size,
        weight_bytes=model.weight_bytes(),
        kv_bytes=kv_bytes,
        bytes_per_token=model.kv_bytes_per_token(),
        num_slots=num_slots,
        num_blocks=num_blocks,
        allocators=(
            *(_plan_slabs(policy, text, num_slots) for policy in slabs),
            _plan_blocks(text, num_slots, block_size),
        ),
    )


class _Text(NamedTuple):
    prompt: int
    new: int

    @property
    def length(self) -> int:
        return self.prompt + self.new

    @property
    def mean_tokens(self) -> float:
        """Tokens in memory, averaged over the steps that generate."""
        return self.prompt + (self.new - 1) / 2


def _plan_slabs(policy: ReservationPolicy, text: _Text, num_slots: int) -> AllocatorPlan:
    # A slot is kept for every token here; a policy may leave out the one that is drawn last.
    reserved = max(policy.reserve(text.prompt, text.new), text.length)
    num_requests = most_slabs(num_slots, reserved)
    shares = _shares(text, reserved, reserved - text.length, num_requests / num_slots)
    return AllocatorPlan(
        policy.name, reserved, num_requests, num_requests, _unused(text, reserved), *shares
    )


def _plan_blocks(text: _Text, num_slots: int, block_size: int) -> AllocatorPlan:
    """A block is taken when a token needs it: only a request's last one has room to spare."""
    at_end = block_size * blocks_for(text.length, block_size)
    held = _slots_in_all(text.prompt, text.length, block_size) / text.new
    with_last_block = min(text.new, text.length - 1 - (at_end - block_size))
    never = (at_end - text.length) * with_last_block / text.new
    pool = num_slots // block_size * block_size
    num_requests = int(pool / held) if at_end <= pool else 0
    shares = _shares(text, held, never, num_requests / num_slots)
    return AllocatorPlan(
        "paged", at_end, num_requests, pool // at_end, _unused(text, at_end), *shares
    )


def _slots_in_all(start: int, stop: int, block_size: int) -> int:
    """Add up the slots in the blocks of texts of `start`, ..., `stop` - 1 tokens."""

    def below(num_tokens: int) -> int:  # texts of 1, ..., num_tokens
        full, rest = divmod(num_tokens, block_size)
        return block_size * (block_size * full * (full + 1) // 2 + rest * (full + 1))

    return below(stop - 1) - below(start - 1)


def _unused(text: _Text, slots: int) -> float:
    return 100 * (1 - text.length / slots)


def _shares(
    text: _Text, held: float, never_used: float, requests_per_slot: float
) -> tuple[float, float, float, float]:
    """Turn the slots that a request holds on average into the four shares (%) of the memory."""
    later = held - text.mean_tokens - never_used
    states, reserved, internal = (
        100 * requests_per_slot * slots for slots in (text.mean_tokens, later, never_used)
    )
    return states, reserved, internal, 100 - states - reserved - internal


def _checked_max_len(model: ModelShape, max_len: int | None, mean_len: int) -> int:
    max_len = model.max_len if max_len is None else max_len
    if not 2 <= max_len <= model.max_len:
        raise ConfigError(
            f"max_len must be from 2 to what {model.name} was made for, {model.max_len} tokens, "
            f"not {max_len}"
        )
    if not 2 <= mean_len <= max_len:
        raise ConfigError(f"mean_len must be from 2 to max_len ({max_len}), not {mean_len}")
    return max_len


def _checked_prompt(mean_len: int, mean_prompt: int | None) -> int:
    prompt = max(round(mean_len * PROMPT_SHARE), 1) if mean_prompt is None else mean_prompt
    if not 1 <= prompt < mean_len:
        raise ConfigError(
            f"mean_prompt must leave room for an answer: from 1 to {mean_len - 1} of {mean_len} "
            f"tokens, not {prompt}"
        )
    return prompt


def _kv_bytes(model: ModelShape, gpu: Gpu, num_gpus: int) -> int:
    if not 1 <= num_gpus <= MAX_GPUS:
        raise ConfigError(f"num_gpus must be from 1 to {MAX_GPUS}, not {num_gpus}")
    usable = int(num_gpus * gpu.memory * UTILIZATION)
    weights = model.weight_bytes()
    if usable - weights < model.kv_bytes_per_token():
        enough = int(weights // (gpu.memory * UTILIZATION)) + 1
        raise ConfigError(
            f"{model.name} has {weights / GIB:.1f} GiB of weights, {num_gpus} x {gpu.name} can "
            f"use {usable / GIB:.1f} GiB: take {enough} (--num-gpus)"
        )
    return usable - weights
