"""The engine: requests in, tokens out, one step at a time.

A step is: schedule (who computes what, in which blocks), run the model, commit (the KV exists now),
choose a token for each sequence that came to its end. Torch is not imported here: the model runner
is loaded when the first step runs, so that a view can show the first step's blocks before.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from minipaged.engine.beam_request import BeamChoice, BeamRequest
from minipaged.engine.config import EngineConfig
from minipaged.engine.outputs import BeamSearchOutput, RequestOutput
from minipaged.engine.sample_request import SampleRequest
from minipaged.engine.sampling_params import BeamSearchParams, SamplingParams
from minipaged.engine.scheduler import Scheduler
from minipaged.engine.scheduler_output import SchedulerOutput
from minipaged.engine.sequence import Request
from minipaged.engine.sequence import Sequence as Text
from minipaged.engine.uniform import hash64
from minipaged.engine.uninterrupted import uninterrupted
from minipaged.errors import RequestRefusedError
from minipaged.memory.events import Observer, Sampled, ignore
from minipaged.memory.kv_cache_manager import KVCacheManager
from minipaged.memory.trace import Trace
from minipaged.models.config import ModelConfig
from minipaged.models.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from minipaged.engine.model_runner import ModelRunner
    from minipaged.engine.sampler import SampledToken

Output: TypeAlias = RequestOutput | BeamSearchOutput
Params: TypeAlias = SamplingParams | BeamSearchParams
LiveRequest: TypeAlias = SampleRequest | BeamRequest


class _Draw(NamedTuple):
    """A token that was drawn for one of a request's texts."""

    live: SampleRequest
    text: Text
    token: SampledToken


class _Chosen(NamedTuple):
    """A token that a text goes on with, drawn or found by search."""

    text: Text
    token_id: int
    logprob: float


class LLMEngine:
    """Runs requests on one model and one paged KV cache.

    `config.num_blocks` must be known. `load_runner` is called once, when the first step runs.
    """

    def __init__(
        self,
        config: EngineConfig,
        model: ModelConfig,
        tokenizer: Tokenizer,
        load_runner: Callable[[], ModelRunner],
        trace: Trace | None = None,
    ) -> None:
        assert config.num_blocks is not None, "worked out from the memory budget before"
        self.config = config
        self.vocab_size = model.vocab_size
        self.max_model_len = config.check_model_len(model)
        self.tokenizer = tokenizer
        self.trace = trace
        self._notify: Observer = trace.observe if trace else ignore
        self.manager = KVCacheManager(
            config.num_blocks,
            config.block_size,
            num_swap_blocks=config.num_swap_blocks,
            enable_prefix_caching=config.enable_prefix_caching,
            notify=self._notify,
            token_text=tokenizer.token_text if trace else str,
        )
        self.scheduler = Scheduler(config, self.manager, self._notify)
        self._load_runner = load_runner
        self._requests: dict[str, LiveRequest] = {}
        self._num_requests = 0
        self._seq_ids = itertools.count()
        self._scheduled: SchedulerOutput | None = None

    @cached_property
    def runner(self) -> ModelRunner:
        """The model and its KV cache, loaded on first use."""
        return self._load_runner()

    @property
    def has_unfinished_requests(self) -> bool:
        """Whether a step would do anything."""
        return self.scheduler.has_unfinished

    def request(self, request_id: str) -> LiveRequest:
        """Give an unfinished request.

        Raises:
            RequestRefusedError: There is none of that id, or it has ended.
        """
        if not isinstance(request_id, str) or request_id not in self._requests:
            raise RequestRefusedError(f"no unfinished request has the id {request_id!r}")
        return self._requests[request_id]

    @uninterrupted()
    def add_request(
        self, prompt_token_ids: Sequence[int], params: Params, prompt: str | None = None
    ) -> str:
        """Queue a request and give its id. `prompt` is its text, if there is one.

        Raises:
            RequestRefusedError: It can never run here; the message gives the numbers.
        """
        params = self.check_request(prompt_token_ids, params)
        number, self._num_requests = self._num_requests, self._num_requests + 1
        request = _request(str(number), prompt_token_ids, params, number)
        width = params.n if isinstance(params, SamplingParams) else 1
        request.sequences = [
            Text(next(self._seq_ids), index, list(prompt_token_ids)) for index in range(width)
        ]
        if isinstance(params, SamplingParams):
            seed = hash64(self.config.seed, number) if params.seed is None else params.seed
            live: LiveRequest = SampleRequest(request, prompt, params, seed, self.tokenizer)
        else:
            live = BeamRequest(request, prompt, params, self.tokenizer)
        self.scheduler.add(request)
        self._requests[request.request_id] = live
        return request.request_id

    def check_request(self, prompt_token_ids: Sequence[int], params: Params) -> Params:
        """Give the params with `max_tokens` cut to what the model's length leaves.

        Raises:
            RequestRefusedError: The request can never run here. Nothing is queued.
        """
        length = len(prompt_token_ids)
        if length == 0:
            raise RequestRefusedError("the prompt is empty: it needs at least one token")
        if length >= self.max_model_len:
            raise RequestRefusedError(
                f"the prompt has {length} tokens; with max_model_len {self.max_model_len} it may "
                f"have {self.max_model_len - 1}, to leave room for a new one"
            )
        self._check_token_ids(prompt_token_ids)
        params = _cut(params, self.max_model_len - length)
        self.scheduler.check(_request("", prompt_token_ids, params, 0))
        return params

    @uninterrupted()
    def abort(self, request_id: str) -> Output:
        """End a request at once, free its blocks, and give what it has so far.

        Raises:
            RequestRefusedError: There is none of that id, or it has ended.
        """
        live = self.request(request_id)
        del self._requests[request_id]
        if isinstance(live, SampleRequest):
            live.abort()
        self.scheduler.abort(live.request)
        if self._scheduled:
            self._scheduled.drop(live.request)
            if self._scheduled.is_empty:
                self._scheduled = None
        return live.output()

    def abort_all(self, request_ids: Iterable[str] | None = None) -> None:
        """End every request, or those of `request_ids` that have not ended."""
        for request_id in list(self._requests if request_ids is None else request_ids):
            if request_id in self._requests:
                self.abort(request_id)

    @uninterrupted()
    def schedule(self) -> SchedulerOutput:
        """Decide the next step and reserve its blocks, once; `step` runs it."""
        if self._scheduled is None:
            self._scheduled = self.scheduler.schedule()
        return self._scheduled

    def step(self) -> list[LiveRequest]:
        """Run one step and give the requests that came further by a token, ended ones included.

        Until its tokens are chosen a step changes nothing but KV: if it fails or is interrupted, it
        runs again. The rest can't be interrupted; if it fails, its requests are aborted: half a
        step leads nowhere.
        """
        if not self.has_unfinished_requests:
            return []
        step = self.schedule()
        logits = self.runner.run(step, self.manager)
        requests = self._requests_to_advance(step)
        draws, beams = self._draw(requests, logits), _choose_beams(requests, logits)
        self._complete(step, requests, draws, beams)
        return [live for live, _ in requests]

    @uninterrupted()
    def _complete(
        self,
        step: SchedulerOutput,
        requests: Sequence[tuple[LiveRequest, list[int]]],
        draws: Sequence[_Draw],
        beams: Sequence[tuple[BeamRequest, BeamChoice]],
    ) -> None:
        """Note what was computed and chosen, and let go who came to an end."""
        decode = step.num_decode_tokens
        self._scheduled = None
        try:
            self.scheduler.commit(step)
            for event in self.runner.attended(step):
                self._notify(event)
            self._note_tokens(self._append(draws) + self._extend(beams))
            self._finish_ended(requests)
        except BaseException:
            self.abort_all([chunk.request.request_id for chunk in step.chunks])
            raise
        if self.trace:
            self.trace.end_step(step.num_tokens - decode, decode)

    def _requests_to_advance(self, step: SchedulerOutput) -> list[tuple[LiveRequest, list[int]]]:
        """Give the requests whose chunks end with their last token, and their rows of logits."""
        rows: dict[str, list[int]] = {}
        for row, chunk in enumerate(chunk for chunk in step.chunks if chunk.needs_logits):
            rows.setdefault(chunk.request.request_id, []).append(row)
        return [(self._requests[request_id], its_rows) for request_id, its_rows in rows.items()]

    def _draw(
        self, requests: Sequence[tuple[LiveRequest, list[int]]], logits: Tensor
    ) -> list[_Draw]:
        """Draw a token for each live sample. Nothing is changed."""
        draws = [
            (live, *draw)
            for live, rows in requests
            if isinstance(live, SampleRequest)
            for draw in live.draws(rows)
        ]
        if not draws:
            return []
        rows = [row for _, _, row, _ in draws]
        if rows != list(range(len(logits))):
            logits = logits[rows]
        tokens = self.runner.sample(logits, [how for *_, how in draws])
        return [_Draw(*draw[:2], token) for draw, token in zip(draws, tokens, strict=True)]

    def _append(self, draws: Sequence[_Draw]) -> list[_Chosen]:
        """Add the drawn tokens to their texts."""
        for live, text, token in draws:
            live.append(text, token)
        return [_Chosen(text, token.token_id, token.logprob) for _, text, token in draws]

    def _extend(self, beams: Sequence[tuple[BeamRequest, BeamChoice]]) -> list[_Chosen]:
        """Take every beam search one token further."""
        chosen = []
        for live, choice in beams:
            extended = live.advance(choice, self.scheduler, lambda: next(self._seq_ids))
            chosen += [_Chosen(*beam) for beam in extended]
        return chosen

    def _finish_ended(self, requests: Sequence[tuple[LiveRequest, list[int]]]) -> None:
        """Free the sequences whose last token has come, and forget requests that have none left."""
        for live, _ in requests:
            if isinstance(live, SampleRequest):
                live.finish_ended(self.scheduler)
            if not live.request.live:
                del self._requests[live.request.request_id]

    def _note_tokens(self, chosen: Sequence[_Chosen]) -> None:
        if not self.trace or not chosen:
            return
        token_ids = tuple(token_id for _, token_id, _ in chosen)
        self._notify(
            Sampled(
                seqs=tuple(text.seq_id for text, _, _ in chosen),
                tokens=token_ids,
                texts=tuple(map(self.tokenizer.token_text, token_ids)),
                millinats=tuple(round(1000 * logprob) for _, _, logprob in chosen),
            )
        )

    def _check_token_ids(self, token_ids: Sequence[int]) -> None:
        size = self.vocab_size
        if min(token_ids) < 0 or max(token_ids) >= size:
            wrong = next(t for t in token_ids if not 0 <= t < size)
            raise RequestRefusedError(f"token id {wrong} is not in a vocabulary of {size}")


def _request(request_id: str, token_ids: Sequence[int], params: Params, arrival: int) -> Request:
    width = params.n if isinstance(params, SamplingParams) else params.beam_width
    return Request(request_id, tuple(token_ids), width, params.max_tokens, arrival)


def _cut(params: Params, most: int) -> Params:
    """Give the params with at most `most` tokens to generate."""
    max_tokens = min(params.max_tokens, most)
    if isinstance(params, SamplingParams):
        return replace(params, max_tokens=max_tokens, min_tokens=min(params.min_tokens, max_tokens))
    return replace(params, max_tokens=max_tokens)


def _choose_beams(
    requests: Sequence[tuple[LiveRequest, list[int]]], logits: Tensor
) -> list[tuple[BeamRequest, BeamChoice]]:
    """Choose how each beam search goes on. Nothing is changed."""
    return [
        (live, live.choose(logits[rows].log_softmax(-1)))
        for live, rows in requests
        if isinstance(live, BeamRequest)
    ]
