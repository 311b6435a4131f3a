"""A session around the real scheduler on the scripted model: buttons, threads, pauses, errors."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from scheduler.scripted_model import Letters, ScriptedEngine

pytest.importorskip("ipywidgets")
pytest.importorskip("anywidget")
from minipaged_visualizer.live_session import LiveSession

from minipaged.engine.sampling_params import SamplingParams
from minipaged.memory.events import BlockCopied
from minipaged.memory.trace import Trace


class ScriptedLLM:
    """Has of an LLM what a session needs. `gate` can hold a step up."""

    def __init__(self, num_blocks: int, block_size: int, **policy: Any) -> None:
        self.policy = policy
        self.engine = ScriptedEngine(num_blocks, block_size)
        self.trace: Trace | None = self.engine.trace
        self.gate = threading.Event()
        self.gate.set()

    def add_request(self, prompt: str, params: SamplingParams) -> str:
        return self.engine.add_request(Letters().encode(prompt), params)

    def step(self) -> object:
        assert self.gate.wait(20)
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
    assert session.status == "request 0 waits"
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
