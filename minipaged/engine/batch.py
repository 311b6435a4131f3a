"""From the scheduler's decision to tensors: which tokens run, and where their context lies.

The tokens of all chunks stand in one row, without padding. Decodes, prefills and chunks of prefills
look the same here: only their lengths differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from minipaged.engine.attention import AttentionMetadata, build_metadata
from minipaged.engine.scheduler_output import Chunk, SchedulerOutput
from minipaged.memory.block_table import blocks_for
from minipaged.memory.kv_cache_manager import KVCacheManager


@dataclass(frozen=True)
class Batch:
    """What the model is called with.

    Attributes:
        input_ids: [num_tokens] int64.
        positions: [num_tokens] int64, each token's position in its own sequence.
        metadata: Lengths, block tables and slots.
        logits_rows: [num_logits] int64, the rows of tokens whose successor must be sampled.
    """

    input_ids: Tensor
    positions: Tensor
    metadata: AttentionMetadata
    logits_rows: Tensor


def build_batch(
    step: SchedulerOutput, manager: KVCacheManager, device: torch.device | str = "cpu"
) -> Batch:
    """Turn the chunks of a step into a batch. Nothing is mutated."""
    chunks = step.chunks
    ends = list(accumulate(chunk.num_tokens for chunk in chunks))
    return Batch(
        input_ids=_tensor([t for chunk in chunks for t in chunk.token_ids], device),
        positions=_tensor([p for chunk in chunks for p in chunk.positions], device),
        metadata=build_metadata(
            [chunk.num_tokens for chunk in chunks],
            [chunk.stop for chunk in chunks],
            [_context_blocks(chunk, manager) for chunk in chunks],
            [slot for chunk in chunks for slot in _slots(chunk, manager)],
            device,
        ),
        logits_rows=_tensor(
            [end - 1 for chunk, end in zip(chunks, ends, strict=True) if chunk.needs_logits], device
        ),
    )


def _context_blocks(chunk: Chunk, manager: KVCacheManager) -> list[int]:
    """Give the blocks that hold a chunk's context; those reserved for later chunks are left out."""
    blocks = manager.block_table(chunk.sequence.seq_id)
    return blocks[: blocks_for(chunk.stop, manager.block_size)]


def _slots(chunk: Chunk, manager: KVCacheManager) -> list[int]:
    return manager.slot_mapping(chunk.sequence.seq_id, chunk.start, chunk.stop)


def _tensor(values: list[int], device: torch.device | str) -> Tensor:
    return torch.tensor(values, dtype=torch.int64, device=device)
