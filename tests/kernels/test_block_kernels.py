"""What moves keys and values (writes, copies, swaps) equals its twin bit for bit.

Bugs that were planted, and found by a test here: slot -1 written; values written from the keys; an
offset taken for a slot; the last piece of a block not copied; layers after the first not copied; a
scale of one head for all.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton has no build for this system")
from minipaged_kernels import reference
from minipaged_kernels.copy_blocks import copy_blocks
from minipaged_kernels.interpreter import cure_bf16, overflow_checked, shuffled_programs
from minipaged_kernels.kv_write import kv_write
from minipaged_kernels.kv_write_int8 import kv_write_int8
from minipaged_kernels.paged_decode import paged_decode
from minipaged_kernels.paged_decode_int8 import paged_decode_int8
from minipaged_kernels.paged_decode_split_kv import paged_decode_split_kv
from minipaged_kernels.paged_prefill import paged_prefill
from minipaged_kernels.swap import swap_blocks
from paged_cases import Case, decodes, make_case

pytestmark = pytest.mark.interpret
cure_bf16()
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
GENERATOR = torch.Generator()


def rows(num_tokens: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> Tensor:
    """Keys and values [2, num_tokens, num_kv_heads, head_dim]."""
    GENERATOR.manual_seed(num_tokens + head_dim)
    return torch.randn(2, num_tokens, num_kv_heads, head_dim, generator=GENERATOR).to(dtype)


# --- writes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("block_size", "num_kv_heads", "head_dim"), [(1, 1, 16), (4, 3, 64), (5, 2, 80), (128, 8, 128)]
)
def test_kv_write_equals_its_twin(
    block_size: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype
) -> None:
    key, value = rows(5, num_kv_heads, head_dim, dtype)
    memory = torch.full((4, 9, block_size, num_kv_heads, head_dim), -1.0, dtype=dtype)
    twin = memory.clone()
    slots = torch.tensor([3, -1, 8 * block_size, 9 * block_size - 1, 0])
    kv_write(key, value, memory[1:3], slots)  # what lies before and behind must not change
    reference.kv_write(key, value, twin[1:3], slots)
    assert torch.equal(memory, twin)


def test_kv_write_takes_views_and_32_bit_slots() -> None:
    fused = torch.cat([*rows(3, 2, 16, torch.float32), torch.zeros(3, 2, 16)], dim=1)
    key, value = fused[:, :2], fused[:, 2:4]
    cache, twin = torch.zeros(2, 2, 2, 4, 2, 16)
    slots = torch.tensor([1, 7, 4], dtype=torch.int32)
    kv_write(key, value, cache, slots)
    reference.kv_write(key, value, twin, slots)
    assert torch.equal(cache, twin)
    kv_write(key[:0], value[:0], cache, slots[:0])
    assert torch.equal(cache, twin)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("block_size", "num_kv_heads", "head_dim"), [(1, 1, 16), (4, 3, 80)])
def test_kv_write_int8_equals_its_twin(
    block_size: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype
) -> None:
    key, value = rows(5, num_kv_heads, head_dim, dtype)
    key[0, 0] = 0  # no magnitude to divide by
    shape = (2, 9, block_size, num_kv_heads)
    caches = torch.full((2, *shape, head_dim), 99, dtype=torch.int8)
    scales = torch.full((2, *shape), -1.0)
    slots = torch.tensor([3, -1, 8 * block_size, 9 * block_size - 1, 0])
    kv_write_int8(key, value, caches[0], scales[0], slots)
    reference.kv_write_int8(key, value, caches[1], scales[1], slots)
    assert torch.equal(*caches)
    assert torch.equal(*scales)


def test_eight_bits_keep_a_number_to_half_a_step() -> None:
    heads = rows(50, 2, 64, torch.float32)
    integers, scales = reference.quantize(heads)
    error = (integers * scales[..., None] - heads).abs()
    assert bool((error <= scales[..., None] * 0.5001).all())
    assert integers.abs().amax() == 127


# --- copies and swaps -----------------------------------------------------------------------------


def random_cache(
    num_blocks: int, dtype: torch.dtype = torch.float32, elements: int = 8 * 3 * 64
) -> Tensor:
    GENERATOR.manual_seed(num_blocks)
    return torch.randn(3, 2, num_blocks, elements, generator=GENERATOR).to(dtype)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int8])
@pytest.mark.parametrize("elements", [16, 1024, 1536])
def test_copy_blocks_equals_its_twin_in_any_order(elements: int, dtype: torch.dtype) -> None:
    cache = (random_cache(8, elements=elements) * 9).to(dtype)
    twin = cache.clone()
    with shuffled_programs(seed=1):
        copy_blocks(cache, [(1, 4), (1, 0), (7, 5)])
    reference.copy_blocks(twin, [1, 1, 7], [4, 0, 5])
    assert torch.equal(cache, twin)
    copy_blocks(cache, [])
    assert torch.equal(cache, twin)


def untouched(*shape: int, dtype: torch.dtype = torch.int8) -> Tensor:
    """Give memory that the system promises, but need not have."""
    try:
        return torch.empty(shape, dtype=dtype)
    except RuntimeError:
        pytest.skip("the system does not promise gigabytes that nobody will use")


def test_a_large_cache_copies_blocks_beyond_32_bits() -> None:
    cache = untouched(1, 2, 2**15 + 4, 2**16)
    cache[:, :, -1] = 7
    with overflow_checked():
        copy_blocks(cache, [(2**15 + 3, 2**15)])
    assert bool((cache[:, :, 2**15] == 7).all())


def test_a_large_cache_is_written_beyond_32_bits() -> None:
    """Llama-3-8B's shape: from block 131,072 on, elements have no number in 32 bits."""
    cache = untouched(2, 2**17 + 1, 16, 8, 128, dtype=torch.float16)
    key, value = rows(1, 8, 128, torch.float16)
    with overflow_checked():
        kv_write(key, value, cache, torch.tensor([2**17 * 16 + 5]))
    assert torch.equal(cache[:, 2**17, 5], torch.stack([key[0], value[0]]))


def test_a_large_int8_cache_is_written_beyond_32_bits() -> None:
    cache = untouched(2, 2**15 + 4, 16, 16, 256)
    slot = (2**15 + 3) * 16 + 5
    key, value = rows(1, 16, 256, torch.float32)
    scales = torch.zeros(cache.shape[:4])
    with overflow_checked():
        kv_write_int8(key, value, cache, scales, torch.tensor([slot]))
    integers, wanted = reference.quantize(torch.stack([key[0], value[0]]))
    assert torch.equal(cache[:, 2**15 + 3, 5], integers)
    assert torch.equal(scales[:, 2**15 + 3, 5], wanted)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([(1, 2), (2, 3)], "block 2 is both source and target"),
        ([(1, 1)], "block 1 is both"),
        ([(1, 2), (3, 2)], "target of two"),
        ([(1, 8)], "no copy 1 -> 8 among 8 -> 8"),
        ([(-1, 2)], "no copy -1 -> 2"),
    ],
)
def test_copies_that_make_no_sense_are_refused(pairs: list[tuple[int, int]], message: str) -> None:
    cache = random_cache(8)
    before = cache.clone()
    with pytest.raises(ValueError, match=message):
        copy_blocks(cache, pairs)
    assert torch.equal(cache, before)


def test_copies_in_memory_with_gaps_are_refused() -> None:
    with pytest.raises(ValueError, match="must be contiguous"):
        copy_blocks(random_cache(8)[..., ::2], [(1, 2)])


def test_what_is_no_cache_is_neither_copied_nor_swapped() -> None:
    layer = random_cache(8)[0]
    with pytest.raises(ValueError, match=r"a cache is \[num_layers, 2, num_blocks, ...\], not"):
        copy_blocks(layer, [(1, 2)])
    with pytest.raises(ValueError, match=r"a cache is \[num_layers, 2, num_blocks, ...\], not"):
        swap_blocks(layer, layer, [(1, 2)])
    with pytest.raises(ValueError, match="can't run on meta"):
        copy_blocks(random_cache(8).to("meta"), [(1, 2)])


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int8])
def test_swap_equals_its_twin(dtype: torch.dtype) -> None:
    cache, host, twin = random_cache(8, dtype), random_cache(4, dtype), random_cache(4, dtype)
    swap_blocks(cache, host, [(6, 0), (2, 3)])
    reference.swap_blocks(cache, twin, [6, 2], [0, 3])
    assert torch.equal(host, twin)
    swap_blocks(host, cache, [])


@pytest.mark.parametrize(
    ("pairs", "message"),
    [([(1, 2), (3, 2)], "target of two"), ([(1, 4)], "no copy 1 -> 4 among 8 -> 4")],
)
def test_swaps_that_make_no_sense_are_refused(pairs: list[tuple[int, int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        swap_blocks(random_cache(8), random_cache(4), pairs)


def test_blocks_that_differ_are_not_swapped() -> None:
    with pytest.raises(ValueError, match="blocks differ"):
        swap_blocks(random_cache(8), random_cache(4, torch.float16), [(1, 2)])


# --- what wrappers refuse -------------------------------------------------------------------------


def broken(**changes: Any) -> Case:
    case = make_case(decodes(3, 9), heads=(2, 1, 16))
    for name, change in changes.items():
        setattr(case, name, change(getattr(case, name)))
    return case


def scales_of(case: Case) -> Tensor:
    return torch.ones(case.layer_cache.shape[:4])


REFUSED = {
    r"a layer's cache is \[2,": {"layer_cache": lambda cache: cache[0]},
    r"the cache has head_dim 16": {"query": lambda query: query[..., :8]},
    r"fp32, fp16 or bf16, not torch.float64": {"query": lambda query: query.double()},
    r"the cache is torch.float32, the heads are torch.float16": {"query": lambda q: q.half()},
    r"must be multiples of 16": {
        "layer_cache": lambda cache: cache[..., :8].contiguous(),
        "query": lambda query: query[..., :8],
    },
    r"2 query heads can't share 3 KV heads": {"layer_cache": lambda c: c.repeat(1, 1, 1, 3, 1)},
    r"block tables are": {"block_tables": lambda tables: tables[0]},
    r"lengths \[num_seqs\], not": {"seq_lens": lambda lens: lens[:1]},
    r"block_tables must be dense": {"block_tables": lambda tables: tables.T.contiguous().T},
    r"seq_lens must be dense": {"seq_lens": lambda lens: lens.repeat_interleave(2)[::2]},
    r"block_tables must be int32 or int64, not torch.float": {"block_tables": lambda t: t.float()},
    r"seq_lens must be int32 or int64, not torch.int16": {"seq_lens": lambda lens: lens.short()},
    r"no heads or slots: \[2, 0, 16\]": {"query": lambda query: query[:, :0]},
    r"no heads or slots: .* \[2, 6, 8, 0, 16\]": {"layer_cache": lambda c: c[:, :, :, :0]},
    r"no heads or slots: .* \[2, 6, 0, 1, 16\]": {"layer_cache": lambda c: c[:, :, :0]},
    r"the cache is on cpu, \[2, 2, 16\] on meta": {"query": lambda query: query.to("meta")},
    r"the cache is on cpu, \[2, 4\] on meta": {"block_tables": lambda t: t.to("meta")},
    r"the cache is on cpu, \[2\] on meta": {"seq_lens": lambda lens: lens.to("meta")},
    r"can't run on meta": {"layer_cache": lambda cache: cache.to("meta")},
    r"a block reaches over 21474837": {
        "layer_cache": lambda c: untouched(2**31 + 1024).as_strided(
            c.shape, (16, 16, 306783392, 16, 1)
        )
    },
}


@pytest.mark.parametrize("message", REFUSED)
def test_attention_refuses_what_does_not_fit(message: str) -> None:
    case = broken(**REFUSED[message])
    with pytest.raises(ValueError, match=message):
        paged_decode(case.query, case.layer_cache, *case.where)
    with pytest.raises(ValueError, match=message):
        paged_decode_split_kv(case.query, case.layer_cache, *case.where)
    with pytest.raises(ValueError, match=message):
        paged_prefill(case.query, case.layer_cache, *case.where, case.query_start_loc, 1)


def test_each_wrapper_refuses_what_only_it_can_not() -> None:
    case = broken()
    query, cache, where = case.query, case.layer_cache, case.where
    with pytest.raises(ValueError, match="2 sequences decode 1 queries"):
        paged_decode(query[:1], cache, *where)
    with pytest.raises(ValueError, match="a window has at least 1 token, not 0"):
        paged_decode(query, cache, *where, window=0)
    with pytest.raises(ValueError, match="a block of 1024 tokens is a tile of 65536 bytes"):
        paged_decode(query, torch.zeros(2, 1, 1024, 1, 16), *where)
    for splits in (0, 3, -4, 256):
        with pytest.raises(ValueError, match=f"powers of two .*: {splits}, "):
            paged_decode_split_kv(query, cache, *where, num_splits=splits)
    for tile in (0, 8, 48, 256):
        with pytest.raises(ValueError, match=f"powers of two .*, {tile}$"):
            paged_decode_split_kv(query, cache, *where, tile=tile)
    with pytest.raises(ValueError, match="2 sequences need 3 starts"):
        paged_prefill(query, cache, *where, case.query_start_loc[1:], 1)
    with pytest.raises(ValueError, match="2 sequences of 0 new tokens at most have no 2"):
        paged_prefill(query, cache, *where, case.query_start_loc, 0)
    with pytest.raises(ValueError, match="query_start_loc must be int32 or int64"):
        paged_prefill(query, cache, *where, case.query_start_loc.double(), 1)
    with pytest.raises(ValueError, match="must be int8 and its scales fp32"):
        paged_decode_int8(query, cache, scales_of(case), *where)
    with pytest.raises(ValueError, match="scales are"):
        paged_decode_int8(query, cache.to(torch.int8), scales_of(case)[:, :1], *where)


def test_writes_refuse_what_does_not_fit() -> None:
    key, value = rows(2, 2, 16, torch.float32)
    cache, slots = torch.zeros(2, 4, 8, 2, 16), torch.tensor([1, 2])
    with pytest.raises(ValueError, match=r"the cache takes \[num_tokens, 2, 16\]"):
        kv_write(key, value[:, :1], cache, slots)
    with pytest.raises(ValueError, match="2 tokens need as many slots"):
        kv_write(key, value, cache, slots[:1])
    with pytest.raises(ValueError, match="slot_mapping must be dense"):
        kv_write(key, value, cache, torch.arange(4)[::2])
    with pytest.raises(ValueError, match=r"slot_mapping must be int32 or int64, not torch\.float"):
        kv_write(key, value, cache, slots.float())
    with pytest.raises(ValueError, match=r"\[2\] on meta"):
        kv_write(key, value, cache, slots.to("meta"))
    with pytest.raises(ValueError, match=r"\[2, 2, 16\] on meta"):
        kv_write(key, value.to("meta"), cache, slots)
    with pytest.raises(ValueError, match=r"values torch\.float16"):
        kv_write(key, value.half(), cache, slots)
    with pytest.raises(ValueError, match="tokens share memory"):
        kv_write(key, value, cache[:, :, :1].expand(-1, -1, 8, -1, -1), slots)
    with pytest.raises(ValueError, match=r"the heads are torch\.float16"):
        kv_write(key.half(), value.half(), cache, slots)
    with pytest.raises(ValueError, match="side by side"):
        kv_write(key, value, cache.repeat(1, 1, 1, 1, 2)[..., :16], slots)
    with pytest.raises(ValueError, match="must be int8"):
        kv_write_int8(key, value, cache, torch.zeros(2, 4, 8, 2), slots)
    scales = torch.zeros(2, 1, 1, 2).expand(2, 4, 8, 2)
    with pytest.raises(ValueError, match="tokens share memory"):
        kv_write_int8(key, value, cache.to(torch.int8), scales, slots)
