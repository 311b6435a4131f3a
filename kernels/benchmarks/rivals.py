"""The kernels of other projects on the same keys and values, where they are installed.

Each gives a call to be measured, or raises ImportError. None is needed for anything else.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from cases import Context
from measuring import Clock, Row, measured
from torch import Tensor
from torch.nn import functional

Call = Callable[[], object]


def sdpa_contiguous(given: Context) -> Call:
    """PyTorch's attention over keys and values that lie side by side: no paging at all."""
    num_seqs, length = len(given.seq_lens), int(given.seq_lens[0])
    query = given.query[:, :, None]  # [num_seqs, num_heads, 1, head_dim]
    _, _, _, num_kv_heads, head_dim = given.layer_cache.shape
    shape = (num_seqs, num_kv_heads, length, head_dim)
    key, value = (torch.randn(shape, dtype=query.dtype, device=query.device) for _ in range(2))
    return lambda: functional.scaled_dot_product_attention(query, key, value, enable_gqa=True)


def flashinfer(given: Context) -> Call:
    """FlashInfer's batch decode over pages."""
    library: Any = importlib.import_module("flashinfer")
    key_cache, value_cache = given.layer_cache
    block_size, num_kv_heads, head_dim = key_cache.shape[1:]
    counts = (given.seq_lens + block_size - 1) // block_size
    indptr = functional.pad(counts.cumsum(0), (1, 0)).int()
    tables = [row[:count] for row, count in zip(given.block_tables, counts.tolist(), strict=True)]
    last = given.seq_lens - (counts - 1) * block_size
    workspace = torch.empty(2**27, dtype=torch.uint8, device=key_cache.device)
    wrapper = library.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD")
    wrapper.plan(
        indptr,
        torch.cat(tables).int(),
        last.int(),
        given.query.shape[1],
        num_kv_heads,
        head_dim,
        block_size,
        q_data_type=given.query.dtype,
        kv_data_type=key_cache.dtype,
    )
    return lambda: wrapper.run(given.query, (key_cache, value_cache))


def flash_attn(given: Context) -> Call:
    """FlashAttention over pages; version 2 wants pages of 256 tokens."""
    library: Any = importlib.import_module("flash_attn")
    key_cache, value_cache = given.layer_cache
    tables, lengths = given.block_tables.int(), given.seq_lens.int()
    return lambda: library.flash_attn_with_kvcache(
        given.query[:, None],
        key_cache,
        value_cache,
        cache_seqlens=lengths,
        block_table=tables,
        causal=True,
    )


def vllm(given: Context) -> Call:
    """The FlashAttention that vLLM brings along, called as its engine does."""
    library: Any = importlib.import_module("vllm.vllm_flash_attn")
    key_cache, value_cache = given.layer_cache
    tables, lengths = given.block_tables.int(), given.seq_lens.int()
    starts: Tensor = given.query_start_loc.int()
    return lambda: library.flash_attn_varlen_func(
        q=given.query,
        k=key_cache,
        v=value_cache,
        max_seqlen_q=1,
        cu_seqlens_q=starts,
        max_seqlen_k=int(given.seq_lens.max()),
        seqused_k=lengths,
        block_table=tables,
        causal=True,
    )


RIVALS: dict[str, Callable[[Context], Call]] = {
    "SDPA, contiguous": sdpa_contiguous,
    "FlashInfer": flashinfer,
    "flash-attn": flash_attn,
    "vLLM": vllm,
}


def measure_rivals(clock: Clock, section: str, given: Context, reference: float) -> list[Row]:
    """Measure who is there; who isn't gets a row that says so."""
    rows = []
    for name, prepare in RIVALS.items():
        try:
            call = prepare(given)
        except Exception as e:
            missing = isinstance(e, ImportError)
            note = "not installed" if missing else f"{type(e).__name__}: {e}"[:120]
            rows.append(Row(section, name, note=note))
            continue
        rows.append(measured(clock, section, name, call, given.kv_bytes, reference))
    return rows
