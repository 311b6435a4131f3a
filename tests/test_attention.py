"""Attention over a paged cache equals softmax attention in float64, for every backend and batch.

Every cache is poisoned: what no sequence has written holds large numbers, so that a token read from
a wrong block, beyond a sequence's end or from padding is seen. Blocks are scrambled.

Bugs that were planted, and found by a test here: a query that sees one token of its future; a
window one token too wide; a slot of -1 that wraps around to the last slot; the first tokens written
where one is skipped; values read from the keys; decodes handed back in the order of their lengths;
a slice of queries that starts its mask at position 0; heads that read the KV head
h % num_kv_heads; the step's tokens taken for the context of a chunk.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from minipaged_kernels import reference
from torch import Tensor

from minipaged.engine import gather_attention, kv_cache
from minipaged.engine.attention import AttentionMetadata, build_metadata, get_attention_backend
from minipaged.errors import ConfigError
from minipaged.models.config import ModelConfig

BACKENDS = ["sdpa", "matmul", "reference", "auto"]
HEADS = [(4, 4, 8), (6, 2, 16), (8, 1, 20), (9, 3, 64)]  # heads, KV heads, head_dim
POISON = 1e4
NUM_BLOCKS = 40
# (new tokens, context length) of each sequence
DECODES = [(1, 1), (1, 4), (1, 5), (1, 17), (1, 3)]
PREFILLS = [(1, 1), (3, 3), (4, 4), (5, 5), (13, 13)]
CHUNKS = [(3, 7), (4, 8), (2, 17)]
BATCHES = {
    "one decode": [(1, 9)],
    "decodes": DECODES,
    "prefills": PREFILLS,
    "chunks": CHUNKS,
    "mixed": [DECODES[3], PREFILLS[4], CHUNKS[0], DECODES[1], CHUNKS[2], DECODES[2]],
}


@dataclass
class Step:
    """A step's inputs, a poisoned cache with what was computed before, and the right answer."""

    query: Tensor
    key: Tensor
    value: Tensor
    layer_cache: Tensor
    metadata: AttentionMetadata
    expected: Tensor
    written_slots: list[int]

    def run(self, backend: str, window: int | None) -> Tensor:
        plan = get_attention_backend(backend, "cpu").plan(
            self.metadata, self.layer_cache[None], self.query.shape[1], window
        )
        return plan(self.query, self.key, self.value, self.layer_cache)


def make_step(
    lens: Sequence[tuple[int, int]],
    block_size: int = 4,
    heads: tuple[int, int, int] = (6, 2, 16),
    window: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Step:
    num_heads, num_kv_heads, head_dim = heads
    generator = torch.Generator().manual_seed(len(lens) + block_size + head_dim)
    num_blocks = max(NUM_BLOCKS, sum(-(-context // block_size) for _, context in lens) + 1)
    free = list(range(num_blocks))
    random.Random(block_size).shuffle(free)
    cache = torch.full((2, num_blocks, block_size, num_kv_heads, head_dim), POISON).to(dtype)
    parts: dict[str, list[Tensor]] = {"query": [], "key": [], "value": [], "expected": []}
    tables, slots = [], []
    for new, context in lens:
        query = torch.randn(new, num_heads, head_dim, generator=generator).to(dtype)
        key, value = torch.randn(2, context, num_kv_heads, head_dim, generator=generator).to(dtype)
        table = [free.pop() for _ in range(-(-context // block_size))]
        places = [table[p // block_size] * block_size + p % block_size for p in range(context)]
        old = context - new
        cache.flatten(1, 2)[0, places[:old]] = key[:old]
        cache.flatten(1, 2)[1, places[:old]] = value[:old]
        tables.append(table)
        slots += places[old:]
        parts["query"].append(query)
        parts["key"].append(key[old:])
        parts["value"].append(value[old:])
        parts["expected"].append(softmax_attention(query, key, value, window))
    metadata = build_metadata([new for new, _ in lens], [ctx for _, ctx in lens], tables, slots)
    joined = {name: torch.cat(tensors) for name, tensors in parts.items()}
    return Step(**joined, layer_cache=cache, metadata=metadata, written_slots=slots)


def softmax_attention(query: Tensor, key: Tensor, value: Tensor, window: int | None) -> Tensor:
    """One sequence in float64, one query and head at a time."""
    query, key, value = query.double(), key.double(), value.double()
    output = torch.empty_like(query)
    group = query.shape[1] // key.shape[1]
    for row in range(len(query)):
        position = len(key) - len(query) + row
        first = 0 if window is None else max(0, position - window + 1)
        seen = slice(first, position + 1)
        for head in range(query.shape[1]):
            scores = key[seen, head // group] @ query[row, head] / math.sqrt(query.shape[2])
            output[row, head] = scores.softmax(0) @ value[seen, head // group]
    return output


def worst(actual: Tensor, expected: Tensor) -> float:
    return float((actual.double() - expected).abs().max())


@pytest.mark.parametrize("window", [None, 1, 3, 6, 100])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_equals_softmax_attention(backend: str, batch: str, window: int | None) -> None:
    step = make_step(BATCHES[batch], window=window)
    assert worst(step.run(backend, window), step.expected) < 2e-6


@pytest.mark.parametrize("block_size", [1, 2, 16])
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_equals_softmax_attention_for_every_shape(
    backend: str, heads: tuple[int, int, int], block_size: int
) -> None:
    step = make_step(BATCHES["mixed"], block_size, heads)
    assert worst(step.run(backend, None), step.expected) < 3e-6


HALVES = [(name, torch.bfloat16, 3e-2) for name in BACKENDS]
HALVES += [(name, torch.float16, 4e-3) for name in BACKENDS if name != "matmul"]


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("backend", "dtype", "accuracy"), HALVES)
def test_half_the_bits_are_enough(
    backend: str, batch: str, dtype: torch.dtype, accuracy: float
) -> None:
    step = make_step(BATCHES[batch], heads=(9, 3, 64), dtype=dtype)
    output = step.run(backend, None)
    assert output.dtype == dtype
    assert worst(output, step.expected) < accuracy


def test_the_reference_is_exact_in_float64() -> None:
    step = make_step(BATCHES["mixed"], window=5, dtype=torch.float64)
    assert worst(step.run("reference", 5), step.expected) < 1e-13


@pytest.mark.parametrize("lens", [[(150, 150)], [(300, 300), (1, 290)], [(140, 333)], [(128, 128)]])
@pytest.mark.parametrize("window", [None, 7, 200])
@pytest.mark.parametrize("backend", ["sdpa", "matmul"])
def test_more_queries_than_a_slice(
    backend: str, window: int | None, lens: list[tuple[int, int]]
) -> None:
    step = make_step(lens, block_size=16, heads=(2, 1, 8), window=window)
    assert worst(step.run(backend, window), step.expected) < 3e-6


@pytest.mark.parametrize("backend", ["sdpa", "matmul"])
@pytest.mark.parametrize(("worth", "tokens"), [(0, 100), (10, 100), (10**9, 100), (10**9, 1)])
def test_decodes_come_back_in_their_order_however_they_are_grouped(
    backend: str, worth: int, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather_attention, "PASS_WORTH", worth)
    monkeypatch.setattr(gather_attention, "PASS_TOKENS", tokens)
    lens = [(1, context) for context in (3, 40, 1, 17, 39, 2)]
    step = make_step(lens)
    assert worst(step.run(backend, None), step.expected) < 2e-6


@pytest.mark.parametrize("backend", BACKENDS)
def test_writes_the_slots_and_nothing_else(backend: str) -> None:
    step = make_step(BATCHES["mixed"])
    before = step.layer_cache.clone()
    step.run(backend, None)
    after, before = step.layer_cache.flatten(1, 2), before.flatten(1, 2)
    assert torch.equal(after[0, step.written_slots], step.key)
    assert torch.equal(after[1, step.written_slots], step.value)
    others = sorted(set(range(after.shape[1])) - set(step.written_slots))
    assert torch.equal(after[:, others], before[:, others])


@pytest.mark.parametrize("backend", BACKENDS)
def test_slot_minus_one_is_not_written(backend: str) -> None:
    step = make_step([(3, 3), (1, 5)])
    slots = [step.written_slots[0], -1, *step.written_slots[2:]]
    step.metadata = build_metadata([3, 1], [3, 5], step.metadata.block_tables.tolist(), slots)
    before = step.layer_cache.clone()
    step.run(backend, None)
    changed = (step.layer_cache != before).any(dim=-1).any(dim=-1).flatten(1).any(dim=0)
    assert changed.nonzero().flatten().tolist() == sorted(set(slots) - {-1})
    by_slot = step.layer_cache.flatten(1, 2)
    for token in (0, 2, 3):
        assert torch.equal(by_slot[0, slots[token]], step.key[token])
        assert torch.equal(by_slot[1, slots[token]], step.value[token])


@pytest.mark.parametrize("backend", BACKENDS)
def test_sequences_may_share_blocks(backend: str) -> None:
    step = make_step([(1, 9), (1, 9)])
    shared = step.metadata.block_tables[0].tolist()
    slots = [step.written_slots[0], step.written_slots[0]]
    step.metadata = build_metadata([1, 1], [9, 9], [shared, shared], slots)
    for tensor in (step.query, step.key, step.value):
        tensor[1] = tensor[0]
    output = step.run(backend, None)
    assert worst(output, step.expected[[0, 0]]) < 2e-6


@pytest.mark.parametrize("backend", BACKENDS)
def test_backends_take_views(backend: str) -> None:
    step = make_step(BATCHES["mixed"])
    together = torch.cat([step.query, step.key, step.value], dim=1)
    step.query, step.key, step.value = together.split([6, 2, 2], dim=1)
    assert worst(step.run(backend, None), step.expected) < 2e-6


def test_a_pass_is_bounded() -> None:
    lengths = [30_000] * 5
    assert [len(group) for group in gather_attention.like_lengths(range(5), lengths)] == [2, 2, 1]


def test_an_unknown_backend_is_an_error_that_names_those_there_are() -> None:
    with pytest.raises(
        ConfigError, match=r"'flash'.*auto, triton, triton-interpret, sdpa, matmul, reference"
    ):
        get_attention_backend("flash", "cpu")


def test_metadata_pads_tables_with_a_valid_block() -> None:
    metadata = build_metadata([2, 1], [2, 9], [[5], [1, 2, 3]], [20, 21, 12])
    assert metadata.block_tables.tolist() == [[5, 0, 0], [1, 2, 3]]
    assert metadata.query_start_loc.tolist() == [0, 2, 3]
    assert metadata.query_lens == [2, 1]
    assert metadata.seq_lens_list == metadata.seq_lens.tolist() == [2, 9]


CONFIG = ModelConfig("llama", 11, 8, 16, 3, 4, 2, 5, 64, 1e-6, 10000.0, True)


def test_allocate_gives_zeros_of_the_right_shape_and_size() -> None:
    cache = kv_cache.allocate(CONFIG, num_blocks=7, block_size=4, dtype=torch.bfloat16)
    assert cache.shape == (3, 2, 7, 4, 2, 5)
    assert not cache.any()
    per_block = kv_cache.bytes_per_block(CONFIG, 4, torch.bfloat16)
    assert per_block * 7 == cache.numel() * cache.element_size()
    assert kv_cache.blocks_within(7 * per_block, CONFIG, 4, torch.bfloat16) == 7
    assert kv_cache.blocks_within(7 * per_block - 1, CONFIG, 4, torch.bfloat16) == 6


@pytest.mark.parametrize(("num_blocks", "block_size"), [(0, 4), (4, 0), (-1, 4)])
def test_a_cache_without_blocks_is_refused(num_blocks: int, block_size: int) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        kv_cache.allocate(CONFIG, num_blocks, block_size, torch.float32)


def test_memory_for_less_than_a_block_is_refused_with_the_numbers() -> None:
    with pytest.raises(ConfigError, match="959 bytes hold no KV block: one takes 960 bytes"):
        kv_cache.blocks_within(959, CONFIG, 4, torch.float32)


def random_cache(num_blocks: int) -> Tensor:
    generator = torch.Generator().manual_seed(num_blocks)
    return torch.randn(3, 2, num_blocks, 4, 2, 5, generator=generator)


def test_copy_blocks_equals_its_reference() -> None:
    cache = random_cache(8)
    twin = cache.clone()
    kv_cache.copy_blocks(cache, [(1, 4), (1, 0), (7, 5)])
    reference.copy_blocks(twin, [1, 1, 7], [4, 0, 5])
    assert torch.equal(cache, twin)
    assert torch.equal(cache[:, :, 4], random_cache(8)[:, :, 1])
    kv_cache.copy_blocks(cache, [])
    assert torch.equal(cache, twin)


@pytest.mark.parametrize("pairs", [[(1, 2), (2, 3)], [(1, 2), (3, 2)], [(1, 1)]])
def test_copies_that_depend_on_their_order_are_a_bug(pairs: list[tuple[int, int]]) -> None:
    with pytest.raises(AssertionError, match="block is"):
        kv_cache.copy_blocks(random_cache(8), pairs)


def test_swap_out_and_in_again_elsewhere() -> None:
    cache, swap = random_cache(8), torch.zeros(3, 2, 4, 4, 2, 5)
    before = cache.clone()
    kv_cache.swap_blocks(cache, swap, [(6, 0), (2, 3)])
    cache[:, :, [6, 2]] = POISON
    kv_cache.swap_blocks(swap, cache, [(0, 1), (3, 6)])
    assert torch.equal(cache[:, :, [1, 6]], before[:, :, [6, 2]])
    assert torch.equal(cache[:, :, [0, 3, 4, 5, 7]], before[:, :, [0, 3, 4, 5, 7]])


def test_kv_write_reference_skips_minus_one() -> None:
    cache = torch.zeros(2, 3, 4, 1, 2)
    key, value = torch.ones(2, 1, 2), torch.full((2, 1, 2), 2.0)
    reference.kv_write(key, value, cache, torch.tensor([-1, 6]))
    assert cache.flatten(1, 2).amax(dim=(2, 3)).tolist() == [
        [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0],
    ]
