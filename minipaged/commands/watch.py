"""`minipaged watch`: a running engine as a source for the terminal view.

The first frame needs the tokenizer, the scheduler and the manager alone: it shows the blocks of the
first step. Torch and the weights are loaded after it, on the thread that runs the engine.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from minipaged.engine.config import EngineConfig
from minipaged.engine.llm_engine import LLMEngine, Params
from minipaged.engine.sampling_params import SamplingParams
from minipaged.errors import ConfigError, TraceError
from minipaged.memory.block_table import blocks_at_most
from minipaged.memory.events import Event
from minipaged.memory.trace import Trace, TraceHeader, TraceStep
from minipaged.models.catalog import resolve
from minipaged.models.model_files import ModelFiles
from minipaged.models.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from minipaged.engine.model_runner import ModelRunner

MAX_SPEED = 1000


def watch_file(replay: Path | None, follow: Path | None, speed: float) -> None:
    """Play a trace file, or one that another process still writes.

    Raises:
        TraceError: It is no trace, or two files are given.
    """
    from minipaged_visualizer.player import watch
    from minipaged_visualizer.sources import FollowSource, ReplaySource

    _check_speed(speed)
    if replay and follow:
        raise TraceError("give --replay or --follow, not both")
    source = ReplaySource(replay) if replay else FollowSource(str(follow))
    watch(source, steps_per_second=speed)


def watch_live(
    model: str,
    prompts: Sequence[str],
    params: Params,
    config: EngineConfig,
    trace_path: Path | None,
    speed: float,
) -> None:
    """Run prompts, or the scene if there are none, in front of the reader's eyes.

    Raises:
        MinipagedError: A prompt can never run here, or the model can't be had.
        KeyboardInterrupt: Ctrl-C; the trace file is complete.
    """
    from minipaged_visualizer.player import watch

    _check_speed(speed)
    files = resolve(model, lambda line: print(line, file=sys.stderr))
    tokenizer = load_tokenizer(files)
    arrivals = [Arrival(0, prompt, params) for prompt in prompts] or scene()
    if config.num_blocks is None:
        config = replace(config, num_blocks=pool_for(arrivals, tokenizer, config.block_size))
    source = LiveSource(files, config, arrivals, tokenizer, trace_path)
    try:
        watch(source, steps_per_second=speed)
    finally:
        source.close()


def _check_speed(speed: float) -> None:
    if not 0 < speed <= MAX_SPEED:
        raise ConfigError(f"speed must be above 0 and at most {MAX_SPEED} steps a second: {speed}")


@dataclass(frozen=True)
class Arrival:
    """A prompt that comes in before step `step`."""

    step: int
    prompt: str
    params: Params


class LiveSource:
    """Runs an engine step by step; what it shows is the engine's own trace."""

    is_live = True

    def __init__(
        self,
        files: ModelFiles,
        config: EngineConfig,
        arrivals: Sequence[Arrival],
        tokenizer: Tokenizer,
        trace_path: Path | None = None,
    ) -> None:
        bytes_per_block = 4 * files.config.kv_elements_per_token * config.block_size
        header = config.trace_header(
            {"name": files.name, "dtype": "float32"}, bytes_per_block, f"watching {files.name}"
        )
        self.trace = Trace(header, trace_path)
        self.ended = False
        self.status = f"loading {files.name} ..."
        self._files = files
        self._tokenizer = tokenizer
        self._arrivals = deque(sorted(arrivals, key=lambda arrival: arrival.step))
        self.engine = LLMEngine(config, files.config, tokenizer, self._load, self.trace)
        for arrival in arrivals:
            self.engine.check_request(tokenizer.encode(arrival.prompt), arrival.params)

    @property
    def header(self) -> TraceHeader:
        """What the view must know before the first step."""
        return self.trace.header

    def preview(self) -> tuple[Event, ...]:
        """Schedule the first step and give its events: the prompts' first blocks, without torch."""
        self._let_in()
        self.engine.schedule()
        return self.trace.pending()

    def advance(self) -> TraceStep | None:
        """Run one step of the engine; the first one loads the model."""
        self._let_in()
        if not self.engine.has_unfinished_requests:
            self.ended = True
            return None
        self.engine.step()
        self.status = ""
        return self.trace.steps[-1]

    def close(self) -> None:
        """Finish the trace file, if there is one."""
        self.trace.close()

    def _let_in(self) -> None:
        """Add the requests whose time has come; the next one at once if nothing runs."""
        while self._arrivals and (
            self._arrivals[0].step <= len(self.trace.steps)
            or not self.engine.has_unfinished_requests
        ):
            arrival = self._arrivals.popleft()
            token_ids = self._tokenizer.encode(arrival.prompt)
            self.engine.add_request(token_ids, arrival.params, arrival.prompt)

    def _load(self) -> ModelRunner:
        from minipaged.engine.model_runner import ModelRunner, load_model

        model = load_model(self._files, "float32", "auto", "auto")
        config = self.engine.config
        assert config.num_blocks is not None
        return ModelRunner(model, config.num_blocks, config.block_size, config.num_swap_blocks)


# --- the scene without a prompt -----------------------------------------------------------------

POOL_SHARE, MIN_POOL = 0.6, 16
SYSTEM = "You are a storyteller who tells short stories for small children.\n\n"
TITLES = ("The fox and the kite", "The river and the moon", "A mouse at sea", "The old clock")


def scene() -> list[Arrival]:
    """Give requests that show all there is to see, given a small pool.

    One alone; then three samples that share the system prompt with it and part by copy-on-write;
    then two more, for which blocks must be evicted and somebody preempted. EOS is ignored, so that
    the lengths, and with them the events, are the same with every model.
    """
    one = SamplingParams(temperature=0.8, seed=1, max_tokens=30, ignore_eos=True)
    three = replace(one, n=3, seed=2, max_tokens=22)
    return [
        Arrival(0, _prompt(0), one),
        Arrival(4, _prompt(1), three),
        Arrival(10, _prompt(2), replace(one, seed=3)),
        Arrival(16, _prompt(3), replace(one, seed=4, max_tokens=40)),
    ]


def pool_for(arrivals: Sequence[Arrival], tokenizer: Tokenizer, block_size: int) -> int:
    """Give a pool that is large enough for each request alone, but too small for all at once."""
    needs = []
    for arrival in arrivals:
        params = arrival.params
        width = params.n if isinstance(params, SamplingParams) else params.beam_width
        length = len(tokenizer.encode(arrival.prompt))
        needs.append(blocks_at_most(length, params.max_tokens, width, block_size))
    return max(*needs, round(POOL_SHARE * sum(needs)), MIN_POOL)


def _prompt(index: int) -> str:
    return f"{SYSTEM}{TITLES[index]}. Once upon a time,"
