"""A walk through a player by keys alone, compared with what Python makes of the same trace.

It is the same for a page from a file and for a notebook. The trace has n samples of one prompt, and
a copy-on-write.
"""

from __future__ import annotations

from collections.abc import Sequence

from chromium import Chromium
from minipaged_visualizer.captions import caption, letters, listed
from pages import text_of

from minipaged.memory.events import BlockCopied
from minipaged.memory.replay import Replay
from minipaged.memory.trace import Trace

PLAYER, PLACE, RANGE = ".minipaged", ".mp-place", "document.querySelector('.mp-range')"
ACTIVE = "document.activeElement"


def wait_for_player(browser: Chromium) -> None:
    browser.wait_until(f"document.querySelector('{PLAYER}') && {RANGE}", 60)
    browser.settle()


def tab_to(browser: Chromium, condition: str) -> None:
    """Press Tab until the element in focus is the one that is meant."""
    for _ in range(60):
        browser.press("Tab")
        if browser.evaluate(f"(element => {condition})({ACTIVE})"):
            return
    raise AssertionError(f"no Tab leads to {condition}")


def tab_to_player(browser: Chromium) -> None:
    tab_to(browser, f"element.matches('{PLAYER}')")


def check_copy_on_write(browser: Chromium, trace: Trace) -> None:
    """Walk to the first copy-on-write, by steps and then by events."""
    (step, index), *_ = [
        (step, step.events.index(event))
        for step in trace.steps
        for event in step.events
        if isinstance(event, BlockCopied)
    ]
    browser.press("Home", *["ArrowRight"] * step.step, *["n"] * (index + 1))
    assert caption(step.events[index]).text in text_of(browser, ".mp-caption")
    assert text_of(browser, PLACE).startswith(f"step {step.step}, event {index + 1} of ")


def check_playing(browser: Chromium, trace: Trace) -> None:
    """Play to the end, as fast as it goes."""
    last = trace.steps[-1].step
    browser.press("Home", "+", "+", "+", "+", "+", " ")
    browser.wait_until(f"document.querySelector('{PLACE}').innerText.startsWith('step {last}')")


def check_explanations(browser: Chromium, trace: Trace, steps: Sequence[int]) -> int:
    """Explain every block after these numbers of steps, and tell how many were shared."""
    size, num_shared = trace.header.num_blocks, 0
    browser.press("Home")
    tab_to(browser, f"element.ariaLabel === 'Pool of {size} blocks'")
    for num_steps in steps:
        replay = replayed(trace, num_steps)
        _walk_to_end_of(browser, num_steps)
        for block in range(size):
            browser.press("ArrowRight")  # the first chooses block 0
            assert f"Block {block} explained" in text_of(browser, ".mp-explain")
            assert owners_in_words(replay, block) in text_of(browser, ".mp-facts")
            num_shared += replay.ref_counts[block] > 1
        browser.press("Escape")
    return num_shared


def replayed(trace: Trace, num_steps: int) -> Replay:
    replay = Replay(trace.header.num_blocks, trace.header.block_size)
    for step in trace.steps[:num_steps]:
        for event in step.events:
            replay.apply(event)
    return replay


def owners_in_words(replay: Replay, block: int) -> str:
    """What the player says of a block, worked out from Python's replay."""
    held = [
        f"{letters(seq)} as its logical block {table.index(block)}"
        for seq, table in sorted(replay.tables.items())
        if block in table
    ]
    if not held:
        return "free, but cached" if block in replay.hashes else "free"
    return f"held by {listed(held)}: {len(held)} reference{'s' if len(held) > 1 else ''}"


def _walk_to_end_of(browser: Chromium, num_steps: int) -> None:
    """Go there from the pool, which has the arrow keys for itself."""
    while int(browser.evaluate(f"{RANGE}.value")) <= num_steps:
        browser.press("n")
    browser.press("p")
