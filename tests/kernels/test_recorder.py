"""The recorder: who touched what, and mistakes that a GPU would hide.

Planted and caught: a block id one too large (its address lies in the tensor beside), a mask left
out, two programs that write one slot, a copy whose source is another copy's target.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
import torch

triton = pytest.importorskip("triton", reason="Triton has no build for this system")
import triton.language as tl  # noqa: E402
from minipaged_kernels.copy_blocks import copy_blocks  # noqa: E402
from minipaged_kernels.interpreter import KernelError, shuffled_programs  # noqa: E402
from minipaged_kernels.kv_write import kv_write, kv_write_kernel  # noqa: E402
from minipaged_kernels.kv_write_int8 import kv_write_int8  # noqa: E402
from minipaged_kernels.paged_decode import paged_decode, paged_decode_kernel  # noqa: E402
from minipaged_kernels.paged_decode_int8 import paged_decode_int8  # noqa: E402
from minipaged_kernels.paged_decode_split_kv import paged_decode_split_kv  # noqa: E402
from minipaged_kernels.paged_prefill import FP32_ROWS, paged_prefill  # noqa: E402
from minipaged_kernels.recorder import Argument, record  # noqa: E402
from torch import Tensor  # noqa: E402

from minipaged.memory.integrity import check_trace  # noqa: E402
from minipaged.memory.trace import Trace, TraceHeader  # noqa: E402

pytestmark = pytest.mark.interpret


def line_of(kernel: object, code: str) -> int:
    """The line of a function's source that begins with `code`."""
    lines, first = inspect.getsourcelines(getattr(kernel, "fn", kernel))  # type: ignore[arg-type]
    found = [number for number, line in enumerate(lines) if line.strip().startswith(code)]
    (offset,) = found
    return first + offset


# Two sequences of 6 and 3 tokens in blocks of 4; block ids are scrambled, unused entries poisoned.
TABLES = torch.tensor([[4, 1], [2, 2**30]], dtype=torch.int32)
LENGTHS = torch.tensor([6, 3], dtype=torch.int32)


def small_cache() -> Tensor:
    return torch.randn(2, 6, 4, 2, 16, generator=torch.Generator().manual_seed(0))


def decode(cache: Tensor, tables: Tensor = TABLES, lengths: Tensor = LENGTHS) -> None:
    paged_decode(torch.ones(len(lengths), 4, 16), cache, tables, lengths)


# --- what a recording holds


def test_decode_reads_each_block_through_its_table_and_each_byte_once() -> None:
    cache = small_cache()
    with record() as recording:
        decode(cache)
    keys = [touch for touch in recording.touches if touch.argument.name == "key_cache"]
    assert [(t.program, t.blocks, t.slots, t.heads) for t in keys] == [
        ((0, 0, 0), (4,), (16, 17, 18, 19), (0,)),
        ((0, 0, 0), (1,), (4, 5), (0,)),
        ((0, 1, 0), (4,), (16, 17, 18, 19), (1,)),
        ((0, 1, 0), (1,), (4, 5), (1,)),
        ((1, 0, 0), (2,), (8, 9, 10), (0,)),
        ((1, 1, 0), (2,), (8, 9, 10), (1,)),
    ]
    ideal = int(LENGTHS.sum()) * cache[0, 0, 0].numel() * cache.element_size()
    for tensor in ("key_cache", "value_cache"):
        assert recording.bytes_read(tensor) == recording.distinct_bytes_read(tensor) == ideal
        assert recording.bytes_written(tensor) == 0
    assert recording.bytes_written("output") == 2 * 4 * 16 * 4


@pytest.mark.parametrize("kernel", ["whole", "split", "int8", "prefill"])
@pytest.mark.parametrize("window", [None, 4])
def test_attention_reads_each_key_and_value_once(kernel: str, window: int | None) -> None:
    """What the window hides stays unread; a prefill's tile needs what its first query sees."""
    cache, query = small_cache(), torch.ones(2, 4, 16)
    scales, starts = torch.ones(cache.shape[:-1]), torch.tensor([0, 1, 2])
    with record() as recording:
        if kernel == "whole":
            paged_decode(query, cache, TABLES, LENGTHS, window)
        elif kernel == "split":
            paged_decode_split_kv(query, cache, TABLES, LENGTHS, window, num_splits=2)
        elif kernel == "int8":
            paged_decode_int8(query, cache.to(torch.int8), scales, TABLES, LENGTHS, window)
        else:
            paged_prefill(query, cache, TABLES, LENGTHS, starts, 1, window)
    seen = sum(min(length, window or length) for length in LENGTHS.tolist())
    ideal = seen * cache[0, 0, 0].numel() * (1 if kernel == "int8" else 4)
    for tensor in ("key_cache", "value_cache"):
        assert recording.bytes_read(tensor) == recording.distinct_bytes_read(tensor) == ideal
    assert recording.bytes_read("key_scales") == (seen * 2 * 4 if kernel == "int8" else 0)


def test_each_tile_of_a_prefill_reads_again_what_its_queries_see() -> None:
    cache, queries = torch.randn(2, 5, 4, 1, 16), FP32_ROWS // 4  # of a tile, for 4 heads each
    tables, length = torch.tensor([[3, 0, 4, 1, 2]]), torch.tensor([20])
    with record() as recording:
        paged_prefill(torch.ones(20, 4, 16), cache, tables, length, torch.tensor([0, 20]), 20)
    seen = [min(20, first + queries) for first in range(0, 20, queries)]
    assert len(seen) > 1
    assert recording.bytes_read("key_cache") == sum(seen) * 16 * 4
    assert recording.distinct_bytes_read("key_cache") == 20 * 16 * 4


def test_a_copy_moves_every_byte_of_a_block_in_all_layers_once() -> None:
    cache = torch.randn(3, 2, 6, 4, 2, 16)
    with record() as recording:
        copy_blocks(cache, [(1, 5), (1, 0)])
    moved = 2 * cache[:, :, 0].nbytes
    assert recording.bytes_read("cache") == recording.bytes_written("cache") == moved
    blocks = [touch.blocks for touch in recording.touches if touch.argument.name == "cache"]
    assert blocks == [(1,), (5,)] * 6 + [(1,), (0,)] * 6


def test_a_touch_names_its_line() -> None:
    with record() as recording:
        decode(small_cache())
    kernel = paged_decode_kernel
    for name, code in (("key_cache", "k = tl.load("), ("output", "tl.store(output")):
        touches = [touch for touch in recording.touches if touch.argument.name == name]
        assert {touch.place.line for touch in touches} == {line_of(kernel, code)}
        assert {Path(touch.place.file).name for touch in touches} == {"paged_decode.py"}
        assert all(touch.code.startswith(code) for touch in touches)


def test_a_write_goes_to_its_slot_and_minus_one_nowhere() -> None:
    cache, rows = small_cache(), torch.ones(3, 2, 16)
    with record() as recording:
        kv_write(rows, rows, cache, torch.tensor([9, -1, 20]))
    written = [touch for touch in recording.touches if touch.is_write]
    assert [(t.program[0], t.argument.name, t.blocks, t.slots) for t in written] == [
        (0, "key_cache", (2,), (9,)),
        (0, "value_cache", (2,), (9,)),
        (2, "key_cache", (5,), (20,)),
        (2, "value_cache", (5,), (20,)),
    ]
    assert recording.bytes_written("key_cache") == 2 * rows[0].numel() * 4
    assert recording.bytes_read("slot_mapping") == 3 * 8


def test_an_int8_write_puts_integers_and_scales_into_their_slot() -> None:
    cache, scales = small_cache().to(torch.int8), torch.zeros(2, 6, 4, 2)
    key, value = torch.ones(2, 3, 2, 16)
    with record() as recording:
        kv_write_int8(key, value, cache, scales, torch.tensor([9, -1, 20]))
    written = [touch for touch in recording.touches if touch.is_write]
    names = ("key_cache", "value_cache", "key_scales", "value_scales")
    assert [(t.program[:2], t.argument.name, t.blocks, t.slots, t.heads) for t in written] == [
        ((token, head), name, (slot // 4,), (slot,), (head,))
        for token, slot in ((0, 9), (2, 20))
        for head in (0, 1)
        for name in names
    ]
    for name in names:
        one = 16 if "cache" in name else 4  # bytes of a head
        assert recording.bytes_written(name) == 2 * 2 * one
        assert recording.bytes_read(name) == 0
    for name in ("key", "value"):
        assert recording.bytes_read(name) == 2 * key[0].nbytes


def test_order_does_not_change_what_is_touched() -> None:
    cache = small_cache()
    with record() as in_order:
        decode(cache)
    with record() as shuffled, shuffled_programs(seed=3):
        decode(cache)
    assert shuffled.events() != in_order.events()
    assert set(shuffled.events()) == set(in_order.events())


def test_nothing_is_recorded_outside() -> None:
    cache = small_cache()
    with record() as recording:
        pass
    decode(cache)
    assert recording.touches == []


def test_a_recording_is_saved_as_part_of_a_trace(tmp_path: Path) -> None:
    with record() as recording:
        decode(small_cache())
    trace = Trace(TraceHeader(block_size=4, num_blocks=6))
    for event in recording.events():
        trace.observe(event)
    trace.end_step(0, 2, "decode, recorded")
    trace.save(tmp_path / "run.jsonl")
    events = Trace.load(tmp_path / "run.jsonl").steps[0].events
    assert list(events) == recording.events()
    assert {event.access for event in events} == {"load", "store"}  # type: ignore[attr-defined]
    assert check_trace(tmp_path / "run.jsonl") == (1, len(events))


# --- mistakes


def test_a_block_id_one_too_large_is_out_of_bounds() -> None:
    """Its keys would be read from the first block of the values: an address that exists."""
    tables = torch.tensor([[4, 1], [6, 0]])
    line = line_of(paged_decode_kernel, "k = tl.load(")
    expected = (
        rf"paged_decode_kernel, program \(1, 0, 0\), line {line} reads outside of "
        rf"key_cache \[6, 4, 2, 16\]: 48 of 48 addresses, the first 0 bytes behind its end"
    )
    with record(), pytest.raises(KernelError, match=expected):
        decode(small_cache(), tables)


@pytest.mark.parametrize("block", [2**30, -1])
def test_a_wild_block_id_is_an_error_and_no_crash(block: int) -> None:
    tables = torch.tensor([[4, 1], [block, 0]])
    with record(), pytest.raises(KernelError, match=r"reads outside of key_cache"):
        decode(small_cache(), tables)


@triton.jit
def copy_without_mask(source, target, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(target + lanes, tl.load(source + lanes, mask=lanes < 20, other=0))


def test_a_mask_left_out_is_an_error_before_memory_is_touched() -> None:
    source, target = torch.ones(20), torch.zeros(24)[:20]
    line = line_of(copy_without_mask, "tl.store(")
    expected = (
        rf"program \(2, 0, 0\), line {line} writes outside of target \[20\]: 4 of 8 addresses, "
        r"the first 0 bytes behind its end"
    )
    with record() as recording, pytest.raises(KernelError, match=expected):
        copy_without_mask[(3,)](source, target, SIZE=8)
    assert recording.bytes_written("target") == 16 * 4
    assert target.tolist() == [1] * 16 + [0] * 4


def test_two_programs_that_write_one_slot_are_named() -> None:
    rows = torch.ones(3, 2, 16)
    line = line_of(kv_write_kernel, "tl.store(key_cache")
    expected = (
        rf"two programs write key_cache\[2, 1, 0, 0\]: \(0, 0, 0\) at line {line} and "
        rf"\(2, 0, 0\) at line {line}"
    )
    with record(), pytest.raises(KernelError, match=expected):
        kv_write(rows, rows, small_cache(), torch.tensor([9, 3, 9]))


@pytest.mark.parametrize("slot", [24, 2**40])
def test_a_slot_beyond_the_cache_is_out_of_bounds(slot: int) -> None:
    rows, slots = torch.ones(1, 2, 16), torch.tensor([slot])
    with record(), pytest.raises(KernelError, match=r"writes outside of key_cache"):
        kv_write(rows, rows, small_cache(), slots)
    with record(), pytest.raises(KernelError, match=r"writes outside of key_cache"):
        kv_write_int8(rows, rows, small_cache().to(torch.int8), torch.zeros(2, 6, 4, 2), slots)


def test_two_int8_programs_that_write_one_slot_are_named() -> None:
    rows, slots = torch.ones(2, 2, 16), torch.tensor([9, 9])
    expected = (
        r"two programs write \w+\[2, 1, 0(, 0)?\]: \(0, 0, 0\) at line \d+ and \(1, 0, 0\) at"
    )
    with record(), pytest.raises(KernelError, match=expected):
        kv_write_int8(rows, rows, small_cache().to(torch.int8), torch.zeros(2, 6, 4, 2), slots)


@triton.jit
def move_rows(rows, source, target, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, SIZE)
    row = tl.load(rows + tl.load(source + tl.program_id(0)) * SIZE + lanes)
    tl.store(rows + tl.load(target + tl.program_id(0)) * SIZE + lanes, row)


def test_a_program_that_reads_what_another_writes_is_an_error() -> None:
    rows = torch.randn(4, 8)
    with record():
        move_rows[(2,)](rows, torch.tensor([0, 1]), torch.tensor([2, 3]), SIZE=8)
    with (
        record(),
        pytest.raises(KernelError, match=r"write and read rows\[2, 0\]: \(0, 0, 0\) at line"),
    ):
        move_rows[(2,)](rows, torch.tensor([0, 2]), torch.tensor([2, 3]), SIZE=8)


# --- addresses


@pytest.mark.parametrize(
    "view",
    [
        torch.zeros(3, 4, 5),
        torch.zeros(3, 4, 5).transpose(0, 2),
        torch.zeros(6, 8, 10)[::2, 3:7, ::2],
        torch.zeros(3, 1, 5)[:, :, 1:],
        torch.zeros(2, 9)[:, 2:6].unflatten(1, (2, 2)),
    ],
    ids=["dense", "transposed", "sliced", "one", "part of rows"],
)
def test_every_element_of_a_view_is_found_and_nothing_between(view: Tensor) -> None:
    argument = Argument("view", view.data_ptr(), tuple(view.shape), view.stride(), 4)
    index = torch.cartesian_prod(*map(torch.arange, view.shape))
    offsets = (index * torch.tensor(view.stride())).sum(dim=1).numpy()
    addresses = (view.data_ptr() + 4 * offsets).astype(np.uint64)
    assert argument.elements(addresses).tolist() == list(range(view.numel()))
    span = np.arange(view.data_ptr() - 16, argument.end + 16).astype(np.uint64)
    assert (argument.elements(span) >= 0).sum() == view.numel()
