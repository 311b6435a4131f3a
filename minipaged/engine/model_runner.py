"""The one who touches tensors: moves blocks, runs the model, samples."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import Tensor

from minipaged.engine import kv_cache
from minipaged.engine.attention import get_attention_backend
from minipaged.engine.batch import build_batch
from minipaged.engine.config import EngineConfig
from minipaged.engine.deep_trace import DeepTrace
from minipaged.engine.host_memory import keep_freed_memory
from minipaged.engine.sampler import SampledToken, SamplingRow, sample
from minipaged.engine.scheduler_output import SchedulerOutput
from minipaged.errors import ConfigError
from minipaged.memory.block_table import blocks_for
from minipaged.memory.events import Attended
from minipaged.memory.kv_cache_manager import KVCacheManager
from minipaged.memory.trace_format import MAX_BLOCKS
from minipaged.models.config import ModelConfig
from minipaged.models.model_files import ModelFiles
from minipaged.models.transformer import Transformer
from minipaged.models.weights import load_weights

DEFAULT_CPU_CACHE_BYTES = 2**30
GPU_MEMORY_SHARE = 0.9
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class ModelRunner:
    """A model and its KV cache on one device, with a swap cache on the CPU.

    `kv_cache` is `[num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim]`. With `deep`,
    `attended` tells where each step's tokens looked.
    """

    def __init__(
        self,
        model: Transformer,
        num_blocks: int,
        block_size: int,
        num_swap_blocks: int = 0,
        deep: DeepTrace | None = None,
    ) -> None:
        if model.device.type == "cpu":
            keep_freed_memory()
        self.model = model
        self._recorder = deep.recorder(model.config, model.attention) if deep else None
        if self._recorder:
            model.attention = self._recorder
        self.kv_cache = _allocate(model, num_blocks, block_size, model.device)
        self.swap_cache = (
            _allocate(model, num_swap_blocks, block_size, torch.device("cpu"))
            if num_swap_blocks
            else self.kv_cache[:, :, :0]
        )

    def run(self, step: SchedulerOutput, manager: KVCacheManager) -> Tensor:
        """Compute a step: moves first, then all chunks at once; takes the moves off `step`.

        Returns:
            fp32 [num_logits, vocab_size]: a row for each chunk that `needs_logits`, in order.
        """
        self._move_blocks(step)
        if not step.chunks:
            return torch.empty(0, self.model.config.vocab_size)
        batch = build_batch(step, manager, self.model.device)
        hidden = self.model.forward(batch.input_ids, batch.positions, self.kv_cache, batch.metadata)
        return self.model.compute_logits(hidden[batch.logits_rows])

    def _move_blocks(self, step: SchedulerOutput) -> None:
        """Run each kind of move once: in a second run of the step its blocks hold other content."""
        kv_cache.swap_blocks(self.kv_cache, self.swap_cache, step.swap_outs)
        step.swap_outs.clear()
        kv_cache.swap_blocks(self.swap_cache, self.kv_cache, step.swap_ins)
        step.swap_ins.clear()
        kv_cache.copy_blocks(self.kv_cache, step.copies)
        step.copies.clear()

    def attended(self, step: SchedulerOutput) -> list[Attended]:
        """Give where the last token of each chunk of this step looked; nothing if not `deep`."""
        if self._recorder is None:
            return []
        return self._recorder.take([chunk.sequence.seq_id for chunk in step.chunks])

    def sample(self, logits: Tensor, rows: Sequence[SamplingRow]) -> list[SampledToken]:
        """Choose a token for each row of `logits`."""
        return sample(logits, rows)


def _allocate(model: Transformer, num_blocks: int, block_size: int, device: torch.device) -> Tensor:
    """Allocate a cache, or tell how much memory it would take.

    The check comes first: a system that promises more memory than it has ends the process later.
    """
    needed = num_blocks * kv_cache.bytes_per_block(model.config, block_size, model.dtype)
    there = _memory_bytes(device)
    problem = f"{num_blocks} blocks of {block_size} tokens need {needed / 2**30:.1f} GiB"
    if there is not None and needed > there:
        raise ConfigError(f"{problem}; {device} has {there / 2**30:.1f} GiB")
    try:
        return kv_cache.allocate(model.config, num_blocks, block_size, model.dtype, device)
    except RuntimeError as e:
        raise ConfigError(f"{problem}; {device} has no room for them") from e


def _memory_bytes(device: torch.device) -> int | None:
    """Give the memory of a device in bytes; None where the system doesn't tell."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def load_model(files: ModelFiles, dtype: str, device: str, attention: str) -> Transformer:
    """Build a model and load its weights.

    Raises:
        ConfigError: There is no such dtype, device or attention backend.
        ModelError: The weights can't be read or don't fit the configuration.
    """
    torch_device = choose_device(device)
    backend = get_attention_backend(attention, torch_device)
    torch_dtype = choose_dtype(dtype, files.config, torch_device.type)
    model = Transformer(files.config, torch_dtype, torch_device, backend)
    model.load_weights(load_weights(files.weight_files))
    return model


def choose_device(name: str) -> torch.device:
    """Give the device of that name; "auto" is the GPU if there is one.

    Raises:
        ConfigError: It isn't there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f'device is "auto", "cpu" or "cuda", not {name!r}') from None
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f'device is "auto", "cpu" or "cuda", not {name!r}')
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"no device {name!r}: torch sees {torch.cuda.device_count()} GPUs")
    return device


def choose_dtype(name: str, config: ModelConfig, device_type: str) -> torch.dtype:
    """Give the dtype of that name; "auto" is fp32 on a CPU and the checkpoint's own on a GPU.

    Raises:
        ConfigError: There is none of that name.
    """
    if name == "auto":
        name = "float32" if device_type == "cpu" else config.dtype
    if name not in DTYPES:
        raise ConfigError(f'dtype is "auto", {", ".join(DTYPES)}, not {name!r}')
    return DTYPES[name]


def choose_num_blocks(model: Transformer, config: EngineConfig) -> int:
    """Give how many blocks fit the memory budget.

    Without one it is what the device can spare, but never more than `max_num_seqs` texts of
    `max_model_len` tokens could fill.
    """
    size, budget = config.block_size, config.kv_cache_memory_bytes
    if budget is not None:
        return min(MAX_BLOCKS, kv_cache.blocks_within(budget, model.config, size, model.dtype))
    budget = DEFAULT_CPU_CACHE_BYTES
    if model.device.type == "cuda":
        free, total = torch.cuda.mem_get_info(model.device)
        budget = int(free - (1 - GPU_MEMORY_SHARE) * total)
    most = config.max_num_seqs * blocks_for(config.check_model_len(model.config), size)
    return min(most, MAX_BLOCKS, kv_cache.blocks_within(budget, model.config, size, model.dtype))
