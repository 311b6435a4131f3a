"""A session around the real scheduler on the scripted model: buttons, threads, pauses, errors."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from scheduler.scripted_model import Letters, ScriptedEngine

pytest.importorskip("ipywidgets")
pytest.importorskip("anywidget")
from ipywidgets import DOMWidget
from ipywidgets.widgets.widget import _instances
from minipaged_visualizer.live_session import LiveSession

from minipaged.engine.sampling_params import SamplingParams
from minipaged.errors import ConfigError, MinipagedError, OutOfBlocksError
from minipaged.memory.events import BlockCopied
from minipaged.memory.trace import Trace


class ScriptedLLM:
    """Has of an LLM what a session needs. `gate` can hold a step up."""

    def __init__(self, num_blocks: int, block_size: int, **policy: Any) -> None:
        self.policy = policy
        if policy["preemption"] == "swap" and not policy["num_swap_blocks"]:
            raise ConfigError("swap needs a swap pool")
        self.engine = ScriptedEngine(num_blocks, block_size)
        self.trace: Trace | None = self.engine.trace
        self.gate = threading.Event()
        self.gate.set()
        self.error: Exception | None = None

    def add_request(self, prompt: str, params: SamplingParams) -> str:
        return self.engine.add_request(Letters().encode(prompt), params)

    def step(self) -> object:
        assert self.gate.wait(20)
        if self.error:
            raise self.error
        return self.engine.step()

    def abort(self, request_id: str) -> object:
        return self.engine.abort(request_id)

    def has_unfinished_requests(self) -> bool:
        return self.engine.has_unfinished_requests


@pytest.fixture
def session() -> Iterator[LiveSession]:
    session = LiveSession(
        ScriptedLLM, lambda **p: SamplingParams(ignore_eos=True, **p), num_blocks=40
    )
    session._request["prompt"].value = "themoon"
    yield session
    session.engine.gate.set()
    session.close()


def click(session: LiveSession, name: str) -> None:
    session._buttons[name].click()


def num_steps(session: LiveSession) -> int:
    return len(session.engine.trace.steps)


def test_a_request_is_added_and_stepped(session: LiveSession) -> None:
    click(session, "step")
    assert num_steps(session) == 0
    click(session, "add request")
    assert session.status == "request 0 is added"
    click(session, "step")
    click(session, "step")
    assert num_steps(session) == 2
    events = [event for step in session.engine.trace.steps for event in step.events]
    assert any(isinstance(event, BlockCopied) for event in events)  # n=2, parted


def test_run_async_runs_to_the_end(session: LiveSession) -> None:
    click(session, "add request")
    asyncio.run(session.run_async())
    assert session.status == "all requests are done"
    assert not session.engine.has_unfinished_requests()


def test_pause_stops_a_live_run_and_run_goes_on(session: LiveSession) -> None:
    session._request["max_tokens"].value = 30
    click(session, "add request")

    async def run_and_pause() -> int:
        running = asyncio.create_task(session.run_async())
        while num_steps(session) < 3:
            await asyncio.sleep(0.001)
        click(session, "pause")
        await running
        return num_steps(session)

    stopped_at = asyncio.run(run_and_pause())
    assert session.status == "paused"
    assert 3 <= stopped_at < 30
    click(session, "run")
    session._thread.join(20)
    assert session.status == "all requests are done"
    assert num_steps(session) > stopped_at


def test_buttons_wait_for_the_step_under_way(session: LiveSession) -> None:
    click(session, "add request")
    session.engine.gate.clear()
    click(session, "run")
    clicking = threading.Thread(target=click, args=(session, "add request"))
    clicking.start()
    time.sleep(0.05)
    assert session.requests == ["0"]
    session.engine.gate.set()
    clicking.join(20)
    assert session.requests == ["0", "1"]


def test_abort_takes_the_youngest_that_has_not_ended(session: LiveSession) -> None:
    for _ in range(2):
        click(session, "add request")
    click(session, "step")
    click(session, "abort")
    assert session.status == "request 1 is aborted"
    asyncio.run(session.run_async())
    click(session, "abort")
    assert session.status == "nothing runs"


def test_what_is_refused_is_one_line(session: LiveSession) -> None:
    session._request["n"].value = 16
    click(session, "add request")
    assert "40" in session.status
    assert "\n" not in session.status
    assert session.requests == []


def test_a_new_engine_has_the_sizes_that_are_set(session: LiveSession) -> None:
    click(session, "add request")
    session.fields["num_blocks"].value, session.fields["block_size"].value = 9, 2
    click(session, "new engine")
    header: Any = session.children[-1]._payload["header"]
    assert (header["num_blocks"], header["block_size"]) == (9, 2)
    assert not session.engine.has_unfinished_requests()


def test_the_policy_is_a_field_and_a_new_engine_has_it(session: LiveSession) -> None:
    assert session.engine.policy == {
        "max_num_seqs": 64,
        "preemption": "recompute",
        "num_swap_blocks": 0,
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
    }
    session.fields["enable_prefix_caching"].value = False
    assert session.status == "enable_prefix_caching will be False in a new engine"
    session.fields["num_swap_blocks"].value = 8
    session.fields["preemption"].value = "swap"
    click(session, "new engine")
    changed = {"enable_prefix_caching": False, "num_swap_blocks": 8, "preemption": "swap"}
    assert changed.items() <= session.engine.policy.items()


def test_settings_that_make_no_sense_leave_the_engine_that_runs(session: LiveSession) -> None:
    click(session, "add request")
    engine = session.engine
    session.fields["preemption"].value = "swap"
    click(session, "new engine")
    assert session.status == "swap needs a swap pool"
    assert session.engine is engine
    click(session, "run")
    session._thread.join(20)
    assert session.status == "all requests are done"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"blocks": 3}, "a live session has no field 'blocks'; it has num_blocks, block_size, "),
        ({"num_blocks": 0}, "num_blocks must be from 1 to 4194304, not 0"),
        ({"block_size": "x"}, "block_size can't be 'x'"),
        ({"preemption": "luck"}, "preemption can't be 'luck'"),
        ({"preemption": "swap"}, "swap needs a swap pool"),
    ],
)
def test_a_setting_that_has_no_field_is_one_clear_error(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        LiveSession(ScriptedLLM, SamplingParams, **settings)


def test_enter_in_the_prompt_adds_a_request(session: LiveSession) -> None:
    session._request["prompt"]._handle_custom_msg({"event": "submit"}, [])
    assert session.requests == ["0"]


def test_what_goes_wrong_in_a_step_is_one_line_and_the_cell_lives(session: LiveSession) -> None:
    click(session, "add request")
    session.engine.error = OutOfBlocksError("need 3 blocks, 1 of <64> free")
    asyncio.run(session.run_async())
    assert session.status == "need 3 blocks, 1 of <64> free"
    assert "&lt;64&gt;" in session._status.value
    click(session, "run")
    session._thread.join(20)
    assert session.status == "need 3 blocks, 1 of <64> free"
    session.engine.error = None
    asyncio.run(session.run_async())
    assert session.status == "all requests are done"


def test_a_bug_is_not_hidden(session: LiveSession) -> None:
    click(session, "add request")
    session.engine.error = ZeroDivisionError("a bug of ours")
    with pytest.raises(ZeroDivisionError):
        asyncio.run(session.run_async())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bug_ends_a_run_and_does_not_leave_it_running(session: LiveSession) -> None:
    click(session, "add request")
    session.engine.error = ZeroDivisionError("a bug of ours")
    with pytest.raises(ZeroDivisionError):
        asyncio.run(session.run_async())
    assert session.status == "stopped by ZeroDivisionError: a bug of ours"
    session.engine.error = MemoryError()
    click(session, "run")
    session._thread.join(20)
    assert session.status == "stopped by MemoryError"


def test_a_cell_that_is_interrupted_leaves_the_run_paused(session: LiveSession) -> None:
    session._request["max_tokens"].value = 30
    click(session, "add request")

    async def run_and_interrupt() -> None:
        running = asyncio.create_task(session.run_async())
        while num_steps(session) < 3:
            await asyncio.sleep(0.001)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run_and_interrupt())
    assert session.status == "paused"
    assert session.engine.has_unfinished_requests()


def shown_widgets() -> set[object]:
    return {widget for widget in _instances.values() if isinstance(widget, DOMWidget)}


def test_new_engines_and_closed_sessions_leave_no_widgets() -> None:
    before = shown_widgets()
    session = LiveSession(ScriptedLLM, SamplingParams)
    opened = shown_widgets()
    for _ in range(3):
        session.restart()
    assert len(shown_widgets()) == len(opened)
    session.close()
    assert shown_widgets() == before


def test_a_closed_session_leaves_no_thread(session: LiveSession) -> None:
    session._request["max_tokens"].value = 50
    click(session, "add request")
    click(session, "run")
    session.close()
    assert not [t for t in threading.enumerate() if t.name in ("live-session", "memory-player")]


# --- around a model -------------------------------------------------------------------------------


def test_live_opens_a_session_on_a_model() -> None:
    from minipaged.notebook import live

    session = live(num_blocks=9, seed=3, sampling={"ignore_eos": True})
    try:
        header: Any = session.engine.trace.header
        assert (header.model["name"], header.num_blocks, header.block_size) == ("storyteller", 9, 4)
        session.add()
        asyncio.run(session.run_async())
        assert session.status == "all requests are done"
        assert len(session.engine.trace.steps) == 16
    finally:
        session.close()


def test_live_refuses_what_an_engine_does_not_know() -> None:
    from minipaged.notebook import live

    with pytest.raises(ConfigError, match="LLM has no argument 'policy'"):
        live(policy="luck")
    with pytest.raises(ConfigError, match="SamplingParams has no argument 'heat'"):
        live(sampling={"heat": 1})
    with pytest.raises(ConfigError, match="stands in a field"):
        live(sampling={"n": 2})
    with pytest.raises(ConfigError, match="is a dictionary, not 3"):
        live(sampling=3)


def test_live_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from minipaged.notebook import live

    monkeypatch.setitem(sys.modules, "minipaged_visualizer.live_session", None)
    with pytest.raises(MinipagedError, match=r"pip install 'minipaged\[notebook\]'"):
        live()
