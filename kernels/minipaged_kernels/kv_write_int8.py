"""Write keys and values as 8-bit integers, with a scale for each token and KV head.

Half of bf16's bytes, or a quarter of fp32's, hold the same number of tokens. What one head keeps of
one token is divided by its largest magnitude / 127 and rounded. A scale covers `head_dim` numbers:
finer would cost more memory, coarser (a block, a layer) would have to be known before the tokens
are, or change when a larger one comes.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from minipaged_kernels.kv_write import check_apart, check_rows
from minipaged_kernels.launch import check_scales, dense_rows, padded


@triton.jit
def kv_write_int8_kernel(
    key,  # [num_tokens, num_kv_heads, head_dim]
    value,  # the same
    key_cache,  # [num_blocks, block_size, num_kv_heads, head_dim], int8
    value_cache,  # the same
    key_scales,  # [num_blocks, block_size, num_kv_heads], fp32
    value_scales,  # the same
    slot_mapping,  # [num_tokens]
    stride_key,
    stride_value,
    stride_block,
    stride_slot,
    stride_scale_block,
    stride_scale_slot,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr,
):
    """Write what one KV head keeps of one token."""
    token = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    slot = tl.load(slot_mapping + token).to(tl.int64)
    if slot >= 0:  # -1: not written
        dims = tl.arange(0, DIMS)
        mask = dims < HEAD_DIM
        element = kv_head * HEAD_DIM + dims
        k = tl.load(key + token * stride_key + element, mask=mask, other=0.0).to(tl.float32)
        v = tl.load(value + token * stride_value + element, mask=mask, other=0.0).to(tl.float32)
        k_scale = tl.maximum(tl.max(tl.abs(k), axis=0) / 127, 1e-10)  # not 0: it divides
        v_scale = tl.maximum(tl.max(tl.abs(v), axis=0) / 127, 1e-10)

        block, offset = slot // BLOCK_SIZE, slot % BLOCK_SIZE
        here = block * stride_block + offset * stride_slot + element
        tl.store(key_cache + here, tl.floor(k / k_scale + 0.5).to(tl.int8), mask=mask)
        tl.store(value_cache + here, tl.floor(v / v_scale + 0.5).to(tl.int8), mask=mask)
        scale = block * stride_scale_block + offset * stride_scale_slot + kv_head
        tl.store(key_scales + scale, k_scale)
        tl.store(value_scales + scale, v_scale)


def kv_write_int8(
    key: Tensor, value: Tensor, layer_cache: Tensor, layer_scales: Tensor, slot_mapping: Tensor
) -> None:
    """Write each token's key and value [num_tokens, num_kv_heads, head_dim] into its slot.

    Mutates `layer_cache` [2, num_blocks, block_size, num_kv_heads, head_dim], int8, and
    `layer_scales` [2, num_blocks, block_size, num_kv_heads], fp32. Slot -1 means "do not write".

    Raises:
        ValueError: Shapes, dtypes or strides don't fit.
    """
    check_rows(key, value, layer_cache, slot_mapping)
    check_scales(layer_cache, layer_scales)
    check_apart(layer_scales)
    if len(key) == 0:
        return
    key, value = dense_rows(key), dense_rows(value)
    _, num_kv_heads, head_dim = key.shape
    kv_write_int8_kernel[(len(key), num_kv_heads)](
        key=key,
        value=value,
        key_cache=layer_cache[0],
        value_cache=layer_cache[1],
        key_scales=layer_scales[0],
        value_scales=layer_scales[1],
        slot_mapping=slot_mapping,
        stride_key=key.stride(0),
        stride_value=value.stride(0),
        stride_block=layer_cache.stride(1),
        stride_slot=layer_cache.stride(2),
        stride_scale_block=layer_scales.stride(1),
        stride_scale_slot=layer_scales.stride(2),
        BLOCK_SIZE=layer_cache.shape[2],
        HEAD_DIM=head_dim,
        DIMS=padded(head_dim),
        num_warps=1,
    )
