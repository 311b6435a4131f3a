"""minipaged: see PagedAttention work.

A compact, complete paged KV-cache engine that runs real language models and records every block it
hands out. Names that need torch are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from minipaged.errors import MinipagedError

if TYPE_CHECKING:
    from minipaged.engine.deep_trace import DeepTrace
    from minipaged.engine.outputs import BeamSearchOutput, CompletionOutput, RequestOutput
    from minipaged.engine.sampling_params import BeamSearchParams, SamplingParams
    from minipaged.llm import LLM
    from minipaged.memory.kv_cache_manager import KVCacheManager
    from minipaged.memory.snapshot import MemorySnapshot
    from minipaged.memory.trace import Trace

__version__ = "0.1.0"

_HOMES = {
    "LLM": "minipaged.llm",
    "SamplingParams": "minipaged.engine.sampling_params",
    "BeamSearchParams": "minipaged.engine.sampling_params",
    "RequestOutput": "minipaged.engine.outputs",
    "CompletionOutput": "minipaged.engine.outputs",
    "BeamSearchOutput": "minipaged.engine.outputs",
    "DeepTrace": "minipaged.engine.deep_trace",
    "KVCacheManager": "minipaged.memory.kv_cache_manager",
    "MemorySnapshot": "minipaged.memory.snapshot",
    "Trace": "minipaged.memory.trace",
}

__all__ = [
    "LLM",
    "BeamSearchOutput",
    "BeamSearchParams",
    "CompletionOutput",
    "DeepTrace",
    "KVCacheManager",
    "MemorySnapshot",
    "MinipagedError",
    "RequestOutput",
    "SamplingParams",
    "Trace",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'minipaged' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
