"""What no mistake of a chapter is, but may come back from a student's function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from minipaged.exercises.catalog import find_exercise
from minipaged.exercises.checking import judge


def gather(layer_cache: Tensor, block_table: Any, num_tokens: int) -> Tensor:
    return layer_cache[:, block_table].flatten(1, 2)[:, :num_tokens]


def test_keys_and_values_may_come_as_one_tensor() -> None:
    assert judge(find_exercise("4.2"), gather).passed


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e30, -1.0, 0.5])
def test_numbers_that_are_in_no_cache(number: float) -> None:
    def gather_kv(layer_cache: Tensor, block_table: Any, num_tokens: int) -> Any:
        return torch.full_like(gather(layer_cache, block_table, num_tokens), number)

    assert "nobody's" in str(judge(find_exercise("4.2"), gather_kv))


def test_a_cache_that_is_emptied_while_it_is_read() -> None:
    def gather_kv(layer_cache: Tensor, block_table: Any, num_tokens: int) -> Any:
        found = gather(layer_cache, block_table, num_tokens)
        layer_cache.zero_()
        return found

    assert "only to be read" in str(judge(find_exercise("4.2"), gather_kv))


@pytest.mark.parametrize("answer", [None, 7, ([1], [2]), ([torch.ones(2)] * 2, [1], [2]), "abc"])
def test_what_is_not_three_lists(answer: Any) -> None:
    def decode_batch(block_tables: Any, num_computed_tokens: Any, block_size: int) -> Any:
        return answer

    assert judge(find_exercise("4.3"), decode_batch).status == "failed"


def test_lists_may_be_tensors() -> None:
    def decode_batch(block_tables: Any, num_computed_tokens: Any, block_size: int) -> Any:
        positions = torch.tensor(num_computed_tokens)
        blocks = [t[p // block_size] for t, p in zip(block_tables, positions, strict=True)]
        slots = torch.tensor(blocks) * block_size + positions % block_size
        return positions, positions + 1, slots

    assert judge(find_exercise("4.3"), decode_batch).passed


def test_a_table_without_the_names_that_are_checked() -> None:
    class BlockTable:
        def __init__(self, block_size: int) -> None:
            self.blocks: list[int] = []

        def append(self, num_new_tokens: int, allocate: Callable[[int], list[int]]) -> Any:
            return allocate(1)

    assert "keep the names" in str(judge(find_exercise("3.3"), BlockTable))


@pytest.mark.parametrize("answer", [None, "2", [1], 10**9, -(10**9)])
def test_what_is_no_number_of_blocks(answer: Any) -> None:
    def blocks_to_append(
        num_tokens: int, num_new_tokens: int, num_blocks: int, block_size: int
    ) -> Any:
        return answer

    assert judge(find_exercise("3.2"), blocks_to_append).status == "failed"
