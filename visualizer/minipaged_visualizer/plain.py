"""The run as plain lines, for pipes, logs and terminals that can't place text: one line a step."""

from __future__ import annotations

import time

from rich.console import Console
from rich.text import Text

from minipaged.memory.trace import TraceStep
from minipaged_visualizer.captions import SIGNS, captions, letters
from minipaged_visualizer.safe_text import safe
from minipaged_visualizer.sources import Source
from minipaged_visualizer.timeline import Timeline

_IDLE_SECONDS = 0.1


def play_plain(source: Source, console: Console) -> None:
    """Print each step as it comes, and each sequence's text at the end."""
    timeline = Timeline(source.header)
    while not source.ended:
        step = source.advance()
        if step is None:
            time.sleep(0 if source.ended else _IDLE_SECONDS)
            continue
        timeline.append(step)
        timeline.last()
        _print(console, _line(timeline, step))
    for seq, sequence in sorted(timeline.state.sequences.items()):
        text = "".join(token.text for token in sequence.output)
        _print(console, f"{letters(seq)}: {text.lstrip(' ')}")


def _line(timeline: Timeline, step: TraceStep) -> str:
    memory = timeline.state.snapshot()
    told = [
        caption.text
        for caption in captions(step.events)
        if not caption.routine or caption.sign == SIGNS["sample"]
    ]
    numbers = (
        f"step {step.step}: {memory.num_used} used, {memory.num_cached} cached, "
        f"{memory.num_free - memory.num_cached} free"
    )
    return " | ".join([numbers, *([step.note] if step.note else []), *told])


def _print(console: Console, line: str) -> None:
    """Print one line, with question marks for what the output's encoding can't say."""
    encoding = console.encoding
    text = safe(line).encode(encoding, "replace").decode(encoding)
    console.print(Text(text), soft_wrap=True)
