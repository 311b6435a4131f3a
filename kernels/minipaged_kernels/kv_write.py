"""Write new keys and values into their slots: the one kernel that changes the cache.

One program a token. It looks its slot up and copies two rows, key and value of all KV heads. Where
a token goes is not known before the slot is loaded; that is all that paging adds to a copy.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from minipaged_kernels.launch import (
    check_cache,
    check_indices,
    check_same_dtype,
    check_together,
    dense_rows,
)

WARP_ELEMENTS = 512  # a row's elements for each warp: with 64 lanes on AMD, 16 bytes of bf16 a lane


@triton.jit
def kv_write_kernel(
    key,  # [num_tokens, num_kv_heads, head_dim]
    value,  # the same
    key_cache,  # [num_blocks, block_size, num_kv_heads, head_dim]
    value_cache,  # the same
    slot_mapping,  # [num_tokens]
    stride_key,
    stride_value,
    stride_block,
    stride_slot,
    BLOCK_SIZE: tl.constexpr,
    ROW: tl.constexpr,  # num_kv_heads * head_dim
    TILE: tl.constexpr,  # ROW, rounded up to a power of two
):
    """Write one token."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_mapping + token).to(tl.int64)
    if slot >= 0:  # -1: not written
        elements = tl.arange(0, TILE)
        mask = elements < ROW
        k = tl.load(key + token * stride_key + elements, mask=mask, other=0.0)
        v = tl.load(value + token * stride_value + elements, mask=mask, other=0.0)
        here = (slot // BLOCK_SIZE) * stride_block + (slot % BLOCK_SIZE) * stride_slot + elements
        tl.store(key_cache + here, k, mask=mask)
        tl.store(value_cache + here, v, mask=mask)


def kv_write(key: Tensor, value: Tensor, layer_cache: Tensor, slot_mapping: Tensor) -> None:
    """Write each token's key and value [num_tokens, num_kv_heads, head_dim] into its slot.

    A slot is `block_id * block_size + offset`. Slot -1 means "do not write". Mutates `layer_cache`
    [2, num_blocks, block_size, num_kv_heads, head_dim]. Two tokens must not have one slot, and no
    slot lie beyond the cache: neither is checked.

    Raises:
        ValueError: Shapes, dtypes or strides don't fit.
    """
    check_rows(key, value, layer_cache, slot_mapping)
    check_same_dtype(layer_cache, key)
    if len(key) == 0:
        return
    key, value = dense_rows(key), dense_rows(value)
    row = key.shape[1] * key.shape[2]
    tile = triton.next_power_of_2(row)
    kv_write_kernel[(len(key),)](
        key=key,
        value=value,
        key_cache=layer_cache[0],
        value_cache=layer_cache[1],
        slot_mapping=slot_mapping,
        stride_key=key.stride(0),
        stride_value=value.stride(0),
        stride_block=layer_cache.stride(1),
        stride_slot=layer_cache.stride(2),
        BLOCK_SIZE=layer_cache.shape[2],
        ROW=row,
        TILE=tile,
        num_warps=min(8, max(1, tile // WARP_ELEMENTS)),
    )


def check_rows(key: Tensor, value: Tensor, layer_cache: Tensor, slot_mapping: Tensor) -> None:
    """Raise ValueError unless keys, values and slots are one row a token of this cache."""
    check_cache(layer_cache, key)
    check_together(layer_cache, value)
    num_kv_heads, head_dim = layer_cache.shape[3:]
    if key.shape != value.shape or key.shape[1] != num_kv_heads or key.dtype != value.dtype:
        raise ValueError(
            f"keys are {key.dtype} {list(key.shape)}, values {value.dtype} {list(value.shape)}; "
            f"the cache takes [num_tokens, {num_kv_heads}, {head_dim}] of both"
        )
    if slot_mapping.shape != key.shape[:1]:
        raise ValueError(f"{len(key)} tokens need as many slots, not {list(slot_mapping.shape)}")
    check_indices(layer_cache, slot_mapping=slot_mapping)
    if layer_cache.stride(3) != head_dim:
        raise ValueError("a token's KV heads must lie side by side in the cache")
    check_apart(layer_cache)


def check_apart(written: Tensor) -> None:
    """Raise ValueError where tokens share memory that each would write."""
    if 0 in written.stride():
        raise ValueError(f"tokens share memory that is written, strides are {written.stride()}")
