"""Make the recordings that the kernel microscope comes with, for machines without Triton.

TRITON_INTERPRET=1 python kernels/make_recordings.py

A pool of 16 blocks of 4 tokens, 2 KV heads with 2 query heads each. Numbers are random, but the
same each time: they are chosen so that in the first program a later block has a larger score, and
the last one has not.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is imported

import torch
from minipaged_kernels.copy_blocks import copy_blocks
from minipaged_kernels.kv_write import kv_write
from minipaged_kernels.microscope import magnify
from minipaged_kernels.paged_decode import paged_decode
from minipaged_kernels.paged_decode_split_kv import paged_decode_split_kv
from minipaged_kernels.paged_prefill import paged_prefill
from torch import Tensor

from minipaged.memory.kernel_recording import KernelRecording, SequenceTable

FOLDER = Path(__file__).parents[1] / "visualizer" / "minipaged_visualizer" / "recordings"
NUM_BLOCKS, BLOCK_SIZE, NUM_KV_HEADS, NUM_HEADS, HEAD_DIM = 16, 4, 2, 4, 16
SEED = 32
UNUSED = 2**30  # what lies in a table beyond a context: to read it would be an error

# A and B share their first block.
SHORT = (
    SequenceTable(10, (5, 2, 7)),
    SequenceTable(7, (5, 11)),
    SequenceTable(14, (8, 1, 14, 4)),
)
# A and B share two blocks; A's context is longer than a tile of 32 tokens.
LONG = (
    SequenceTable(36, (5, 2, 7, 12, 0, 9, 3, 14, 6)),
    SequenceTable(20, (5, 2, 11, 1, 10)),
    SequenceTable(6, (8, 15)),
)


def random(*shape: int, seed: int = SEED) -> Tensor:
    """Give normal numbers, the same each time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def layer_cache() -> Tensor:
    """Give one layer's keys and values."""
    return random(2, NUM_BLOCKS, BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM)


def queries(num_tokens: int) -> Tensor:
    """Give a query for each token."""
    return 1.5 * random(num_tokens, NUM_HEADS, HEAD_DIM, seed=SEED + 1)


def tables(sequences: tuple[SequenceTable, ...]) -> tuple[Tensor, Tensor]:
    """Give block tables [num_seqs, max_blocks] and lengths [num_seqs]."""
    width = max(len(sequence.blocks) for sequence in sequences)
    rows = [[*s.blocks, *[UNUSED] * (width - len(s.blocks))] for s in sequences]
    return torch.tensor(rows), torch.tensor([s.num_tokens for s in sequences])


def decode() -> KernelRecording:
    """Three sequences, each with one new token."""
    with magnify("Decode: one new token for each of three sequences") as microscope:
        paged_decode(queries(len(SHORT)), layer_cache(), *tables(SHORT))
    return microscope.kernel_recording()


def split_kv() -> KernelRecording:
    """Contexts in two parts each, and a second kernel that joins them."""
    with magnify("Split-KV decode: two programs for each context, joined by a third") as microscope:
        paged_decode_split_kv(
            queries(len(LONG)), layer_cache(), *tables(LONG), num_splits=2, tile=16
        )
    return microscope.kernel_recording()


def prefill() -> KernelRecording:
    """Several new tokens a sequence: each sees no later one."""
    starts = torch.tensor([0, 6, 11, 17])
    with magnify("Prefill: 6, 5 and 6 new tokens in one launch") as microscope:
        paged_prefill(queries(17), layer_cache(), *tables(LONG), starts, max_query_len=6)
    return microscope.kernel_recording()


def write() -> KernelRecording:
    """New keys and values go to their slots; a slot of -1 is not written."""
    slots = torch.tensor([4 * 7 + 1, 4 * 11 + 2, 4 * 4 + 0, 4 * 4 + 1, -1])
    key, value = random(2, len(slots), NUM_KV_HEADS, HEAD_DIM)
    with magnify("KV write: each new token goes to its slot", SHORT) as microscope:
        kv_write(key, value, layer_cache(), slots)
    return microscope.kernel_recording()


def copies() -> KernelRecording:
    """Two copy-on-writes, in both planes of two layers."""
    cache = torch.stack([layer_cache(), layer_cache()])
    title = "Copy-on-write: two blocks are copied, keys and values of two layers"
    with magnify(title, SHORT, BLOCK_SIZE) as microscope:
        copy_blocks(cache, [(7, 13), (4, 10)])
    return microscope.kernel_recording()


MAKERS: dict[str, Callable[[], KernelRecording]] = {
    "paged_decode": decode,
    "paged_decode_split_kv": split_kv,
    "paged_prefill": prefill,
    "kv_write": write,
    "copy_blocks": copies,
}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, make in MAKERS.items():
        make().save(FOLDER / f"{name}.jsonl")
