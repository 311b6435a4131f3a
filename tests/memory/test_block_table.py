from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.memory.block_table import BlockTable, blocks_at_most, blocks_for, slot_mapping


@given(num_tokens=st.integers(0, 100), block_size=st.integers(1, 9))
def test_blocks_for_is_what_position_after_position_opens(num_tokens, block_size):
    opened = {position // block_size for position in range(num_tokens)}
    assert blocks_for(num_tokens, block_size) == len(opened)


@given(
    num_prompt_tokens=st.integers(1, 40),
    max_tokens=st.integers(0, 20),
    num_sequences=st.integers(1, 5),
    block_size=st.integers(1, 7),
)
def test_blocks_at_most_counts_shared_and_own_blocks(
    num_prompt_tokens, max_tokens, num_sequences, block_size
):
    fed = num_prompt_tokens + max(max_tokens - 1, 0)
    shared = {p // block_size for p in range(num_prompt_tokens // block_size * block_size)}
    own = {p // block_size for p in range(fed)} - shared
    expected = len(shared) + num_sequences * len(own)
    assert blocks_at_most(num_prompt_tokens, max_tokens, num_sequences, block_size) == expected


@given(data=st.data(), block_size=st.integers(1, 5), num_blocks=st.integers(1, 5))
def test_slot_mapping_follows_the_table(data, block_size, num_blocks):
    table = data.draw(st.permutations(range(10)))[:num_blocks]
    stop = data.draw(st.integers(0, num_blocks * block_size))
    start = data.draw(st.integers(0, stop))
    every = [block * block_size + offset for block in table for offset in range(block_size)]
    assert slot_mapping(table, start, stop, block_size) == every[start:stop]


@pytest.mark.parametrize(("start", "stop"), [(-1, 0), (-1, 3), (0, 9), (8, 9), (3, 2)])
def test_slot_mapping_refuses_positions_without_a_block(start, stop):
    with pytest.raises(ValueError, match=f"positions {start} to {stop} do not lie in 2 blocks"):
        slot_mapping([5, 3], start, stop, block_size=4)


@pytest.mark.parametrize(
    ("num_tokens", "written"), [(0, []), (1, [5]), (4, [5]), (5, [5, 3]), (8, [5, 3])]
)
def test_written_blocks_hold_a_token(num_tokens, written):
    table = BlockTable([5, 3, 9], num_tokens)
    assert table.written_blocks(block_size=4) == written


def test_a_forked_table_is_a_copy_without_the_reserved_blocks():
    table = BlockTable([5, 3, 9], 6, tail=[1, 2], hashes=["aa"], num_published=1)
    child = table.forked(block_size=4)
    assert child == BlockTable([5, 3], 6, tail=[1, 2], hashes=["aa"], num_published=1)
    child.block_ids.append(7)
    child.tail.append(8)
    child.hashes.append("bb")
    assert table == BlockTable([5, 3, 9], 6, tail=[1, 2], hashes=["aa"], num_published=1)
