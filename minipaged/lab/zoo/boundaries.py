"""Faults at the edge of a block: which slot a token goes to, and when a new block is needed."""

from __future__ import annotations

from collections.abc import Mapping

from minipaged.lab.zoo.bug import Bug, Hits, replaces
from minipaged.memory.block_table import BlockTable as Table
from minipaged.memory.block_table import blocks_for
from minipaged.memory.kv_cache_manager import KVCacheManager as Manager

_TAKE_HITS = Manager._take_hits


@replaces(
    Manager,
    "slot_mapping",
    name="last-slot",
    source="https://github.com/Wenyueh/MinivLLM/issues/76",
    shows="Nothing: the tables are right. The text goes wrong from a block's last token on.",
    caught_by="contents",
)
def last_slot(m: Manager, seq: int, start: int, stop: int) -> list[int]:
    """The last token of a full block goes into another block.

    MinivLLM computed the slot as last block x size + tokens in it - 1. For a length that is a
    multiple of the block size it counted 0 tokens in the last block, so the token was written to
    the last slot of the physical block before it, whoever owns that.
    """
    table, size = m.block_table(seq), m.block_size
    return [
        # right: table[p // size] * size + p % size
        table[p // size] * size + (p + 1) % size - 1
        for p in range(start, stop)
    ]


@replaces(
    Manager,
    "slot_mapping",
    name="slot-overflow",
    source="https://github.com/MDK8888/vllmini/issues/2",
    shows="Nothing: the tables are right. Long prompts overwrite their neighbours.",
    caught_by="contents",
)
def slot_overflow(m: Manager, seq: int, start: int, stop: int) -> list[int]:
    """A position is added to a block, not its offset in the block.

    vllmini gave each block the slots block x size + 0 ... length - 1: a prompt longer than one
    block ran over into the physical blocks behind it.
    """
    table, size = m.block_table(seq), m.block_size
    # right: + p % size
    return [table[p // size] * size + p for p in range(start, stop)]


@replaces(
    Manager,
    "_num_new_blocks",
    name="block-too-late",
    source="https://github.com/GeeeekExplorer/nano-vllm/issues/150",
    shows="A sequence has filled its last block, takes none for the next token, and the run ends.",
    caught_by="no-error",
)
def block_too_late(m: Manager, table: Table, num_new: int) -> int:
    """A new block is taken one token too late.

    When does a sequence need its next block: before or after a token is appended? nano-vllm's
    readers reported `len(seq) % block_size == 1` as off by one again and again; it is right only
    because the sampled token stands in the sequence already.
    """
    num_tokens = table.num_tokens + num_new - 1  # right: without the - 1
    needed = blocks_for(num_tokens, m.block_size)
    return max(0, needed - len(table.block_ids))


@replaces(
    Manager,
    "blocks_to_append",
    name="blocks-not-counted",
    source="https://github.com/vllm-project/vllm/pull/8824",
    shows="The pool is full, nobody is preempted, and the run ends.",
    caught_by="no-error",
)
def blocks_not_counted(m: Manager, growth: Mapping[int, int]) -> int:
    """The check for room forgets the blocks that the next tokens need.

    vLLM's second block manager decided whether a group fits without the tokens that had no slot
    yet, and ran into 'no free blocks' when it reserved them.
    """
    sources = [m._shared_block(m._table(seq)) for seq in growth]
    # right: the new blocks of each sequence as well
    return len(sources) - sources.count(None)


@replaces(
    Manager,
    "_take_hits",
    name="hit-too-long",
    source="https://github.com/waybarrios/vllm-mlx/issues/380",
    shows="A hit of full blocks, and the run ends as the prefill would begin a token behind them.",
    caught_by="replay",
)
def hit_too_long(m: Manager, seq: int, table: Table, hits: Hits) -> None:
    """A hit counts a token that its blocks do not hold.

    vllm-mlx shortened a longer cached entry to the common prefix by moving its length, while the
    arrays behind kept the other request's tokens. Layers that read the arrays answered somebody
    else's question.
    """
    _TAKE_HITS(m, seq, table, hits)
    table.num_tokens += 1  # right: full blocks only


BUGS: tuple[Bug, ...] = (
    last_slot,
    slot_overflow,
    block_too_late,
    blocks_not_counted,
    hit_too_long,
)
