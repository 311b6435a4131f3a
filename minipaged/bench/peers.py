"""transformers under the same workload, with the same weights."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from minipaged.bench.workload import Workload
from minipaged.engine.model_runner import DTYPES
from minipaged.errors import ModelError
from minipaged.models.model_files import ModelFiles
from minipaged.models.weights import load_weights

Run = Callable[[Workload], float]


def load_peer(files: ModelFiles, dtype: str) -> Any:
    """Build transformers' model from a folder's config.json and the weights that we use.

    Raises:
        ModelError: transformers is not installed, or does not know the model.
    """
    try:
        transformers: Any = import_module("transformers")
    except ImportError as e:
        raise ModelError("transformers is not installed: pip install transformers") from e
    try:
        config = transformers.AutoConfig.from_pretrained(files.folder, local_files_only=True)
    except (OSError, ValueError) as e:
        raise ModelError(f"{files.folder}: transformers can't read the configuration: {e}") from e
    model = transformers.AutoModelForCausalLM.from_config(config).to(DTYPES[dtype]).eval()
    weights = dict(load_weights(files.weight_files))
    missing, unexpected = model.load_state_dict(weights, strict=False)
    missing = [name for name in missing if name != "lm_head.weight"]
    if missing or unexpected:
        raise ModelError(f"transformers wants other weights: {[*missing, *unexpected][:3]}")
    model.tie_weights()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model


def padded_generate(model: Any) -> Run:
    """`generate` on one batch, padded on the left to the longest prompt."""

    def run(workload: Workload) -> float:
        start = time.perf_counter()
        width = max(map(len, workload.prompts))
        padding = [width - len(prompt) for prompt in workload.prompts]
        rows = [[0] * pad + list(p) for pad, p in zip(padding, workload.prompts, strict=True)]
        mask = [[0] * pad + [1] * (width - pad) for pad in padding]
        output = model.generate(
            torch.tensor(rows),
            attention_mask=torch.tensor(mask),
            max_new_tokens=workload.new_tokens,
            do_sample=False,
        )
        assert output.shape[1] == width + workload.new_tokens
        return time.perf_counter() - start

    return run


def continuous_generate(model: Any) -> Run:
    """`generate_batch`: transformers' own continuous batching over a paged cache."""
    transformers: Any = import_module("transformers")

    def run(workload: Workload) -> float:
        config = transformers.GenerationConfig(
            max_new_tokens=workload.new_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0
        )
        start = time.perf_counter()
        outputs = model.generate_batch(
            [list(prompt) for prompt in workload.prompts], generation_config=config
        )
        seconds = time.perf_counter() - start
        generated = sum(len(output.generated_tokens) for output in outputs.values())
        assert generated == workload.num_new_tokens, f"{generated} tokens generated"
        return seconds

    return run
