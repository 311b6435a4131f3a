"""A small engine without a model under a random load: requests come, grow, fork, leave and return.

It is built to make memory scarce: 12 blocks of 4 tokens and 6 to swap to. Prompts begin like
earlier texts, so they hit the prefix cache; some ask for several samples, and a few for more than
the pool can ever hold. The same seed gives the same run, byte for byte.
"""

from __future__ import annotations

import random
from itertools import count

from minipaged.engine.config import EngineConfig
from minipaged.engine.scheduler import Scheduler
from minipaged.engine.scheduler_output import SchedulerOutput
from minipaged.engine.sequence import Request, Sequence
from minipaged.errors import RequestRefusedError
from minipaged.lab.zoo.invariants import BrokenInvariantError
from minipaged.memory.checked_kv import CheckedKV
from minipaged.memory.events import Sampled
from minipaged.memory.kv_cache_manager import KVCacheManager
from minipaged.memory.trace import Trace

CONFIG = EngineConfig(
    block_size=4,
    num_blocks=12,
    num_swap_blocks=6,
    max_num_seqs=8,
    max_num_batched_tokens=12,
    preemption="swap",
)
VOCABULARY = range(1, 4)
LETTERS = dict(enumerate("?abc"))
_FIRST_TEXTS = ([1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3], [3, 2, 1, 1, 3, 2, 1, 1])


class RandomEngine:
    """Scheduler, manager and a readable KV cache, driven by one random number generator.

    `texts` holds all tokens of each sequence as the outside world knows them.
    """

    def __init__(self, seed: int, title: str = "") -> None:
        assert CONFIG.num_blocks is not None
        header = CONFIG.trace_header({"name": "random tokens"}, 0, title)
        self.trace = Trace(header)
        self.manager = KVCacheManager(
            CONFIG.num_blocks,
            CONFIG.block_size,
            num_swap_blocks=CONFIG.num_swap_blocks,
            notify=self.trace.observe,
            token_text=LETTERS.__getitem__,
        )
        self.scheduler = Scheduler(CONFIG, self.manager, self.trace.observe)
        self.kv = CheckedKV(CONFIG.num_blocks, CONFIG.block_size, CONFIG.num_swap_blocks)
        self.texts: dict[int, list[int]] = {}
        self.operation = ""  # the one that ran last, in words
        self.tokens = (0, 0)  # its prefill and decode tokens
        self._random = random.Random(seed)
        self._history = [list(text) for text in _FIRST_TEXTS]
        self._arrivals = count()

    @property
    def requests(self) -> list[Request]:
        """Everybody who has not finished yet."""
        scheduler = self.scheduler
        return [*scheduler.running, *scheduler.swapped, *scheduler.waiting]

    def operate(self) -> None:
        """Do one random operation."""
        self.tokens = (0, 0)
        chance = self._random.random()
        if chance < 0.30 or not self.requests:
            self._add()
        elif chance < 0.35:
            self._abort()
        elif chance < 0.42 and self.scheduler.running:
            self._preempt()
        else:
            self.operation = "step"
            self._step()

    # --- operations ---------------------------------------------------------------------------

    def _add(self) -> None:
        draw, arrival = self._random, next(self._arrivals)
        stop = draw.choice((4, 8, 12, 16, draw.randrange(1, 17)))  # often a block's end
        prompt = draw.choice(self._history[-8:])[:stop]
        prompt = prompt + [draw.choice(VOCABULARY) for _ in range(draw.randrange(8))]
        width, max_tokens = draw.choice((1, 1, 2, 3)), draw.randrange(1, 13)
        if draw.random() < 0.1:  # more than the pool can ever hold
            width, max_tokens = 6, 40
        request = Request(str(arrival), tuple(prompt), width, max_tokens, arrival)
        request.sequences = [
            Sequence(len(self.texts) + index, index, list(prompt)) for index in range(width)
        ]
        self.operation = f"request {arrival}: {len(prompt)} tokens, {width} x {max_tokens} new ones"
        try:
            self.scheduler.add(request)
        except RequestRefusedError:
            self.operation += ", refused"
            return
        self.texts.update((s.seq_id, list(prompt)) for s in request.sequences)

    def _abort(self) -> None:
        request = self._random.choice(self.requests[:6])  # seldom one that only waits
        self.operation = f"abort request {request.request_id}"
        self.scheduler.abort(request)

    def _preempt(self) -> None:
        """Preempt somebody by hand; the step behind it carries out the moves."""
        request = self._random.choice(self.scheduler.running)
        self.operation = f"preempt request {request.request_id}, and a step"
        self.scheduler.preempt(request, "by hand")
        self._step()

    def _step(self) -> None:
        step = self.scheduler.schedule()
        if not step.chunks:
            raise BrokenInvariantError("progress", "a step computes nothing, and requests wait")
        decode = step.num_decode_tokens
        self.tokens = (step.num_tokens - decode, decode)
        self._compute(step)
        ended = [chunk.request for chunk in step.chunks if chunk.needs_logits]
        self.scheduler.commit(step)
        self._sample(list(dict.fromkeys(ended)))

    # --- what a model would do ----------------------------------------------------------------

    def _compute(self, step: SchedulerOutput) -> None:
        self.kv.swap_out(step.swap_outs)
        self.kv.swap_in(step.swap_ins)
        self.kv.copy(step.copies)
        for chunk in step.chunks:
            first = max(chunk.start - 1, 0)  # the position before: its KV is read
            slots = self.manager.slot_mapping(chunk.sequence.seq_id, first, chunk.stop)
            before, new = slots[: chunk.start - first], slots[chunk.start - first :]
            self.kv.write(new, chunk.token_ids, chunk.start, before[0] if before else None)

    def _sample(self, requests: list[Request]) -> None:
        """Give every live sequence of these requests a token; who has enough of them ends."""
        texts = [(request, s) for request in requests for s in request.live]
        if not texts:
            return
        tokens = tuple(self._random.choice(VOCABULARY) for _ in texts)
        seqs = tuple(sequence.seq_id for _, sequence in texts)
        letters = tuple(LETTERS[token] for token in tokens)
        self.trace.observe(Sampled(seqs, tokens, letters, (0,) * len(tokens)))
        for (request, sequence), token in zip(texts, tokens, strict=True):
            sequence.token_ids.append(token)
            self.texts[sequence.seq_id].append(token)
            if sequence.num_tokens >= request.num_prompt_tokens + request.max_tokens:
                self._history.append(list(sequence.token_ids))
                self.scheduler.finish(request, sequence, "length")
