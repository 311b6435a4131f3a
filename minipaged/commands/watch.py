"""`minipaged watch`: a running engine as a source for the terminal view.

The first frame needs the tokenizer, the scheduler and the manager alone: it shows the blocks of the
first step. Torch and the weights are loaded after it, on the thread that runs the engine.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from minipaged.commands.scene import Arrival, arrive, pool_for, scene
from minipaged.engine.config import EngineConfig
from minipaged.engine.llm_engine import LLMEngine, Params
from minipaged.errors import ConfigError, TraceError
from minipaged.memory.events import Event
from minipaged.memory.replay import Replay
from minipaged.memory.trace import Trace, TraceHeader, TraceStep
from minipaged.models.catalog import resolve
from minipaged.models.model_files import ModelFiles
from minipaged.models.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from minipaged.engine.model_runner import ModelRunner

MAX_SPEED = 1000
_LONGEST_HEADER = 2**16  # bytes


def watch_file(
    replay: Path | None, follow: Path | None, speed: float, projector: bool = False
) -> None:
    """Play a trace file, or one that another process still writes.

    Raises:
        TraceError: It is no trace, or two files are given.
    """
    from minipaged_visualizer.player import watch
    from minipaged_visualizer.sources import FollowSource, ReplaySource

    _check_speed(speed)
    if replay and follow:
        raise TraceError("give --replay or --follow, not both")
    if follow:
        _wait_for(follow)
    source = ReplaySource(replay) if replay else FollowSource(str(follow))
    watch(source, steps_per_second=speed, is_projected=projector)


def watch_live(
    model: str,
    prompts: Sequence[str],
    params: Params,
    config: EngineConfig,
    trace_path: Path | None,
    speed: float,
    projector: bool = False,
    deep: bool = False,
) -> None:
    """Run prompts, or the scene if there are none, in front of the reader's eyes.

    Raises:
        MinipagedError: A prompt can never run here, or the model can't be had.
        KeyboardInterrupt: Ctrl-C; the trace file is complete.
    """
    from minipaged_visualizer.player import can_draw, watch

    _check_speed(speed)
    files = resolve(model, lambda line: print(line, file=sys.stderr))
    tokenizer = load_tokenizer(files)
    arrivals = [arrive(0, prompt, params, tokenizer) for prompt in prompts]
    arrivals = arrivals or scene(tokenizer, config.block_size)
    if config.num_blocks is None:
        config = replace(config, num_blocks=pool_for(arrivals, config.block_size))
    source = LiveSource(files, config, arrivals, tokenizer, trace_path, deep)
    try:
        watch(source, steps_per_second=speed, is_projected=projector)
        if can_draw(Console()):  # the view is gone from the screen, the texts should not be
            print("".join(f"{text}\n" for text in texts(source.trace)), end="")
    finally:
        source.close()


def texts(trace: Trace) -> list[str]:
    """Give what each sequence of a run has written, a line each."""
    from minipaged_visualizer.captions import letters

    header = trace.header
    state = Replay(header.num_blocks, header.block_size, header.num_swap_blocks)
    for event in [event for step in trace.steps for event in step.events]:
        state.apply(event)
    written = {seq: "".join(t.text for t in s.output) for seq, s in state.sequences.items()}
    return [f"{letters(seq)}: {text.strip()}" for seq, text in written.items()]


def _wait_for(path: Path) -> None:
    """Wait until a trace has its first line: its writer may still be loading a model."""
    if not _has_begun(path):
        print(f"waiting for {path} ...", file=sys.stderr)
    while not _has_begun(path):
        time.sleep(0.1)


def _has_begun(path: Path) -> bool:
    """Whether there is a line to read, or something that will never be one: its reader tells."""
    if not path.exists():
        return False
    try:
        with path.open("rb") as file:
            beginning = file.read(_LONGEST_HEADER)
    except OSError:
        return True
    return b"\n" in beginning or len(beginning) == _LONGEST_HEADER


def _check_speed(speed: float) -> None:
    if not 0 < speed <= MAX_SPEED:
        raise ConfigError(f"speed must be above 0 and at most {MAX_SPEED} steps a second: {speed}")


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
        deep: bool = False,
    ) -> None:
        bytes_per_block = 4 * files.config.kv_elements_per_token * config.block_size
        header = config.trace_header(
            {"name": files.name, "dtype": "float32"}, bytes_per_block, f"watching {files.name}"
        )
        self.trace = Trace(header, trace_path)
        self._stepping = threading.Lock()
        self.ended = False
        self.status = f"loading {files.name} ..."
        self._files, self._is_deep = files, deep
        self._arrivals = deque(sorted(arrivals, key=lambda arrival: arrival.step))
        self.engine = LLMEngine(config, files.config, tokenizer, self._load, self.trace)
        for arrival in arrivals:
            self.engine.check_request(arrival.token_ids, arrival.params)

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
        self.engine.runner  # noqa: B018 (loading may take long, and closing need not wait for it)
        with self._stepping:
            self.engine.step()
        self.status = ""
        return self.trace.steps[-1]

    def close(self) -> None:
        """Finish the trace file, if there is one, behind the step that is under way."""
        with self._stepping:
            self.trace.close()

    def _let_in(self) -> None:
        """Add the requests whose time has come; the next one at once if nothing runs."""
        while self._arrivals and (
            self._arrivals[0].step <= len(self.trace.steps)
            or not self.engine.has_unfinished_requests
        ):
            arrival = self._arrivals.popleft()
            self.engine.add_request(arrival.token_ids, arrival.params, arrival.prompt)

    def _load(self) -> ModelRunner:
        from minipaged.engine.deep_trace import DeepTrace
        from minipaged.engine.model_runner import ModelRunner, load_model

        deep = DeepTrace() if self._is_deep else None
        model = load_model(self._files, "float32", "auto", "auto")
        config = self.engine.config
        assert config.num_blocks is not None
        return ModelRunner(
            model, config.num_blocks, config.block_size, config.num_swap_blocks, deep
        )
