"""Ctrl-C finds every step done, or not begun."""

from __future__ import annotations

import json
import signal
import threading
from typing import Any

import pytest
from random_models import Variant

from minipaged import LLM, SamplingParams
from minipaged.commands.generate import generate
from minipaged.engine.uninterrupted import uninterrupted
from minipaged.memory.integrity import check_manager, check_trace


def press_ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def test_what_has_begun_is_done_first() -> None:
    done = []
    handler = signal.getsignal(signal.SIGINT)

    def work() -> None:
        with uninterrupted():
            with uninterrupted():
                press_ctrl_c()
                done.append("inner")
            done.append("outer")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["inner", "outer"]
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_function_is_done_each_time() -> None:
    done = []

    @uninterrupted()
    def work() -> None:
        press_ctrl_c()
        done.append("work")

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            work()
    assert done == ["work", "work"]


def test_an_error_is_not_lost() -> None:
    @uninterrupted()
    def work() -> None:
        press_ctrl_c()
        raise ValueError("first")

    with pytest.raises(KeyboardInterrupt) as caught:
        work()
    assert isinstance(caught.value.__context__, ValueError)


def test_other_threads_have_nothing_to_hold_back() -> None:
    handlers: list[Any] = []

    def work() -> None:
        with uninterrupted():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGINT)]


@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize("where", ["allocate", "share", "release", "publish"])
def test_ctrl_c_in_the_middle_of_the_command(
    random_model, tmp_path, monkeypatch, capsys, where, call
) -> None:
    """Just behind a change of the pool, before the block table and the trace know of it."""
    path = tmp_path / "run.jsonl"
    llm = LLM(str(random_model(Variant()).folder), block_size=2, num_blocks=32, trace=path)
    pool, calls = llm.engine.manager.pool, []
    change = getattr(pool, where)

    def interrupted(*args: Any, **keywords: Any) -> Any:
        result = change(*args, **keywords)
        calls.append(args)
        if len(calls) == call:
            press_ctrl_c()
        return result

    monkeypatch.setattr(pool, where, interrupted)
    params = SamplingParams(n=2, seed=1, max_tokens=6)
    with pytest.raises(KeyboardInterrupt):
        generate(llm, ["The moon", "The sea"], params, as_json=True)
    llm.close()
    assert len(calls) >= call
    requests = json.loads(capsys.readouterr().out)["requests"]
    assert [request["prompt"] for request in requests] == ["The moon", "The sea"]
    assert all(output["finish_reason"] for r in requests for output in r["outputs"])
    assert llm.memory().num_used == 0
    check_manager(llm.engine.manager)
    check_trace(path)
