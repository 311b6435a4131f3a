"""The engine under the workload: its rate, what tracing costs, and where the time goes."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from minipaged.bench.stopwatch import Stopwatch, stopwatches
from minipaged.bench.workload import Workload
from minipaged.engine.config import EngineConfig
from minipaged.engine.llm_engine import LLMEngine
from minipaged.engine.model_runner import ModelRunner, load_model
from minipaged.engine.sampling_params import SamplingParams
from minipaged.memory.block_table import blocks_at_most
from minipaged.memory.trace import Trace
from minipaged.models.model_files import ModelFiles
from minipaged.models.tokenizer import Tokenizer, load_tokenizer


@dataclass
class Bench:
    """One loaded model on which engines are built anew for every run."""

    files: ModelFiles
    tokenizer: Tokenizer
    config: EngineConfig
    runner: ModelRunner

    def run(self, workload: Workload, traced: bool = False) -> float:
        """Generate everything; give the seconds from the first prompt to the last token."""
        gc.collect()
        start = time.perf_counter()
        trace = Trace(self.config.trace_header({}, 0)) if traced else None
        engine = LLMEngine(
            self.config, self.files.config, self.tokenizer, lambda: self.runner, trace
        )
        params = SamplingParams(temperature=0, max_tokens=workload.new_tokens, ignore_eos=True)
        for prompt in workload.prompts:
            engine.add_request(prompt, params)
        while engine.has_unfinished_requests:
            engine.step()
        return time.perf_counter() - start


def make_bench(files: ModelFiles, dtype: str, workload: Workload, block_size: int = 16) -> Bench:
    """Load the model and make room for all requests at once."""
    num_blocks = sum(
        blocks_at_most(len(prompt), workload.new_tokens, 1, block_size)
        for prompt in workload.prompts
    )
    config = EngineConfig(
        block_size=block_size, num_blocks=num_blocks, max_num_seqs=len(workload.prompts)
    )
    model = load_model(files, dtype, "auto", "auto")
    return Bench(files, load_tokenizer(files), config, ModelRunner(model, num_blocks, block_size))


def measure(bench: Bench, workload: Workload, repeats: int) -> dict[str, Any]:
    """Warm up with one run; then run untraced and traced in turn, and once with stopwatches.

    Returns:
        seconds and traced_seconds of each run; shares of one run's time; linear_seconds, the time
        that the linear layers take when they are called alone, on as many tokens in as many steps.
    """
    bench.run(workload)
    seconds, traced = [], []
    for _ in range(repeats):
        seconds.append(bench.run(workload))
        traced.append(bench.run(workload, traced=True))
    with stopwatches(bench.runner) as parts:
        total = bench.run(workload)
    linear, attention, sampling = (
        sum(watch.seconds for watch in watches)
        for watches in (parts.linears, parts.attention, parts.sampler)
    )
    shares = {"linear": linear, "attention": attention, "sampling": sampling}
    shares["other"] = total - sum(shares.values())
    return {
        "seconds": seconds,
        "traced_seconds": traced,
        "linear_seconds": [linears_alone(parts.linears, bench.runner) for _ in range(repeats)],
        "shares": {name: spent / total for name, spent in shares.items()},
    }


@torch.inference_mode()
def linears_alone(linears: list[Stopwatch], runner: ModelRunner) -> float:
    """Call the linear layers with inputs of the recorded shapes, in the recorded order.

    This is a bound: an engine that did nothing else would be as fast as this.
    """
    steps = min(len(watch.shapes) for watch in linears)
    inputs: dict[tuple[int, ...], Tensor] = {
        shape: torch.randn(shape).to(runner.model.device, runner.model.dtype)
        for watch in linears
        for shape in watch.shapes
    }
    start = time.perf_counter()
    for step in range(steps):
        for watch in linears:
            watch.inner(inputs[watch.shapes[step]])
    return time.perf_counter() - start
