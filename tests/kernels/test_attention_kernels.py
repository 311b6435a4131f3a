"""Attention kernels, in Triton's interpreter, equal softmax attention in float64.

Blocks are scrambled; slots without a token hold NaN, table entries without a block 2^30: what reads
one of them gives NaN or an error.

Bugs that were planted, and found by a test here: a load without its mask; a context that ends a
token early; a window one token too wide; a sum, or values, not rescaled; a KV head that is another
group's; a division by a sum of nothing; a split that ignores the window, that ends a token early,
or is cut off; an empty split that counts; a block id in 32 bits; a table read beyond its end; a
chunk's position counted from 0; every tile of queries placed like the first; keys begun where the
last query of a tile sees them; a row that sees nothing of a tile; keys' scales used for values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton has no build for this system")
from minipaged_kernels import reference
from minipaged_kernels.interpreter import (
    cure_bf16,
    overflow_checked,
    shuffled_programs,
)
from minipaged_kernels.paged_decode import paged_decode
from minipaged_kernels.paged_decode_int8 import paged_decode_int8
from minipaged_kernels.paged_decode_split_kv import paged_decode_split_kv
from minipaged_kernels.paged_prefill import paged_prefill
from paged_cases import ACCURACY, Case, decodes, lengths, make_case

pytestmark = pytest.mark.interpret
cure_bf16()
DTYPES = list(ACCURACY)
WINDOWS = [None, 1, 5, 8, 100]


def split(case: Case, window: int | None = None, splits: int = 4) -> Tensor:
    return paged_decode_split_kv(
        case.query, case.layer_cache, *case.where, window, num_splits=splits, tile=16
    )


def whole(case: Case, window: int | None = None) -> Tensor:
    return paged_decode(case.query, case.layer_cache, *case.where, window)


def prefill(case: Case, window: int | None = None) -> Tensor:
    return paged_prefill(
        *(case.query, case.layer_cache, *case.where),
        *(case.query_start_loc, case.max_query_len, window),
    )


Kernel = Callable[..., Tensor]
DECODERS = pytest.mark.parametrize("attend", [whole, split, prefill])


@pytest.mark.parametrize("block_size", [1, 4, 8, 16])
@DECODERS
def test_decodes_contexts_that_end_around_a_block(attend: Kernel, block_size: int) -> None:
    case = make_case(decodes(*lengths(block_size)), block_size, heads=(3, 1, 64))
    case.check(attend(case))


@pytest.mark.parametrize("block_size", [5, 32, 128])
@DECODERS
def test_decodes_blocks_of_any_size(attend: Kernel, block_size: int) -> None:
    case = make_case(decodes(block_size + 1, 2), block_size, heads=(2, 1, 64))
    case.check(attend(case))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [16, 64, 80, 96, 128])
@DECODERS
def test_decodes_heads_of_any_size(attend: Kernel, head_dim: int, dtype: torch.dtype) -> None:
    case = make_case(decodes(3, 21), heads=(6, 2, head_dim), dtype=dtype)
    case.check(attend(case))


@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(1, 1), (3, 3), (9, 3), (8, 1), (20, 1)])
@DECODERS
def test_query_heads_share_kv_heads(attend: Kernel, num_heads: int, num_kv_heads: int) -> None:
    case = make_case(decodes(13), heads=(num_heads, num_kv_heads, 16))
    case.check(attend(case))


@pytest.mark.parametrize("window", WINDOWS)
@DECODERS
def test_decodes_within_a_window(attend: Kernel, window: int | None) -> None:
    case = make_case(decodes(*lengths(8)), heads=(2, 1, 16), window=window)
    case.check(attend(case, window))


@pytest.mark.parametrize("splits", [1, 2, 8, 16])
def test_a_context_is_split_into_any_number_of_parts(splits: int) -> None:
    case = make_case(decodes(1, 33, 64), heads=(2, 1, 16))
    case.check(split(case, splits=splits))


def test_splits_and_tile_are_chosen() -> None:
    case = make_case(decodes(1, 40), heads=(2, 1, 16))
    case.check(paged_decode_split_kv(case.query, case.layer_cache, *case.where))


@DECODERS
def test_large_scores_do_not_overflow(attend: Kernel) -> None:
    case = make_case(decodes(9, 40), heads=(2, 1, 16))
    case.query *= 1e4  # the largest score's weight is 1, the others' are 0
    best = attend(case)
    assert best.isfinite().all()
    assert torch.equal(best, attend(replace(case, query=case.query * 2)))


@pytest.mark.parametrize("attend", [whole, split])
def test_a_sequence_without_tokens_gives_zeros(attend: Kernel) -> None:
    case = make_case(decodes(4, 9), heads=(2, 1, 16))
    case.seq_lens[0] = 0
    output = attend(case)
    assert not output[0].any()
    assert torch.allclose(output[1].double(), case.expected[1], atol=5e-6)


@DECODERS
def test_a_batch_may_be_empty(attend: Kernel) -> None:
    case = make_case(decodes(4), heads=(2, 1, 16))
    none = replace(
        case,
        query=case.query[:0],
        block_tables=case.block_tables[:0],
        seq_lens=case.seq_lens[:0],
        query_start_loc=case.query_start_loc[:1],
    )
    assert attend(none).shape == (0, 2, 16)


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
@DECODERS
def test_indices_may_have_32_bits(attend: Kernel, index_dtype: torch.dtype) -> None:
    case = make_case(decodes(9, 2), heads=(2, 1, 16))
    case.block_tables = case.block_tables.to(index_dtype)
    case.seq_lens, case.query_start_loc = (
        tensor.to(index_dtype) for tensor in (case.seq_lens, case.query_start_loc)
    )
    case.check(attend(case))


BATCHES = {
    "prefills": [(1, 1), (7, 7), (8, 8), (9, 9), (29, 29)],
    "chunks": [(3, 11), (8, 16), (2, 29)],
    "mixed": [(1, 17), (12, 12), (1, 3), (5, 30), (1, 8)],
}


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("batch", BATCHES)
def test_prefills_chunks_and_decodes_in_one_batch(batch: str, window: int | None) -> None:
    case = make_case(BATCHES[batch], heads=(3, 1, 16), window=window)
    case.check(prefill(case, window))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_prefill_in_every_precision(dtype: torch.dtype, block_size: int) -> None:
    case = make_case(BATCHES["mixed"], block_size, heads=(6, 2, 80), dtype=dtype)
    case.check(prefill(case))


def test_a_query_may_see_nothing_of_its_first_tile() -> None:
    """64 queries share a tile here, and the last sees none of the first one's 32 keys."""
    case = make_case([(70, 75)], heads=(1, 1, 16), window=5, dtype=torch.float16)
    case.check(prefill(case, 5))


@DECODERS
def test_programs_may_run_in_any_order(attend: Kernel) -> None:
    case = make_case(decodes(9, 40, 1), heads=(4, 2, 16))
    in_order = attend(case)
    for seed in range(2):
        with shuffled_programs(seed):
            assert torch.equal(attend(case), in_order)


def test_views_of_a_fused_projection_are_read_in_place() -> None:
    case = make_case(decodes(9, 2), heads=(2, 1, 16))
    fused = torch.cat([case.query, torch.full((2, 2, 16), torch.nan)], dim=1)
    case.query = fused[:, :2]
    case.check(whole(case))


# --- a cache of more than 2^31 elements -----------------------------------------------------------


@DECODERS
def test_block_ids_reach_beyond_32_bits(attend: Kernel) -> None:
    """The memory is never touched but for three blocks, so the system never gives it."""
    small = make_case(decodes(9, 20), heads=(2, 1, 64), dtype=torch.float16)
    num_blocks = 2**31 // small.layer_cache[0, 0].numel() + 8
    shape = (2, num_blocks, *small.layer_cache.shape[2:])
    try:
        large = torch.empty(shape, dtype=torch.float16)
    except RuntimeError:
        pytest.skip("the system does not promise 9 GB that nobody will use")
    used = small.block_tables < small.layer_cache.shape[1]
    for entry in small.block_tables[used].tolist():
        large[:, num_blocks - 1 - entry] = small.layer_cache[:, entry]
    small.block_tables[used] = num_blocks - 1 - small.block_tables[used]
    small.layer_cache = large
    with overflow_checked():
        small.check(attend(small))


# --- int8 -----------------------------------------------------------------------------------------


def as_int8(case: Case) -> tuple[Tensor, Tensor]:
    """Quantize a case's cache. Integers know no NaN: the scales of unused slots are."""
    integers, scales = reference.quantize(case.layer_cache.nan_to_num())
    scales[case.layer_cache[..., 0].isnan()] = torch.nan
    return integers, scales


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("block_size", [1, 8, 16])
@pytest.mark.parametrize("dtype", DTYPES)
def test_int8_decode_equals_its_twin(
    dtype: torch.dtype, block_size: int, window: int | None
) -> None:
    case = make_case(decodes(*lengths(block_size)[2:]), block_size, (3, 1, 80), window, dtype)
    integers, scales = as_int8(case)
    output = paged_decode_int8(case.query, integers, scales, *case.where, window)
    exact = reference.paged_decode_int8(
        *(case.query.double(), integers.double(), scales.nan_to_num().double()),
        *(*case.where, window),
    )
    assert (output.double() - exact).abs().max() < ACCURACY[dtype]
    assert (exact - case.expected).abs().max() < 0.03  # what 8 bits cost, for N(0, 1)
