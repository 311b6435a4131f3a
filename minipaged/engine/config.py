"""The engine's settings: frozen, and checked when built."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from minipaged.errors import ConfigError
from minipaged.memory.trace_format import MAX_BLOCKS, TraceHeader
from minipaged.models.config import ModelConfig

_MOST = {"block_size": 1024, "num_blocks": MAX_BLOCKS, "num_swap_blocks": MAX_BLOCKS}
_SCHEDULING = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "preemption",
)


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """How memory is cut, and how much a step may do.

    Attributes:
        block_size: Tokens in a block.
        num_blocks: Blocks in the pool; None: as many as the memory budget allows.
        kv_cache_memory_bytes: The budget for the pool in bytes; None: the engine chooses.
        num_swap_blocks: Blocks in the swap pool on the CPU.
        max_num_seqs: The most sequences that run at once.
        max_num_batched_tokens: The most tokens that one step computes.
        max_model_len: The most tokens of a text, prompt included; None: what the model allows.
        enable_prefix_caching: Share full blocks of equal prefixes across requests.
        enable_chunked_prefill: A long prompt may take several steps.
        preemption: "recompute" throws a victim's KV away, "swap" moves it to the swap pool.
        seed: Where requests without a seed of their own get theirs from.
    """

    block_size: int = 16
    num_blocks: int | None = None
    kv_cache_memory_bytes: int | None = None
    num_swap_blocks: int = 0
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 2048
    max_model_len: int | None = None
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    preemption: str = "recompute"
    seed: int = 0

    def __post_init__(self) -> None:
        self._check_types()
        for name in ("block_size", "num_blocks", "max_num_seqs", "max_num_batched_tokens"):
            self._check_least(name, 1)
        self._check_least("max_model_len", 2)  # one of the prompt, and a new one
        self._check_least("kv_cache_memory_bytes", 1)
        self._check_least("num_swap_blocks", 0)
        for name, most in _MOST.items():
            self._check_most(name, most)
        if self.preemption not in ("recompute", "swap"):
            raise ConfigError(f'preemption is "recompute" or "swap", not {self.preemption!r}')
        if self.preemption == "swap" and self.num_swap_blocks == 0:
            raise ConfigError('preemption="swap" needs num_swap_blocks, which is 0')
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ConfigError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least "
                f"max_num_seqs ({self.max_num_seqs}): each decodes one token a step"
            )

    def check_model_len(self, model: ModelConfig) -> int:
        """Give the longest text (tokens, prompt included) that runs with a model.

        Raises:
            ConfigError: More is asked for, or a whole prompt would not fit into one step.
        """
        most = model.max_position_embeddings
        wanted = self.max_model_len or most
        if wanted > most:
            note = f" ({model.position_note})" if model.position_note else ""
            raise ConfigError(f"max_model_len is {wanted}, the model was made for {most}{note}")
        if not self.enable_chunked_prefill and self.max_num_batched_tokens < wanted:
            raise ConfigError(
                f"without chunked prefill a step must hold a whole prompt: max_num_batched_tokens "
                f"({self.max_num_batched_tokens}) must be at least max_model_len ({wanted})"
            )
        return wanted

    def trace_header(
        self, model: dict[str, Any], bytes_per_block: int, title: str = ""
    ) -> TraceHeader:
        """Give the first line of a trace of this engine; `num_blocks` must be known."""
        assert self.num_blocks is not None
        return TraceHeader(
            block_size=self.block_size,
            num_blocks=self.num_blocks,
            num_swap_blocks=self.num_swap_blocks,
            bytes_per_block=bytes_per_block,
            model=model,
            scheduler={name: getattr(self, name) for name in _SCHEDULING},
            title=title,
        )

    def _check_types(self) -> None:
        for field in fields(self):
            value, wanted = getattr(self, field.name), str(field.type)
            if value is None and "None" in wanted:
                continue
            kind = {"int": int, "bool": bool, "str": str}[wanted.split(" ")[0]]
            if type(value) is not kind:
                raise ConfigError(f"{field.name} must be of type {wanted}, not {value!r}")

    def _check_least(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if value is not None and value < least:
            raise ConfigError(f"{name} must be at least {least}, not {value}")

    def _check_most(self, name: str, most: int) -> None:
        value = getattr(self, name)
        if value is not None and value > most:
            raise ConfigError(f"{name} must be at most {most}, not {value}")
