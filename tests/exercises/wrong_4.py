"""Wrong solutions of chapter 4, and what the counterexample must say about each."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# --- 4.1: write -----------------------------------------------------------------------------------


def minus_one_is_the_last(
    key: Tensor, value: Tensor, layer_cache: Tensor, slot_mapping: Any
) -> None:
    """Takes -1 for an index: the last slot of the cache is overwritten."""
    keys, values = layer_cache.flatten(1, 2)
    keys[slot_mapping] = key
    values[slot_mapping] = value


def writes_keys_twice(key: Tensor, value: Tensor, layer_cache: Tensor, slot_mapping: Any) -> None:
    for token, slot in enumerate(slot_mapping.tolist()):
        if slot >= 0:
            layer_cache[:, slot // layer_cache.shape[2], slot % layer_cache.shape[2]] = key[token]


def skips_slot_zero(key: Tensor, value: Tensor, layer_cache: Tensor, slot_mapping: Any) -> None:
    """Off by one: slot 0 is a slot."""
    for token, slot in enumerate(slot_mapping.tolist()):
        if slot > 0:
            block, offset = divmod(slot, layer_cache.shape[2])
            layer_cache[0, block, offset] = key[token]
            layer_cache[1, block, offset] = value[token]


def writes_to_a_copy(key: Tensor, value: Tensor, layer_cache: Tensor, slot_mapping: Any) -> Tensor:
    layer_cache = layer_cache.clone()
    for token, slot in enumerate(slot_mapping.tolist()):
        if slot >= 0:
            block, offset = divmod(slot, layer_cache.shape[2])
            layer_cache[0, block, offset] = key[token]
            layer_cache[1, block, offset] = value[token]
    return layer_cache


def drops_padding_but_not_its_keys(
    key: Tensor, value: Tensor, layer_cache: Tensor, slot_mapping: Any
) -> None:
    """Tokens behind one that is not written move up by one."""
    for token, slot in enumerate(slot for slot in slot_mapping.tolist() if slot >= 0):
        block, offset = divmod(slot, layer_cache.shape[2])
        layer_cache[0, block, offset] = key[token]
        layer_cache[1, block, offset] = value[token]


def takes_block_size_from_blocks(
    key: Tensor, value: Tensor, layer_cache: Tensor, slot_mapping: Any
) -> None:
    """Reads block_size off the wrong dimension: it may be right by chance."""
    for token, slot in enumerate(slot_mapping.tolist()):
        if slot >= 0:
            block, offset = divmod(slot, layer_cache.shape[1])
            layer_cache[0, block % layer_cache.shape[1], offset % layer_cache.shape[2]] = key[token]
            layer_cache[1, block % layer_cache.shape[1], offset % layer_cache.shape[2]] = value[
                token
            ]


# --- 4.2: gather ----------------------------------------------------------------------------------


def reads_physical_order(layer_cache: Tensor, block_table: Any, num_tokens: int) -> Any:
    """Sorts the table: blocks come in the order of memory."""
    keys, values = layer_cache[:, sorted(block_table)].flatten(1, 2)
    return keys[:num_tokens], values[:num_tokens]


def reads_the_first_slots(layer_cache: Tensor, block_table: Any, num_tokens: int) -> Any:
    keys, values = layer_cache.flatten(1, 2)
    return keys[:num_tokens], values[:num_tokens]


def gives_whole_blocks(layer_cache: Tensor, block_table: Any, num_tokens: int) -> Any:
    keys, values = layer_cache[:, block_table].flatten(1, 2)
    return keys, values


def cuts_from_the_end(layer_cache: Tensor, block_table: Any, num_tokens: int) -> Any:
    """Keeps the last rows, not the first: the empty slots are at the end."""
    keys, values = layer_cache[:, block_table].flatten(1, 2)
    return keys[-num_tokens:], values[-num_tokens:]


def gives_keys_for_values(layer_cache: Tensor, block_table: Any, num_tokens: int) -> Any:
    keys = layer_cache[0, block_table].flatten(0, 1)[:num_tokens]
    return keys, keys


def opens_blocks_late(layer_cache: Tensor, block_table: Any, num_tokens: int) -> Any:
    """Off by one at the boundary: the first token of a block is looked for behind the last one."""
    size = layer_cache.shape[2]
    keys, values = layer_cache.flatten(1, 2)
    slots = []
    for position in range(num_tokens):
        index = max(0, position - 1) // size
        slots.append(min(block_table[index] * size + position - index * size, len(keys) - 1))
    return keys[slots], values[slots]


def swaps_heads_and_slots(layer_cache: Tensor, block_table: Any, num_tokens: int) -> Any:
    """The right shape, the wrong order: rows are cut out of heads."""
    heads, dim = layer_cache.shape[3:]
    keys, values = layer_cache[:, block_table].transpose(2, 3).reshape(2, -1, heads, dim)
    return keys[:num_tokens], values[:num_tokens]


# --- 4.3: a decode step ---------------------------------------------------------------------------


def _slots(block_tables: Any, positions: Any, block_size: int) -> list[int]:
    return [
        table[position // block_size] * block_size + position % block_size
        for table, position in zip(block_tables, positions, strict=True)
    ]


def forgets_itself(block_tables: Any, num_computed_tokens: Any, block_size: int) -> Any:
    """The new token does not attend to itself."""
    positions = list(num_computed_tokens)
    return positions, positions, _slots(block_tables, positions, block_size)


def counts_positions_from_one(block_tables: Any, num_computed_tokens: Any, block_size: int) -> Any:
    positions = [count + 1 for count in num_computed_tokens]
    return positions, positions, _slots(block_tables, num_computed_tokens, block_size)


def overwrites_the_last_token(block_tables: Any, num_computed_tokens: Any, block_size: int) -> Any:
    """Off by one: writes to the slot of the token before."""
    positions = list(num_computed_tokens)
    last = [position - 1 for position in positions]
    return positions, [p + 1 for p in positions], _slots(block_tables, last, block_size)


def writes_to_the_last_block(block_tables: Any, num_computed_tokens: Any, block_size: int) -> Any:
    """The last block of the table may be reserved for later."""
    positions = list(num_computed_tokens)
    slots = [
        table[-1] * block_size + position % block_size
        for table, position in zip(block_tables, positions, strict=True)
    ]
    return positions, [p + 1 for p in positions], slots


def takes_room_for_length(block_tables: Any, num_computed_tokens: Any, block_size: int) -> Any:
    """Attends to all slots of all blocks, empty ones included."""
    positions = list(num_computed_tokens)
    lengths = [len(table) * block_size for table in block_tables]
    return positions, lengths, _slots(block_tables, positions, block_size)


def uses_one_table_for_all(block_tables: Any, num_computed_tokens: Any, block_size: int) -> Any:
    positions = list(num_computed_tokens)
    longest = max(block_tables, key=len)
    tables = [longest] * len(positions)
    return positions, [p + 1 for p in positions], _slots(tables, positions, block_size)


def counts_on_through_the_batch(
    block_tables: Any, num_computed_tokens: Any, block_size: int
) -> Any:
    """Positions of the row of tokens, not of each text."""
    positions = torch.tensor(num_computed_tokens).cumsum(0).tolist()
    lengths = [count + 1 for count in num_computed_tokens]
    return positions, lengths, _slots(block_tables, num_computed_tokens, block_size)


WRONG: dict[str, dict[str, tuple[Any, str]]] = {
    "4.1": {
        "takes -1 for the last slot": (minus_one_is_the_last, "-1 means that a token is not"),
        "writes keys where values belong": (writes_keys_twice, "the key of new token"),
        "skips slot 0": (skips_slot_zero, "slot 0 (block 0, offset 0) was not written"),
        "writes to a copy": (writes_to_a_copy, "was not written"),
        "lets tokens move up": (drops_padding_but_not_its_keys, "of new token 0"),
        "takes the number of blocks for their size": (takes_block_size_from_blocks, "slot"),
    },
    "4.2": {
        "reads blocks in physical order": (reads_physical_order, "logical block 0"),
        "reads the first slots": (reads_the_first_slots, "physical block"),
        "gives whole blocks": (gives_whole_blocks, "the last ones empty"),
        "cuts at the wrong end": (cuts_from_the_end, "position 0 lies in logical block 0"),
        "gives keys for values": (gives_keys_for_values, "row 0 of the values is the key of slot"),
        "opens each block one token late": (opens_blocks_late, "logical block 1, offset 0"),
        "takes heads for tokens": (swaps_heads_and_slots, "physical block"),
    },
    "4.3": {
        "forgets the token itself": (forgets_itself, "attends to itself"),
        "counts positions from 1": (counts_positions_from_one, "now is at position"),
        "overwrites the last token": (overwrites_the_last_token, "is the place of position"),
        "writes to a reserved block": (writes_to_the_last_block, "logical block 0"),
        "attends to empty slots": (takes_room_for_length, "reserved ahead hold none"),
        "uses one table for all": (uses_one_table_for_all, "which belongs to sequence"),
        "counts positions through the batch": (counts_on_through_the_batch, "now is at position"),
    },
}
