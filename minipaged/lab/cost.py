"""How long a step takes: whichever is slower of computing and moving bytes, and the copies.

A step reads all weights once, and every key and value that its tokens attend to. A few tokens leave
the arithmetic idle meanwhile (decode is bound by bandwidth), thousands of them don't (prefill is
bound by compute): a roofline. Block copies move bytes inside the GPU's memory, swaps over the bus,
and each copy costs a fixed time beside its bytes, so that many small ones are slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minipaged.engine.scheduler_output import Chunk, SchedulerOutput
from minipaged.errors import ConfigError
from minipaged.lab.hardware import Gpu
from minipaged.lab.models import ModelShape


@dataclass(frozen=True)
class CostModel:
    """The time of a step of one model on so many equal GPUs.

    Attributes:
        model: Its weights and heads are split evenly over the GPUs (tensor parallel).
        gpu: One of them.
        block_size: Tokens in a block, for copies and swaps.
        num_gpus: How many; what they say to each other is not counted.
        bytes_per_element: 2: weights, keys and values in fp16.
        compute_share: What of the peak matrix products reach. Assumption: large ones come to 50-70
            % of a data sheet's figure.
        bandwidth_share: What of the peak reading reaches. Assumption: kernels that stream come to
            80-90 %.
        step_overhead: Seconds a step that are neither: launches, scheduling, sampling. Assumption.
        copy_overhead: Seconds to start one copy between GPU and CPU. Assumption: about 10
            microseconds for a call of cudaMemcpyAsync with its set-up on the bus.
    """

    model: ModelShape
    gpu: Gpu
    block_size: int = 16
    num_gpus: int = 1
    bytes_per_element: int = 2
    compute_share: float = 0.6
    bandwidth_share: float = 0.8
    step_overhead: float = 0.005
    copy_overhead: float = 10e-6

    def __post_init__(self) -> None:
        if min(self.block_size, self.num_gpus, self.bytes_per_element) < 1:
            raise ConfigError("a block, a set of GPUs and an element have at least 1 of each")
        if not (0 < self.compute_share <= 1 and 0 < self.bandwidth_share <= 1):
            raise ConfigError(
                f"a share of the peak is above 0 and at most 1, not {self.compute_share} of "
                f"compute or {self.bandwidth_share} of bandwidth"
            )
        if min(self.step_overhead, self.copy_overhead) < 0:
            raise ConfigError("nothing takes less than 0 seconds")

    def seconds(self, step: SchedulerOutput) -> float:
        """Give the duration of a step: its moves, then its tokens."""
        moves = self.swap_seconds(len(step.swap_outs) + len(step.swap_ins))
        return moves + self.copy_seconds(len(step.copies)) + self.compute_seconds(step.chunks)

    def compute_seconds(self, chunks: Sequence[Chunk]) -> float:
        """Give the time of the model itself: the slower of arithmetic and reading."""
        if not chunks:
            return self.step_overhead
        num_tokens = pairs = context = 0
        for chunk in chunks:
            start, new = chunk.start, chunk.num_tokens
            num_tokens += new
            context += start + new
            pairs += new * start + new * (new + 1) // 2  # (query, key), causal
        return self.step_overhead + max(
            self._flops(num_tokens, pairs) / (self._flops_per_second),
            self._bytes_read(context) / self._bytes_per_second,
        )

    def copy_seconds(self, num_blocks: int) -> float:
        """Give the time of block copies inside the GPU's memory: read once, written once."""
        return 2 * num_blocks * self.block_bytes / self._bytes_per_second

    def swap_seconds(self, num_blocks: int) -> float:
        """Give the time of moving blocks over the bus: a copy for each layer's K and each V.

        The GPUs move their parts at the same time.
        """
        copies = 2 * self.model.num_layers * num_blocks
        return copies * self.copy_overhead + num_blocks * self.block_bytes / (
            self.num_gpus * self.gpu.bus
        )

    @property
    def block_bytes(self) -> int:
        """Bytes of a block's keys and values, over all layers and GPUs."""
        return self.block_size * self.model.kv_bytes_per_token(self.bytes_per_element)

    @property
    def _flops_per_second(self) -> float:
        return self.num_gpus * self.gpu.flops * self.compute_share

    @property
    def _bytes_per_second(self) -> float:
        return self.num_gpus * self.gpu.bandwidth * self.bandwidth_share

    def _flops(self, num_tokens: int, pairs: int) -> float:
        """Two operations a weight and token; four a pair, layer and element of a query."""
        attention = 4 * self.model.num_layers * self.model.num_heads * self.model.head_dim
        return 2.0 * self.model.num_parameters * num_tokens + attention * pairs

    def _bytes_read(self, context: int) -> float:
        kv = context * self.model.kv_bytes_per_token(self.bytes_per_element)
        return self.model.weight_bytes(self.bytes_per_element) + kv
