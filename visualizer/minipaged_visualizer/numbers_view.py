"""Single lines: where we are, how the pool is used now and was used before, and the keys."""

from __future__ import annotations

from typing import TypeAlias

from rich.style import Style
from rich.text import Text

from minipaged.memory.snapshot import MemorySnapshot
from minipaged_visualizer import palette
from minipaged_visualizer.block_chip import CACHED, EMPTY, FREE
from minipaged_visualizer.lines import line
from minipaged_visualizer.options import Options
from minipaged_visualizer.safe_text import fit, safe
from minipaged_visualizer.timeline import Timeline

_Facts: TypeAlias = tuple[tuple[str, Style, str, str], ...]
_LEVELS = " ▁▂▃▄▅▆▇█"
_KEYS = {
    "space": "pause",
    "←→": "step",
    "n p": "event",
    "+-": "speed",
    "?": "help",
    "q": "quit",
}
_MOST_NEEDED = ("q", "?", "space", "←→", "n p", "+-")


def draw_title(timeline: Timeline, options: Options, width: int) -> Text:
    """Tell what runs on the left, and where we are on the right."""
    header = timeline.header
    name = safe(str(header.model.get("name", "")) or header.title)
    place = _place(timeline, options)
    room = width - len("minipaged") - len(place) - 4
    about = f"  {fit(name, room)}" if room > 3 else ""
    title = line(("minipaged", palette.BOLD), (about, palette.DIM))
    gap = max(width - title.cell_len - len(place), 1)
    return title.append(" " * gap).append(place, palette.PLAIN)


def draw_counts(memory: MemorySnapshot, bytes_per_block: int, width: int) -> Text:
    """Tell how the pool is used; the signs are the legend of the grid."""
    facts = _facts(memory, bytes_per_block)
    full = _joined(facts, with_more=True)
    if full.cell_len <= width:
        return full
    counts = (len(facts) - left_out for left_out in range(len(facts)))
    short = (_joined(facts[:count], with_more=False) for count in counts)
    return next((row for row in short if row.cell_len <= width), line())


def count_facts(memory: MemorySnapshot, bytes_per_block: int) -> list[tuple[str, str]]:
    """Give the same as pairs of a sign and its words."""
    return [(sign, words + more) for sign, _, words, more in _facts(memory, bytes_per_block)]


def _facts(memory: MemorySnapshot, bytes_per_block: int) -> _Facts:
    used_slots = memory.num_used * memory.block_size
    percent = round(100 * memory.num_empty_slots / used_slots) if used_slots else 0
    size = f" = {_size(memory.num_used * bytes_per_block)}" if bytes_per_block else ""
    free, saved = memory.num_free - memory.num_cached, memory.num_blocks_saved
    return (
        ("A", palette.PILL, f"used {memory.num_used}", size),
        (CACHED, palette.DIM, f"cached {memory.num_cached}", ""),
        (FREE, palette.DIM, f"free {free}", ""),
        (EMPTY, palette.DIM, f"wasted {memory.num_empty_slots} slots", f" ({percent} % of used)"),
        ("×n", palette.PILL, f"sharing saves {saved}", f" block{'s' * (saved != 1)}"),
    )


def _joined(facts: _Facts, with_more: bool) -> Text:
    return line("   ").join(
        line((sign, style), " ", text, more if with_more else "")
        for sign, style, text, more in facts
    )


def draw_history(timeline: Timeline, width: int) -> Text:
    """Draw how many blocks were used over time; the place where we are stands out."""
    label = "used over time  "
    used, here = timeline.used_history, timeline.position.number
    per_column = max(-(-len(used) // max(width - len(label), 1)), 1)
    row = line((label, palette.DIM))
    for start in range(0, len(used), per_column):
        highest = max(used[start : start + per_column])
        level = _LEVELS[-(-highest * 8 // timeline.header.num_blocks)]
        is_here = start <= here < start + per_column
        row.append(level, palette.BOLD if is_here else palette.DIM)
    return row


def draw_keys(options: Options, width: int) -> Text:
    """Draw the status, if there is one, and as many keys as fit behind it."""
    status = fit(safe(options.status), width)
    row = line((status, palette.ALERT if options.is_error else palette.BOLD))
    gap = line("   ")
    room = width - row.cell_len
    kept = set()
    for key in _MOST_NEEDED:
        room -= len(f"{key} {_KEYS[key]}") + gap.cell_len
        if room + (0 if status else gap.cell_len) >= 0:
            kept.add(key)
    keys = [line((k, palette.BOLD), (f" {m}", palette.DIM)) for k, m in _KEYS.items() if k in kept]
    return gap.join([row, *keys] if status else keys)


def _place(timeline: Timeline, options: Options) -> str:
    step = timeline.step
    words = []
    if options.tokens_per_second is not None:
        words.append(f"{options.tokens_per_second:.0f} tokens/s")
    pace = "‖ paused" if options.is_paused else f"► {options.steps_per_second:g} steps/s"
    words.append("■ the end" if options.has_ended else pace)
    if step is not None:
        last = timeline.steps[-1].step if timeline.steps else step.step
        words.append(f"step {step.step} of {max(last, step.step)}")
        if options.by_event:
            words.append(f"event {timeline.position.event} of {len(step.events)}")
    return " · ".join(words)


def _size(num_bytes: float) -> str:
    """Give a number of bytes as people read it.

    >>> _size(300), _size(5 * 2**20)
    ('300 B', '5.0 MiB')
    """
    if num_bytes < 1024:
        return f"{num_bytes:.0f} B"
    for unit in ("KiB", "MiB"):
        num_bytes /= 1024
        if num_bytes < 1024:
            return f"{num_bytes:.1f} {unit}"
    return f"{num_bytes / 1024:.1f} GiB"
