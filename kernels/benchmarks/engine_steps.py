"""A model's decode steps on a device, with CUDA graphs and without: tokens a second.

Weights are random: what they are does not change how long a step takes. A CUDA graph repeats the
launches of a captured step without Python; on a small model that is most of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import torch
from measuring import Clock, Row, measured
from torch import Tensor

from minipaged.engine.attention import build_metadata, get_attention_backend
from minipaged.models.config import ModelConfig
from minipaged.models.parameters import weight_shapes
from minipaged.models.transformer import Transformer

SECTION = "engine: decode steps of a model with random weights"
BLOCK_SIZE = 16

# Sizes: vocabulary, hidden, intermediate, layers, heads, KV heads, head_dim.
SIZES = {
    "SmolLM2-135M": (49152, 576, 1536, 30, 9, 3, 64),
    "Llama-3-8B": (128256, 4096, 14336, 32, 32, 8, 128),
    "tiny": (64, 32, 64, 2, 4, 2, 16),
}


def model_config(name: str) -> ModelConfig:
    """Give a model's shape."""
    return ModelConfig("llama", *SIZES[name], 8192, 1e-5, 500000.0, tie_word_embeddings=True)


def random_model(name: str, dtype: torch.dtype, device: torch.device, backend: str) -> Transformer:
    """Give a model with random weights."""
    config = model_config(name)
    attention = get_attention_backend(backend, device)
    model = Transformer(config, dtype, device, attention)
    model.load_weights(_weights(config, dtype, device))
    return model


def _weights(
    config: ModelConfig, dtype: torch.dtype, device: torch.device
) -> Iterator[tuple[str, Tensor]]:
    for name, shape in weight_shapes(config).items():
        if name != "lm_head.weight":  # tied to the embedding
            yield name, torch.randn(shape, dtype=dtype, device=device) * 0.02


def decode_step(model: Transformer, num_seqs: int, length: int) -> Callable[[], Tensor]:
    """Give one step of `num_seqs` sequences whose contexts have `length` tokens each."""
    config, device = model.config, model.device
    per_seq = -(-length // BLOCK_SIZE)
    tables = torch.randperm(num_seqs * per_seq).view(num_seqs, per_seq).tolist()
    shape = (config.num_layers, 2, num_seqs * per_seq, BLOCK_SIZE)
    heads = (config.num_kv_heads, config.head_dim)
    cache = torch.zeros(*shape, *heads, dtype=model.dtype, device=device)
    last = (length - 1) % BLOCK_SIZE
    slots = [table[-1] * BLOCK_SIZE + last for table in tables]
    metadata = build_metadata([1] * num_seqs, [length] * num_seqs, tables, slots, device)
    tokens = torch.zeros(num_seqs, dtype=torch.int64, device=device)
    positions = torch.full((num_seqs,), length - 1, device=device)

    def step() -> Tensor:
        hidden = model.forward(tokens, positions, cache, metadata)
        return model.compute_logits(hidden).argmax(dim=-1)

    return step


def captured(step: Callable[[], Tensor]) -> Callable[[], object]:
    """Give a step as a CUDA graph."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def measure_steps(
    clock: Clock, name: str, batches: Iterable[int], length: int, backend: str
) -> list[Row]:
    """Measure a model's steps for each batch size, as Python launches them and as graphs."""
    dtype = torch.bfloat16 if clock.device.type == "cuda" else torch.float32
    try:
        model = random_model(name, dtype, clock.device, backend)
    except torch.OutOfMemoryError:
        return [Row(SECTION, name, note="does not fit into this GPU's memory")]
    rows = []
    for num_seqs in batches:
        label = f"{name}, {num_seqs} sequences of {length} tokens"
        step = decode_step(model, num_seqs, length)
        rows.append(measured_step(clock, f"{label}, no graph", num_seqs, step))
        if clock.device.type == "cuda":
            graph = captured_or_none(step)
            rows.append(measured_step(clock, f"{label}, CUDA graph", num_seqs, graph))
        else:
            rows.append(Row(SECTION, f"{label}, CUDA graph", note="needs a GPU"))
    return rows


def captured_or_none(step: Callable[[], Tensor]) -> Callable[[], object] | None:
    """Give a step as a CUDA graph; None where it can't be captured."""
    try:
        return captured(step)
    except RuntimeError:
        return None


def measured_step(clock: Clock, name: str, num_seqs: int, step: Callable[[], object] | None) -> Row:
    """Measure a step that gives one token to each of `num_seqs` sequences."""
    if step is None:
        return Row(SECTION, name, note="can't be captured")
    row = measured(clock, SECTION, name, step)
    if row.milliseconds is None:
        return row
    return replace(row, tokens_per_s=1e3 * num_seqs / row.milliseconds)
