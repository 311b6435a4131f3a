"""What `LLM` takes and gives: prompts, params, outputs, and errors that leave nothing behind."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from random_models import EOS_IDS, VOCAB_SIZE, Variant, random_prompt
from scripted import let_it_write
from tiny_models import save_model, sentencepiece_tokenizer

from minipaged import (
    LLM,
    BeamSearchParams,
    CompletionOutput,
    DeepTrace,
    MinipagedError,
    RequestOutput,
    SamplingParams,
)
from minipaged.errors import ConfigError, RequestRefusedError

GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)


def generate(llm: LLM, prompts: Any, params: Any = GREEDY) -> list[RequestOutput]:
    return llm.generate(prompts, params, use_tqdm=False)


def text_of(llm: LLM, prompt: Any, params: SamplingParams) -> CompletionOutput:
    (output,) = generate(llm, prompt, params)
    return output.outputs[0]


# --- prompts --------------------------------------------------------------------------------------


def test_a_prompt_in_all_its_forms(llm) -> None:
    text = "The moon is far away"
    ids = llm.engine.tokenizer.encode(text)
    forms = [text, ids, tuple(ids), {"prompt": text}, {"prompt_token_ids": ids}]
    outputs = [generate(llm, form)[0] for form in forms] + generate(llm, forms)
    assert len(outputs) == 2 * len(forms)
    for output, form in zip(outputs, forms * 2, strict=True):
        assert output.prompt_token_ids == ids
        assert output.prompt == (text if form in (text, {"prompt": text}) else None)
        assert output.outputs[0].token_ids == outputs[0].outputs[0].token_ids
        assert output.finished
    assert len({output.request_id for output in outputs}) == len(outputs)


def test_results_stand_in_the_order_of_the_prompts(llm, random_model) -> None:
    prompts = [random_prompt(length) for length in (31, 1, 17, 4, 60, 5, 9, 2, 12, 3)]
    lengths = [1, 9, 3, 7, 2, 8, 4, 6, 5, 10]
    params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in lengths]
    outputs = generate(llm, prompts, params)
    model = random_model(Variant(ends=False))
    for prompt, n, output in zip(prompts, lengths, outputs, strict=True):
        assert output.prompt_token_ids == prompt
        assert output.outputs[0].token_ids == model.greedy(prompt, n).token_ids


def test_nothing_to_do(llm) -> None:
    assert generate(llm, []) == []
    assert llm.step() == []
    assert not llm.has_unfinished_requests()


def test_a_chat_is_written_as_the_template_asks(llm) -> None:
    chat = [{"role": "user", "content": " Hello "}]
    more = [*chat, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "Bye"}]
    (one,) = llm.chat(chat, GREEDY, use_tqdm=False)
    assert one.prompt == "<|user|>\nHello</s>\n<|assistant|>\n".replace("</s>", one_eos(llm))
    both = llm.chat([chat, more], [GREEDY, GREEDY], use_tqdm=False)
    assert [output.outputs[0].token_ids for output in both] == [
        generate(llm, output.prompt_token_ids)[0].outputs[0].token_ids for output in both
    ]
    assert both[0].outputs[0].token_ids == one.outputs[0].token_ids
    assert both[1].prompt.endswith("Bye" + one_eos(llm) + "\n<|assistant|>\n")


def one_eos(llm: LLM) -> str:
    return llm.engine.tokenizer.vocabulary_entry(EOS_IDS[0])


def test_the_first_space_of_a_continuation_is_kept(tmp_path) -> None:
    """A tokenizer of SentencePiece's kind drops it only where a text begins."""
    save_model(tmp_path)
    sentencepiece_tokenizer().save(str(tmp_path / "tokenizer.json"))
    llm = LLM(str(tmp_path), num_blocks=16)
    ids = let_it_write(llm, "The moon is far")
    params = SamplingParams(max_tokens=len(ids))
    assert text_of(llm, "Look:", params).text == " The moon is far"
    assert "".join(llm.stream("Look:", params)) == " The moon is far"


# --- params and outputs ---------------------------------------------------------------------------


def test_params_that_are_not_given(random_model) -> None:
    folder = str(random_model(Variant()).folder)
    same, again, other = (LLM(folder, num_blocks=32, seed=seed) for seed in (5, 5, 6))
    prompts = ["The moon", "The moon"]
    drawn = [
        [output.outputs[0].token_ids for output in llm.generate(prompts, use_tqdm=False)]
        for llm in (same, again, other)
    ]
    assert len(drawn[0][0]) == 16
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0][0] != drawn[0][1]


def test_samples_of_one_prompt(llm) -> None:
    params = SamplingParams(n=4, temperature=0.9, seed=1, max_tokens=8)
    (output,) = generate(llm, "The sea", params)
    assert [one.index for one in output.outputs] == [0, 1, 2, 3]
    assert len({tuple(one.token_ids) for one in output.outputs}) == 4
    for one in output.outputs:
        single = SamplingParams(temperature=0.9, seed=1 + one.index, max_tokens=8)
        assert text_of(llm, "The sea", single).token_ids == one.token_ids


def test_ends(llm) -> None:
    ids = let_it_write(llm, [80, 81, EOS_IDS[5], 83, 84, 85])

    def end(**params: Any) -> tuple[list[int], str | None]:
        one = text_of(llm, "x", SamplingParams(max_tokens=6, **params))
        assert one.text == llm.engine.tokenizer.decode(
            one.token_ids[:-1] if one.finish_reason == "stop" else one.token_ids
        )
        return one.token_ids, one.finish_reason

    assert end() == (ids[:3], "stop")
    assert end(ignore_eos=True) == (ids, "length")
    assert end(ignore_eos=True, stop_token_ids=[84]) == (ids[:5], "stop")
    assert end(stop_token_ids=[81]) == (ids[:2], "stop")
    assert end(min_tokens=3) == (ids, "length")


def test_min_tokens_keeps_the_text_from_ending(llm) -> None:
    prompts = [random_prompt(5, seed) for seed in range(40)]
    drawing = [SamplingParams(seed=i, max_tokens=12, min_tokens=9) for i in range(40)]
    lengths = [len(output.outputs[0].token_ids) for output in generate(llm, prompts, drawing)]
    assert min(lengths) == 10
    assert max(lengths) == 12


def test_a_stop_string_cuts_the_text(llm) -> None:
    text = "Once upon a time there was a naïve café owner who couldn't count to 17."
    ids = let_it_write(llm, text)

    def end(*stop: str, **params: Any) -> CompletionOutput:
        params = {"max_tokens": len(ids), "ignore_eos": True, **params}
        return text_of(llm, "x", SamplingParams(stop=list(stop), **params))

    assert end().text == text
    for stop in ("o", "n a", "café", "7.", "time there", text):
        one = end(stop)
        assert one.text == text[: text.index(stop)]
        assert one.finish_reason == "stop"
        assert one.token_ids == ids[: len(one.token_ids)]
    assert end("owner", "there", "zebra").text == "Once upon a time "
    assert end("zebra").finish_reason == "length"
    late = end("o", min_tokens=len(ids) // 2)
    assert len(late.token_ids) > len(ids) // 2
    assert late.text == text[: text.index("o", len(late.text))]


@torch.inference_mode()
@pytest.mark.parametrize("count", [0, 1, 5, VOCAB_SIZE, 2 * VOCAB_SIZE])
def test_logprobs_are_those_of_transformers(llm, random_model, count) -> None:
    params = SamplingParams(n=2, temperature=0.7, seed=4, max_tokens=5, logprobs=count)
    prompt = random_prompt(6)
    (output,) = generate(llm, prompt, params)
    model = random_model(Variant(ends=True)).model
    for one in output.outputs:
        logits = model(torch.tensor([prompt + one.token_ids])).logits[0, len(prompt) - 1 : -1]
        expected = logits.log_softmax(-1)
        chosen = [row[token].item() for row, token in zip(expected, one.token_ids, strict=True)]
        assert one.cumulative_logprob == pytest.approx(math.fsum(chosen), abs=1e-4)
        assert len(one.logprobs) == len(one.token_ids)
        for row, token, logprobs in zip(expected, one.token_ids, one.logprobs, strict=True):
            best = row.topk(min(count, VOCAB_SIZE)).indices.tolist()
            assert set(logprobs) == {*best, token}
            assert list(logprobs)[: min(count, 5)] == best[:5]
            assert logprobs == pytest.approx({i: row[i].item() for i in logprobs}, abs=1e-4)


def test_logprobs_are_left_out_unless_asked_for(llm) -> None:
    assert text_of(llm, "x", GREEDY).logprobs is None


def test_a_text_ends_with_the_length_of_the_model(llm) -> None:
    params = SamplingParams(temperature=0, max_tokens=50, min_tokens=20, ignore_eos=True)
    one = text_of(llm, random_prompt(97), params)
    assert (len(one.token_ids), one.finish_reason) == (3, "length")
    (output,) = llm.beam_search(random_prompt(98), BeamSearchParams(beam_width=2, max_tokens=50))
    assert {len(beam.token_ids) for beam in output.sequences} <= {1, 2}


def test_cached_tokens_are_reported(llm) -> None:
    prompt = random_prompt(10)
    assert [generate(llm, prompt)[0].num_cached_tokens for _ in range(2)] == [0, 8]
    assert generate(llm, prompt[:8])[0].num_cached_tokens == 4
    assert generate(llm, prompt[:4] + [9] * 9)[0].num_cached_tokens == 4


def test_beams_of_a_text(llm) -> None:
    params = BeamSearchParams(beam_width=3, max_tokens=5)
    (output,) = llm.beam_search("The moon", params)
    assert output.prompt == "The moon"
    assert output.finished
    scores = [beam.score for beam in output.sequences]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    both = llm.beam_search(["The moon", "The sea"], params)
    assert [beam.token_ids for beam in both[0].sequences] == [
        beam.token_ids for beam in output.sequences
    ]
    assert both[1].prompt == "The sea"


def test_the_progress_bar_goes_to_standard_error(llm, capsys) -> None:
    llm.generate(["a", "b"], GREEDY, use_tqdm=False)
    assert capsys.readouterr() == ("", "")
    llm.generate(["a", "b"], GREEDY)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "2/2" in shown.err


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_other_dtypes(random_model, dtype) -> None:
    llm = LLM(str(random_model(Variant()).folder), dtype=dtype, num_blocks=32, block_size=4)
    outputs = generate(llm, ["The moon", "The sea"], SamplingParams(n=2, seed=1, max_tokens=9))
    assert [len(one.token_ids) for output in outputs for one in output.outputs] == [9] * 4


def test_the_number_of_blocks_comes_from_the_memory_budget(random_model) -> None:
    folder = str(random_model(Variant()).folder)
    # 2 layers, K and V, 2 heads of 8 elements of 4 bytes for each of 16 tokens
    assert LLM(folder, kv_cache_memory_bytes=100_000).memory().num_blocks == 100_000 // 4096
    assert LLM(folder, kv_cache_memory_bytes=4096).memory().num_blocks == 1
    assert LLM(folder, kv_cache_memory_bytes=9999, num_blocks=7).memory().num_blocks == 7


# --- errors ---------------------------------------------------------------------------------------

REFUSED: list[tuple[Any, Any, type[MinipagedError], str]] = [
    ("", GREEDY, RequestRefusedError, "empty"),
    ({"prompt_token_ids": []}, GREEDY, RequestRefusedError, "empty"),
    ({"prompt": ""}, GREEDY, RequestRefusedError, "empty"),
    (random_prompt(100), GREEDY, RequestRefusedError, "100 tokens.*max_model_len 100"),
    ([5, VOCAB_SIZE], GREEDY, RequestRefusedError, f"id {VOCAB_SIZE} .*of {VOCAB_SIZE}"),
    ([5, -1], GREEDY, RequestRefusedError, "id -1"),
    ([5, 10**30], GREEDY, RequestRefusedError, "id 1000"),
    ([5, True], GREEDY, RequestRefusedError, "a prompt is a string or a list"),
    ([5, 1.0], GREEDY, RequestRefusedError, "a prompt is a string or a list"),
    ([5, "x"], GREEDY, RequestRefusedError, "a prompt is a string or a list"),
    (b"x", GREEDY, RequestRefusedError, "a prompt is a string or a list"),
    (5, GREEDY, RequestRefusedError, "a prompt is a string or a list"),
    (None, GREEDY, RequestRefusedError, "a prompt is a string or a list"),
    ({"text": "x"}, GREEDY, RequestRefusedError, "'text'"),
    ({}, GREEDY, RequestRefusedError, "one key"),
    ({"prompt": {"prompt": "x"}}, GREEDY, RequestRefusedError, "a prompt is a string or a list"),
    ("\ud800", GREEDY, RequestRefusedError, "UTF-8"),
    ("x", {"temperature": 0}, ConfigError, "SamplingParams"),
    ("x", BeamSearchParams(beam_width=2, max_tokens=2), ConfigError, "SamplingParams"),
]


@pytest.mark.parametrize(("prompt", "params", "error", "message"), REFUSED)
def test_a_refusal_leaves_everything_as_it_was(llm, prompt, params, error, message) -> None:
    before = generate(llm, ["The moon", "The sea"])
    memory = llm.memory()
    calls = [
        lambda: generate(llm, prompt, params),
        lambda: generate(llm, ["The moon", prompt], [GREEDY, params]),
        lambda: llm.stream(prompt, params),
    ]
    if not isinstance(params, BeamSearchParams):
        calls.append(lambda: llm.add_request(prompt, params))
    for call in calls:
        with pytest.raises(error, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
        assert not llm.has_unfinished_requests()
        assert llm.memory() == memory
    after = generate(llm, ["The moon", "The sea"])
    assert [output.outputs for output in after] == [output.outputs for output in before]


def test_more_refusals(llm) -> None:
    with pytest.raises(RequestRefusedError, match="up to 95 blocks, the pool has 48"):
        generate(llm, random_prompt(60), SamplingParams(n=8, max_tokens=40))
    with pytest.raises(RequestRefusedError, match="9 sequences asked for, but max_num_seqs is 8"):
        generate(llm, "x", SamplingParams(n=9))
    with pytest.raises(RequestRefusedError, match="empty"):
        generate(llm, [[]])
    with pytest.raises(RequestRefusedError, match="2 sampling params for 3 prompts"):
        generate(llm, ["a", "b", "c"], [GREEDY, GREEDY])
    with pytest.raises(RequestRefusedError, match="n=2"):
        llm.stream("x", SamplingParams(n=2))
    with pytest.raises(ConfigError, match="BeamSearchParams"):
        llm.beam_search("x", GREEDY)
    with pytest.raises(RequestRefusedError, match="9 sequences"):
        llm.beam_search("x", BeamSearchParams(beam_width=9, max_tokens=2))
    with pytest.raises(RequestRefusedError, match="no role"):
        llm.chat([{"content": "Hello"}], GREEDY)
    with pytest.raises(RequestRefusedError, match="'7'"):
        llm.abort("7")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_size": 0}, "block_size must be at least 1"),
        ({"num_blocks": 0}, "num_blocks must be at least 1"),
        ({"num_blocks": -1}, "num_blocks must be at least 1"),
        ({"num_blocks": 1.5}, "num_blocks must be of type int"),
        ({"kv_cache_memory_bytes": 10}, "one takes"),
        ({"max_model_len": 10_000}, "10000, the model was made for 256"),
        ({"max_num_seqs": 64, "max_num_batched_tokens": 63}, "63.*64"),
        ({"enable_chunked_prefill": False, "max_num_batched_tokens": 64}, "max_model_len"),
        ({"preemption": "swap"}, "num_swap_blocks"),
        ({"preemption": "drop"}, "'drop'"),
        ({"dtype": "int8"}, "int8"),
        ({"device": "abacus"}, "abacus"),
        ({"attention": "none"}, "none"),
        ({"trace": 7}, "trace is True.*not 7"),
        ({"trace": DeepTrace(layers=[2])}, "layer 2: the model has 2"),
        ({"trace": DeepTrace(heads=[0, -5])}, "head -5: the model has 4"),
        ({"trace": DeepTrace(heads=["all"])}, "head 'all': the model has 4"),
        ({"gpu_memory_utilization": 0.9}, "kv_cache_memory_bytes"),
        ({"num_gpu_blocks_override": 9}, "num_blocks"),
        ({"swap_space": 4}, "num_swap_blocks"),
        ({"tensor_parallel_size": 2}, "one device"),
        ({"colour": "red"}, "'colour'.*block_size"),
    ],
)
def test_settings_that_make_no_sense(random_model, options, message) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        LLM(str(random_model(Variant()).folder), **options)
    assert "\n" not in str(caught.value)


def test_arguments_of_vllm_are_told_ours() -> None:
    with pytest.raises(ConfigError, match=r"max_new_tokens.*use max_tokens"):
        SamplingParams(max_new_tokens=5)
