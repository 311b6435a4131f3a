"""`LLM` step by step: streams, requests side by side, interruptions, traces, two in one process."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from random_models import Variant, random_prompt
from scripted import let_it_write
from watched_engine import WatchedLLM

from minipaged import LLM, BeamSearchParams, SamplingParams, Trace
from minipaged.errors import RequestRefusedError, TraceError
from minipaged.memory.integrity import check_trace
from minipaged.memory.trace import TraceReader

GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
DRAWN = SamplingParams(n=2, temperature=0.9, seed=2, max_tokens=9, ignore_eos=True)


def tokens(llm: LLM, prompt: Any, params: SamplingParams = GREEDY) -> list[list[int]]:
    (output,) = llm.generate(prompt, params, use_tqdm=False)
    return [one.token_ids for one in output.outputs]


def step_to_the_end(llm: LLM) -> dict[str, Any]:
    """Give the last output of each request."""
    outputs: dict[str, Any] = {}
    while llm.has_unfinished_requests():
        outputs |= {output.request_id: output for output in llm.step()}
    return outputs


# --- step -----------------------------------------------------------------------------------------


def test_outputs_grow_step_by_step(llm) -> None:
    request_id = llm.add_request("The moon", DRAWN)
    assert llm.memory().num_used == 0
    seen = []
    while llm.has_unfinished_requests():
        (output,) = llm.step()
        assert output.request_id == request_id
        seen.append(output)
        assert (llm.memory().num_used == 0) == output.finished
    assert [len(output.outputs[0].token_ids) for output in seen] == list(range(1, 10))
    for earlier, later in pairwise(seen):
        for a, b in zip(earlier.outputs, later.outputs, strict=True):
            assert b.token_ids[: len(a.token_ids)] == a.token_ids
            assert b.text.startswith(a.text)
            assert a.finish_reason is None
    assert [one.token_ids for one in seen[-1].outputs] == tokens(llm, "The moon", DRAWN)


def test_samples_share_the_prompt(llm) -> None:
    llm.add_request(random_prompt(13), SamplingParams(n=4, seed=1, max_tokens=4, ignore_eos=True))
    llm.step()
    memory = llm.memory()
    assert (memory.num_used, memory.num_shared, memory.num_blocks_saved) == (4, 4, 12)
    llm.step()  # each writes its first token: three copies of the last block
    assert (llm.memory().num_used, llm.memory().num_shared) == (7, 3)
    step_to_the_end(llm)


def test_an_abort_gives_what_there_is(llm) -> None:
    kept, dropped = llm.add_request("The moon", DRAWN), llm.add_request("The sea", DRAWN)
    waiting = llm.add_request("The sun", BeamSearchParams(beam_width=2, max_tokens=4))
    assert not llm.abort(waiting).sequences[0].token_ids
    for _ in range(3):
        llm.step()
    output = llm.abort(dropped)
    assert output.finished
    assert [len(one.token_ids) for one in output.outputs] == [3, 3]
    assert {one.finish_reason for one in output.outputs} == {"abort"}
    for request_id in (dropped, waiting):
        with pytest.raises(RequestRefusedError, match=f"'{request_id}'"):
            llm.abort(request_id)
    outputs = step_to_the_end(llm)
    assert outputs.keys() == {kept}
    assert [one.token_ids for one in outputs[kept].outputs] == tokens(llm, "The moon", DRAWN)


def test_what_ends_during_another_call_is_given_later(llm) -> None:
    early = llm.add_request("The moon", DRAWN)
    later = llm.add_request("The sun", SamplingParams(seed=1, max_tokens=40, ignore_eos=True))
    long = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    (output,) = llm.generate("The sea", long, use_tqdm=False)
    assert output.prompt == "The sea"
    assert llm.has_unfinished_requests()
    outputs = step_to_the_end(llm)
    assert outputs.keys() == {early, later}
    assert [one.token_ids for one in outputs[early].outputs] == tokens(llm, "The moon", DRAWN)
    assert len(outputs[later].outputs[0].token_ids) == 40


# --- stream ---------------------------------------------------------------------------------------

TEXT = "Once 日本語 naïve 🌊🌙, and so on: 日本語!"


def test_pieces_are_whole_characters(llm) -> None:
    params = SamplingParams(max_tokens=len(let_it_write(llm, TEXT)))
    pieces = list(llm.stream("x", params))
    assert "".join(pieces) == TEXT
    assert all(pieces)
    assert len(pieces) > 10


@pytest.mark.parametrize("stop", ["日本", "語 n", "🌙", "on: 日本語?", "so on", "!", "zebra"])
def test_a_stop_string_never_shows(llm, stop) -> None:
    params = SamplingParams(max_tokens=len(let_it_write(llm, TEXT)), stop=[stop, "###"])
    shown = ""
    for piece in llm.stream("x", params):
        shown += piece
        assert stop not in shown
        assert TEXT.startswith(shown)
    assert shown == TEXT.split(stop)[0]
    assert shown == llm.generate("x", params, use_tqdm=False)[0].outputs[0].text


@pytest.mark.parametrize("seed", range(8))
def test_pieces_join_to_the_text(llm, seed) -> None:
    params = SamplingParams(temperature=1.5, seed=seed, max_tokens=20)
    (output,) = llm.generate("The moon", params, use_tqdm=False)
    assert "".join(llm.stream("The moon", params)) == output.outputs[0].text


def test_a_stream_that_is_left(llm) -> None:
    llm.stream("The moon")
    assert not llm.has_unfinished_requests()
    pieces = llm.stream(random_prompt(9), SamplingParams(seed=1, max_tokens=40, ignore_eos=True))
    next(pieces)
    assert llm.memory().num_used
    pieces.close()
    assert not llm.has_unfinished_requests()
    assert llm.memory().num_used == 0


def test_streams_and_other_calls_take_turns(llm) -> None:
    prompts = ["The moon", "The sea", random_prompt(30)]
    params = [
        SamplingParams(seed=index, max_tokens=length, ignore_eos=True)
        for index, length in enumerate((30, 12, 20))
    ]
    expected = [output.outputs[0].text for output in llm.generate(prompts, params, use_tqdm=False)]
    streams = [llm.stream(*request) for request in zip(prompts, params, strict=True)]
    texts = ["", "", ""]
    for turn in range(60):
        texts[turn % 3] += next(streams[turn % 3], "")
        if turn % 10 == 5:
            assert tokens(llm, "The sun")
    assert texts == expected
    assert not llm.has_unfinished_requests()


# --- interruptions --------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["generate", "beam_search", "stream"])
def test_ctrl_c_leaves_nothing_behind(llm, monkeypatch, call) -> None:
    def work() -> Any:
        if call == "generate":
            return tokens(llm, ["The moon"], DRAWN)
        if call == "stream":
            return list(llm.stream("The moon", GREEDY))
        params = BeamSearchParams(beam_width=3, max_tokens=6)
        return [beam.token_ids for beam in llm.beam_search("The moon", params)[0].sequences]

    other = tokens(llm, "The sea", DRAWN)
    expected = work()
    run = llm.engine.runner.run
    for at_step in range(5):
        waiting = llm.add_request("The sea", DRAWN)
        countdown = iter(range(at_step, -1, -1))

        def interrupted(*args: Any, left: Any = countdown) -> Any:
            if next(left) == 0:
                raise KeyboardInterrupt
            return run(*args)

        with monkeypatch.context() as patch:
            patch.setattr(llm.engine.runner, "run", interrupted)
            with pytest.raises(KeyboardInterrupt):
                work()
        outputs = step_to_the_end(llm)  # the one that waited beside it lost nothing
        assert outputs.keys() == {waiting}
        assert [one.token_ids for one in outputs[waiting].outputs] == other
        assert llm.memory().num_used == 0
        assert work() == expected


# --- traces ---------------------------------------------------------------------------------------


def run_all(llm: LLM) -> None:
    llm.generate(["The moon", "The sea", random_prompt(30)], DRAWN, use_tqdm=False)
    llm.beam_search("The moon", BeamSearchParams(beam_width=3, max_tokens=5))
    llm.generate("The moon", SamplingParams(max_tokens=5), use_tqdm=False)


def start(random_model: Any, trace: Any) -> LLM:
    folder = random_model(Variant()).folder
    return LLM(
        str(folder), block_size=4, num_blocks=20, num_swap_blocks=9, preemption="swap", trace=trace
    )


def test_a_trace_is_saved_and_loaded(random_model, tmp_path) -> None:
    llm = start(random_model, trace=True)
    run_all(llm)
    for name in ("run.jsonl", "run.jsonl.gz"):
        llm.trace.save(tmp_path / name)
        assert Trace.load(tmp_path / name) == llm.trace
        assert check_trace(tmp_path / name)[0] == len(llm.trace.steps)
    header = Trace.load(tmp_path / "run.jsonl").header
    assert (header.block_size, header.num_blocks, header.num_swap_blocks) == (4, 20, 9)
    assert (
        header.bytes_per_block == 4 * 2 * 2 * 2 * 8 * 4
    )  # tokens, layers, K and V, heads, dim, fp32
    assert header.scheduler["preemption"] == "swap"
    assert str(tmp_path) not in (tmp_path / "run.jsonl").read_text()


def test_a_trace_counts_what_is_computed(random_model) -> None:
    llm = start(random_model, trace=True)
    llm.generate(random_prompt(10), GREEDY, use_tqdm=False)
    llm.generate(random_prompt(9), GREEDY, use_tqdm=False)
    llm.generate(random_prompt(9), GREEDY, use_tqdm=False)  # of which 8 tokens are cached
    counts = [(step.prefill_tokens, step.decode_tokens) for step in llm.trace.steps]
    assert counts == [(n, 0) if i == 0 else (0, 1) for n in (10, 9, 1) for i in range(6)]


def test_the_same_run_gives_the_same_bytes(random_model, tmp_path) -> None:
    for name in ("one", "two"):
        with start(random_model, trace=tmp_path / name) as llm:
            run_all(llm)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_trace_file_grows_with_each_step(random_model, tmp_path) -> None:
    path = tmp_path / "run.jsonl"
    with start(random_model, trace=str(path)) as llm, TraceReader(path) as reader:
        assert reader.poll() == []
        llm.add_request("The moon", DRAWN)
        for _ in range(4):
            llm.step()
            assert len(reader.poll()) == 1
    assert Trace.load(path) == llm.trace  # closing wrote the abort as well
    assert llm.memory().num_used == 0


def test_a_trace_that_can_not_be_written(random_model, tmp_path) -> None:
    with pytest.raises(TraceError, match="none"):
        start(random_model, trace=tmp_path / "none" / "run.jsonl")
    assert start(random_model, trace=False).trace is None


# --- lifetimes ------------------------------------------------------------------------------------


def test_leaving_the_context_ends_what_runs(random_model) -> None:
    with start(random_model, trace=True) as llm:
        llm.add_request("The moon", DRAWN)
        llm.step()
    assert llm.memory().num_used == 0
    assert not llm.has_unfinished_requests()
    assert tokens(llm, "The moon")


def test_two_in_one_process(random_model) -> None:
    variants = [Variant("Llama"), Variant("Qwen3", window=True)]
    models = [random_model(variant) for variant in variants]
    pair = [
        WatchedLLM(model.folder, block_size=size, num_blocks=64)
        for model, size in zip(models, (4, 16), strict=True)
    ]
    prompt = random_prompt(7)
    for watched in pair:
        watched.llm.add_request(prompt, GREEDY)
    found: list[list[int]] = [[], []]
    for _ in range(6):
        for index, watched in enumerate(pair):
            (output,) = watched.llm.step()
            watched.check()
            found[index] = output.outputs[0].token_ids
    assert found == [model.greedy(prompt, 6).token_ids for model in models]
    assert found[0] != found[1]
    for watched in pair:
        watched.check_idle()
