"""`LLM`: the whole engine behind a few calls. Names follow vLLM's offline API.

llm = LLM("storyteller", block_size=4, num_blocks=64, trace=True)
outputs = llm.generate(["The moon", "The sea"], SamplingParams(n=3, temperature=0.8, seed=7))
outputs[0].outputs[2].text
llm.trace.save("run.jsonl")
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from tqdm import tqdm

from minipaged.engine import kv_cache
from minipaged.engine.config import EngineConfig
from minipaged.engine.deep_trace import DeepTrace
from minipaged.engine.llm_engine import LiveRequest, LLMEngine, Output, Params
from minipaged.engine.model_runner import ModelRunner, choose_num_blocks, load_model
from minipaged.engine.outputs import BeamSearchOutput, RequestOutput
from minipaged.engine.prompts import (
    Message,
    ParsedPrompt,
    Prompt,
    one_each,
    parse_chats,
    parse_prompt,
    parse_prompts,
)
from minipaged.engine.sample_request import SampleRequest
from minipaged.engine.sampling_params import BeamSearchParams, SamplingParams
from minipaged.errors import ConfigError, RequestRefusedError
from minipaged.memory.events import short
from minipaged.memory.snapshot import MemorySnapshot
from minipaged.memory.trace import Trace
from minipaged.models.catalog import DEFAULT_MODEL, resolve
from minipaged.models.tokenizer import load_tokenizer

OUR_NAME_FOR = {
    "tokenizer": "nothing: the model brings its own",
    "gpu_memory_utilization": "kv_cache_memory_bytes",
    "num_gpu_blocks_override": "num_blocks",
    "swap_space": "num_swap_blocks",
    "preemption_mode": "preemption",
    "enforce_eager": "nothing: it is always eager",
    "tensor_parallel_size": "nothing: there is one device",
    "attention_backend": "attention",
}


class LLM:
    """A model, its paged KV cache, and a scheduler.

    Args:
        model: A name of the catalog, a Hugging Face id, a folder, or a .gguf file.
        dtype: "auto" (fp32 on a CPU, the checkpoint's on a GPU), "float32", "bfloat16", "float16".
        device: "auto", "cpu" or "cuda".
        attention: The attention backend; "auto" is the fastest for the device.
        trace: True keeps every event in `trace`; a path also writes it as it grows. "deep" adds the
            share of attention that each block got, in the last layer; see `DeepTrace` for others.
        options: See `EngineConfig`: block_size, num_blocks, max_num_seqs, ...

    Raises:
        ModelError: The model can't be found, fetched or read.
        ConfigError: A setting makes no sense or does not exist.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        dtype: str = "auto",
        device: str = "auto",
        attention: str = "auto",
        trace: bool | str | Path | DeepTrace = False,
        **options: Any,
    ) -> None:
        config = _engine_config(options)
        deep, path = _deep_and_path(trace)
        files = resolve(str(model), _say)
        config.check_model_len(files.config)
        self._files = files
        self._tokenizer = load_tokenizer(files)
        transformer = load_model(files, str(dtype), str(device), str(attention))
        num_blocks = config.num_blocks or choose_num_blocks(transformer, config)
        config = replace(config, num_blocks=num_blocks)
        runner = ModelRunner(
            transformer, num_blocks, config.block_size, config.num_swap_blocks, deep
        )
        header = config.trace_header(
            {"name": files.name, "dtype": str(transformer.dtype).removeprefix("torch.")},
            kv_cache.bytes_per_block(files.config, config.block_size, transformer.dtype),
        )
        self.trace = None if trace is False else Trace(header, path)
        self.engine = LLMEngine(config, files.config, self._tokenizer, lambda: runner, self.trace)
        self._unclaimed: list[Output] = []

    # --- whole texts --------------------------------------------------------------------------

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Continue one or several prompts; the results stand in the prompts' order.

        Args:
            prompts: Strings, lists of token ids, or {"prompt": ...} / {"prompt_token_ids": ...}.
            sampling_params: One for all prompts, or one for each.
            use_tqdm: Show a progress bar.

        Raises:
            RequestRefusedError: A prompt can never run here. None of them is started.
        """
        parsed = parse_prompts(prompts, self._tokenizer)
        params = one_each(sampling_params, len(parsed))
        return cast(list[RequestOutput], self._run_all(parsed, params, use_tqdm))

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Answer one or several conversations, written as the model's chat template asks.

        Args:
            messages: [{"role": "user", "content": "Hello"}, ...], or a list of such lists.
            sampling_params: One for all conversations, or one for each.
            use_tqdm: Show a progress bar.

        Raises:
            ModelError: The model has no chat template, or it fails.
            RequestRefusedError: A conversation is malformed or too long.
        """
        parsed = parse_chats(messages, self._tokenizer)
        params = one_each(sampling_params, len(parsed))
        return cast(list[RequestOutput], self._run_all(parsed, params, use_tqdm))

    def beam_search(
        self, prompts: Prompt | Sequence[Prompt], params: BeamSearchParams, use_tqdm: bool = False
    ) -> list[BeamSearchOutput]:
        """Find the likeliest continuations of one or several prompts; `.sequences`, best first.

        Raises:
            RequestRefusedError: A prompt can never run here. None of them is started.
        """
        parsed = parse_prompts(prompts, self._tokenizer)
        if not isinstance(params, BeamSearchParams):
            raise ConfigError(f"beam_search takes BeamSearchParams, not {short(params)}")
        outputs = self._run_all(parsed, [params] * len(parsed), use_tqdm)
        return cast(list[BeamSearchOutput], outputs)

    def stream(
        self, prompt: Prompt, sampling_params: SamplingParams | None = None
    ) -> Iterator[str]:
        """Yield the text of one sample piece by piece, never half a character.

        The request is queued with the first piece; closing the iterator aborts it.

        Raises:
            RequestRefusedError: The prompt can never run here, or n is not 1.
        """
        (params,) = one_each(sampling_params, 1)
        if params.n != 1:
            raise RequestRefusedError(f"only one text can be streamed, not n={params.n}")
        text, token_ids = parse_prompt(prompt, self._tokenizer)
        self.engine.check_request(token_ids, params)
        return self._pieces(text, token_ids, params)

    # --- step by step -------------------------------------------------------------------------

    def add_request(self, prompt: Prompt, params: Params | None = None) -> str:
        """Queue a request for `step` and give its id.

        Raises:
            RequestRefusedError: It can never run here; the message gives the numbers.
        """
        if params is not None and not isinstance(params, SamplingParams | BeamSearchParams):
            raise ConfigError(f"params are SamplingParams or BeamSearchParams, not {short(params)}")
        text, token_ids = parse_prompt(prompt, self._tokenizer)
        return self.engine.add_request(token_ids, params or SamplingParams(), text)

    def add_requests(self, prompts: Prompt | Sequence[Prompt], params: Params) -> list[str]:
        """Queue several prompts with the same params and give their ids.

        Raises:
            RequestRefusedError: One of them can never run here. None is queued.
        """
        return self._add_all(
            [(*prompt, params) for prompt in parse_prompts(prompts, self._tokenizer)]
        )

    def step(self) -> list[Output]:
        """Run one step and give the requests that came further, as they are now."""
        outputs = [live.output() for live in self.engine.step()]
        unclaimed, self._unclaimed = self._unclaimed, []
        return unclaimed + outputs

    def abort(self, request_id: str) -> Output:
        """End a request, free its blocks, and give what it has.

        Raises:
            RequestRefusedError: There is none of that id, or it has ended.
        """
        return self.engine.abort(request_id)

    def has_unfinished_requests(self) -> bool:
        """Whether `step` has anything to do."""
        return self.engine.has_unfinished_requests or bool(self._unclaimed)

    @property
    def model_name(self) -> str:
        """The model that runs: the stand-in's name, if there is one."""
        return self._files.name

    def memory(self) -> MemorySnapshot:
        """Give who owns which block at this moment."""
        return self.engine.manager.snapshot()

    def close(self) -> None:
        """End what runs, and finish the trace file if there is one."""
        self.engine.abort_all()
        if self.trace:
            self.trace.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    # --- inside -------------------------------------------------------------------------------

    def _run_all(
        self, prompts: Sequence[ParsedPrompt], params: Sequence[Params], use_tqdm: bool
    ) -> list[Output]:
        ids = self._add_all([(*p, how) for p, how in zip(prompts, params, strict=True)])
        outputs: dict[str, Output] = {}
        try:
            with tqdm(total=len(ids), desc="prompts", disable=not use_tqdm) as bar:
                while len(outputs) < len(ids):
                    for live in self._step_and_claim(ids):
                        outputs[live.request.request_id] = live.output()
                        bar.update()
        finally:
            self.engine.abort_all(ids)
        return [outputs[request_id] for request_id in ids]

    def _add_all(self, requests: Sequence[tuple[str | None, list[int], Params]]) -> list[str]:
        """Check every request before the first is queued."""
        for _, token_ids, params in requests:
            self.engine.check_request(token_ids, params)
        return [self.engine.add_request(ids, params, text) for text, ids, params in requests]

    def _step_and_claim(self, ids: Sequence[str]) -> list[LiveRequest]:
        """Run a step; give those of `ids` that ended, and keep others' ends for their owner."""
        ended = [live for live in self.engine.step() if not live.request.live]
        self._unclaimed += [live.output() for live in ended if live.request.request_id not in ids]
        return [live for live in ended if live.request.request_id in ids]

    def _pieces(
        self, prompt: str | None, token_ids: list[int], params: SamplingParams
    ) -> Iterator[str]:
        request_id = self.engine.add_request(token_ids, params, prompt)
        live = self.engine.request(request_id)
        assert isinstance(live, SampleRequest)
        (completion,) = live.completions.values()
        given = 0
        try:
            while True:  # others' steps bring it further, too, and perhaps to its end
                piece = completion.safe_text[given:]
                if piece:
                    given += len(piece)
                    yield piece
                elif completion.finish_reason is not None:
                    return
                else:
                    self._step_and_claim([request_id])
        finally:
            self.engine.abort_all([request_id])
            self._unclaimed = [o for o in self._unclaimed if o.request_id != request_id]


def _engine_config(options: Mapping[str, Any]) -> EngineConfig:
    known = [field.name for field in fields(EngineConfig)]
    for name in options:
        if name not in known:
            hint = f"; here it is {OUR_NAME_FOR[name]}" if name in OUR_NAME_FOR else ""
            raise ConfigError(f"LLM has no argument {name!r}{hint}; it takes {', '.join(known)}")
    return EngineConfig(**options)


def _deep_and_path(trace: object) -> tuple[DeepTrace | None, str | Path | None]:
    """Read the argument `trace`: what is recorded beside the events, and where it is written."""
    if isinstance(trace, bool):
        return None, None
    if isinstance(trace, DeepTrace):
        return trace, trace.path
    if trace == "deep":
        return DeepTrace(), None
    if isinstance(trace, str | Path):
        return None, trace
    raise ConfigError(f'trace is True, False, "deep" or the path of a file, not {short(trace)}')


def _say(line: str) -> None:
    print(line, file=sys.stderr)  # noqa: T201 (a stand-in or a download must not go unnoticed)
