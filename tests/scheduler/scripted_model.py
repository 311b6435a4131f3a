"""A model without weights, whose KV cache is a list that can be checked cell by cell.

`ScriptedRunner` stands where the model runner stands. The KV of a token is what a real one depends
on: the token, its position, and everything before it (a checksum). A cell that was never written,
was overwritten, or belongs to a block whose content means nothing is caught when it is read. The
next token is a function of the context *as read from that memory* and of the sample's own draw, so
a text can be worked out without an engine (`solo_text`), and must come out the same in any company.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from zlib import crc32

from minipaged.engine.config import EngineConfig
from minipaged.engine.llm_engine import LLMEngine
from minipaged.engine.outputs import BeamSearchOutput, RequestOutput
from minipaged.engine.sampler import SampledToken, SamplingRow
from minipaged.engine.sampling_params import BeamSearchParams, SamplingParams
from minipaged.engine.scheduler_output import Chunk, SchedulerOutput
from minipaged.engine.sequence import Request
from minipaged.engine.uniform import hash64
from minipaged.memory.events import Event, Requested
from minipaged.memory.integrity import check_manager
from minipaged.memory.kv_cache_manager import BlockMove, KVCacheManager
from minipaged.memory.replay import Replay
from minipaged.memory.trace import Trace, TraceHeader
from minipaged.models.config import ModelConfig

VOCAB_SIZE = 32
EOS = 0
MAX_MODEL_LEN = 64


class Cell(NamedTuple):
    """The KV of one token: itself, its place, and a checksum of the text up to it."""

    token: int
    position: int
    checksum: int


def cells(token_ids: Sequence[int], checksum: int = 0, start: int = 0) -> Iterator[Cell]:
    """Give the KV of tokens that stand at `start` behind a text with that checksum."""
    for position, token in enumerate(token_ids, start):
        checksum = crc32(b"%d " % token, checksum)
        yield Cell(token, position, checksum)


def next_token(checksum: int, row: SamplingRow) -> SampledToken:
    """Choose a token: greedy by the context alone, otherwise by the sample's draw as well."""
    draw = 0 if row.params.greedy else hash64(row.seed, row.position)
    number = hash64(checksum ^ draw, 0)
    allowed = [token for token in range(VOCAB_SIZE) if token not in row.banned]
    return SampledToken(allowed[number % len(allowed)], -(number >> 40) % 4096 / -1024, None)


def solo_text(prompt: Sequence[int], params: SamplingParams, seed: int) -> list[int]:
    """Give the tokens that a sample with this seed generates when nobody disturbs it."""
    output: list[int] = []
    while len(output) < params.max_tokens:
        *_, last = cells([*prompt, *output])
        banned = (EOS,) if len(output) < params.min_tokens and not params.ignore_eos else ()
        row = SamplingRow(params, seed, len(output), banned)
        output.append(next_token(last.checksum, row).token_id)
        if output[-1] == EOS and not params.ignore_eos and not banned:
            break
    return output


class ScriptedLogits:
    """A row for each context: its checksum. Beams ask for more, and get a tensor."""

    def __init__(self, checksums: Sequence[int]) -> None:
        self.checksums = list(checksums)

    def __len__(self) -> int:
        return len(self.checksums)

    def __getitem__(self, rows: Sequence[int]) -> ScriptedLogits:
        return ScriptedLogits([self.checksums[row] for row in rows])

    def log_softmax(self, dim: int) -> Any:
        """Give multiples of 1/8, which add up exactly in any order: fp32 [num_rows, vocab_size]."""
        import torch

        return torch.tensor(
            [[-(1 + hash64(c, t) % 64) / 8 for t in range(VOCAB_SIZE)] for c in self.checksums]
        )


class Interruption(BaseException):
    """Stands for Ctrl-C, which pytest would take as its own."""


class ScriptedRunner:
    """Moves blocks, writes cells, reads contexts back, and fails loudly if anything is amiss."""

    def __init__(self, num_blocks: int, block_size: int, num_swap_blocks: int = 0) -> None:
        self.block_size = block_size
        self.kv_cache: list[list[Cell | None]] = _empty(num_blocks, block_size)
        self.swap_cache: list[list[Cell | None]] = _empty(num_swap_blocks, block_size)
        self.fail_at: str | None = None

    def run(self, step: SchedulerOutput, manager: KVCacheManager) -> ScriptedLogits:
        """Compute a step in the order of the contract, and give a row for each chunk that ends."""
        self._maybe_fail("start")
        self._move(step)
        self._maybe_fail("moved")
        for chunk in step.chunks:
            self._check_context(chunk, chunk.start, manager)  # computed in earlier steps
        for chunk in step.chunks:
            self._write(chunk, manager)
        self._maybe_fail("written")
        for chunk in step.chunks:
            self._check_context(chunk, chunk.stop, manager)
        self._poison(manager)
        ends = [self._read(c.stop - 1, c, manager) for c in step.chunks if c.needs_logits]
        return ScriptedLogits([end.checksum for end in ends if end])

    def sample(self, logits: ScriptedLogits, rows: Sequence[SamplingRow]) -> list[SampledToken]:
        """Choose a token for each row."""
        self._maybe_fail("sample")
        assert len(logits) == len(rows)
        return [next_token(c, row) for c, row in zip(logits.checksums, rows, strict=True)]

    def _move(self, step: SchedulerOutput) -> None:
        sources, targets = {m.source for m in step.copies}, {m.target for m in step.copies}
        assert not sources & targets, f"a copy's target is another's source: {step.copies}"
        _move_all(self.kv_cache, self.swap_cache, step.swap_outs)
        self._maybe_fail("swapped out")
        _move_all(self.swap_cache, self.kv_cache, step.swap_ins)
        _move_all(self.kv_cache, self.kv_cache, step.copies)

    def _write(self, chunk: Chunk, manager: KVCacheManager) -> None:
        before = self._read(chunk.start - 1, chunk, manager)
        slots = manager.slot_mapping(chunk.sequence.seq_id, chunk.start, chunk.stop)
        new = cells(chunk.token_ids, before.checksum if before else 0, chunk.start)
        for slot, cell in zip(slots, new, strict=True):
            block, offset = divmod(slot, self.block_size)
            assert manager.pool.ref_count[block] == 1, f"seq writes to shared block {block}"
            assert block not in manager.pool.hash_of, f"seq writes to published block {block}"
            self.kv_cache[block][offset] = cell

    def attended(self, step: SchedulerOutput) -> list[Event]:
        return []

    def _check_context(self, chunk: Chunk, stop: int, manager: KVCacheManager) -> None:
        seq, token_ids = chunk.sequence.seq_id, chunk.sequence.token_ids
        for want in cells(token_ids[:stop]):
            found = self._read(want.position, chunk, manager)
            assert found == want, f"seq {seq} reads {found} where {want} belongs"

    def _read(self, position: int, chunk: Chunk, manager: KVCacheManager) -> Cell | None:
        if position < 0:
            return None
        (slot,) = manager.slot_mapping(chunk.sequence.seq_id, position, position + 1)
        block, offset = divmod(slot, self.block_size)
        return self.kv_cache[block][offset]

    def _poison(self, manager: KVCacheManager) -> None:
        """Wipe what means nothing: free blocks that nobody could find again."""
        for cache, pool in ((self.kv_cache, manager.pool), (self.swap_cache, manager.swap_pool)):
            for block, count in enumerate(pool.ref_count):
                if count == 0 and block not in pool.hash_of:
                    cache[block] = [None] * self.block_size

    def _maybe_fail(self, where: str) -> None:
        if self.fail_at == where:
            self.fail_at = None
            raise Interruption(where)


def _empty(num_blocks: int, block_size: int) -> list[list[Cell | None]]:
    return [[None] * block_size for _ in range(num_blocks)]


def _move_all(
    source_cache: list[list[Cell | None]],
    target_cache: list[list[Cell | None]],
    moves: list[BlockMove],
) -> None:
    """Move blocks all at once, as one tensor operation does; a move that is done is not kept."""
    targets = [move.target for move in moves]
    assert len(set(targets)) == len(targets), f"a block is the target of two moves: {moves}"
    contents = [source_cache[move.source].copy() for move in moves]
    for target, content in zip(targets, contents, strict=True):
        target_cache[target] = content
    moves.clear()


# --- an engine around it --------------------------------------------------------------------------

MODEL = ModelConfig("llama", VOCAB_SIZE, 1, 1, 1, 1, 1, 1, MAX_MODEL_LEN, 1e-5, 1e4, False, (EOS,))


class Letters:
    """A tokenizer whose token 0 ends a text, and whose others are a letter or a sign each."""

    eos_token_ids = (EOS,)
    special_ids = frozenset([EOS])
    strips_first_space = False
    _signs = "\0abcdefghijklmnopqrstuvwxyz,.;!?"

    def encode(self, text: str) -> list[int]:
        return [self._signs.index(sign) for sign in text]

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(self._signs[token] for token in token_ids if token != EOS)

    def token_text(self, token_id: int) -> str:
        return self._signs[token_id] if token_id else "</s>"

    def token_bytes(self, token_id: int) -> bytes:
        return self._signs[token_id].encode()


class WatchedTrace(Trace):
    """A trace that is replayed while it is recorded."""

    def __init__(self, header: TraceHeader) -> None:
        super().__init__(header)
        self.replay = Replay(header.num_blocks, header.block_size, header.num_swap_blocks)

    def observe(self, event: Event) -> None:
        self.replay.apply(event)
        super().observe(event)

    @property
    def events(self) -> list[Event]:
        """Every event so far."""
        return [event for step in self.steps for event in step.events] + list(self.pending())


class ScriptedEngine(LLMEngine):
    """The real engine on the scripted model, with the questions that tests ask.

    Options are those of `EngineConfig`; blocks hold 4 tokens if nothing else is said.
    """

    trace: WatchedTrace
    runner: ScriptedRunner  # type: ignore[assignment]

    def __init__(self, num_blocks: int, block_size: int = 4, title: str = "", **options: Any):
        config = EngineConfig(num_blocks=num_blocks, block_size=block_size, **options)
        runner = ScriptedRunner(num_blocks, block_size, config.num_swap_blocks)
        trace = WatchedTrace(config.trace_header({"name": "scripted"}, 0, title))
        super().__init__(config, MODEL, Letters(), lambda: runner, trace)  # type: ignore[arg-type, return-value]

    def add(self, prompt: str | Sequence[int], max_tokens: int = 8, **options: Any) -> Request:
        """Queue a request that goes on to its last token unless told otherwise."""
        token_ids = Letters().encode(prompt) if isinstance(prompt, str) else prompt
        options = {"ignore_eos": True, **options}
        kind = BeamSearchParams if "beam_width" in options else SamplingParams
        name = self.add_request(token_ids, kind(max_tokens=max_tokens, **options))
        return self.request(name).request

    def occupy(self, num_blocks: int) -> int:
        """Let a stranger take blocks, and give its sequence, to be freed by the caller."""
        stranger = next(self._seq_ids)
        self._notify(Requested(stranger, "stranger", num_blocks))
        self.manager.allocate(stranger, [VOCAB_SIZE] * num_blocks * self.config.block_size)
        return stranger

    def table(self, request: Request, index: int = 0) -> list[int]:
        """Give the blocks of one of the live sequences of a request."""
        return self.manager.block_table(request.live[index].seq_id)

    def tables(self, request: Request) -> list[list[int]]:
        """Give the blocks of each live sequence of a request."""
        return [self.manager.block_table(s.seq_id) for s in request.live]

    def chunks(self) -> list[tuple[int, int, int]]:
        """Plan the next step, and give (sequence, start, stop) of each chunk."""
        return [(c.sequence.seq_id, c.start, c.stop) for c in self.schedule().chunks]

    def steps(self, count: int) -> None:
        """Run some steps."""
        for _ in range(count):
            self.step()
            self.check()

    def queues(self) -> tuple[list[str], list[str], list[str]]:
        """Give the names of requests that wait, run, and are swapped out."""
        s = self.scheduler
        waiting, running, swapped = (
            [request.request_id for request in queue] for queue in (s.waiting, s.running, s.swapped)
        )
        return waiting, running, swapped

    def finish(self, most: int = 500) -> None:
        """Run until all is done, in a bounded number of steps, and see all blocks come back."""
        for _ in range(most):
            if not self.has_unfinished_requests:
                break
            self.steps(1)
        assert not self.has_unfinished_requests, f"not done after {most} steps"
        assert self.manager.pool.num_free == self.config.num_blocks
        assert self.manager.swap_pool.num_free == self.config.num_swap_blocks

    def check(self) -> None:
        """Hold what must hold between any two calls: memory, its replay, the three queues."""
        check_manager(self.manager)
        assert self.trace.replay.snapshot() == self.manager.snapshot()
        scheduler, manager = self.scheduler, self.manager
        for queue in (scheduler.waiting, scheduler.running, scheduler.swapped):
            arrivals = [request.arrival for request in queue]
            assert arrivals == sorted(set(arrivals)), f"a queue is out of order: {arrivals}"
            assert all(request.live for request in queue), "a queue holds a request that has ended"
        for request in scheduler.waiting:
            for sequence in request.live:
                assert not manager.has(sequence.seq_id), "it waits with blocks"
                assert sequence.num_computed_tokens == 0
        for request in scheduler.running:
            for sequence in request.computing:
                assert sequence.num_computed_tokens == manager.num_tokens(sequence.seq_id)
        assert sum(r.width for r in scheduler.running) <= self.config.max_num_seqs

    def check_contents(self) -> None:
        """Compare what the trace says is in each block with what the model's memory holds."""
        replay, cache = self.trace.replay, self.runner.kv_cache
        for seq, table in replay.tables.items():
            for index in range(replay.num_tokens[seq]):
                block, offset = divmod(index, self.config.block_size)
                cell = cache[table[block]][offset]
                shown = replay.contents[table[block]][offset]
                assert cell is not None
                assert (cell.token, cell.position) == (shown.id, index)


def seed_of(engine: LLMEngine, request: Request, params: SamplingParams) -> int:
    """Give the seed of a request's sample 0."""
    number = int(request.request_id)
    return hash64(engine.config.seed, number) if params.seed is None else params.seed


def texts(output: RequestOutput) -> list[list[int]]:
    """Give the tokens of each sample."""
    return [completion.token_ids for completion in output.outputs]


def solo_beams(prompt: Sequence[int], params: BeamSearchParams) -> list[Any]:
    """Give the sequences that a beam search finds when it is alone in a large pool."""
    return _solo_beams(tuple(prompt), params)


@lru_cache(maxsize=4096)
def _solo_beams(prompt: tuple[int, ...], params: BeamSearchParams) -> list[Any]:
    engine = ScriptedEngine(num_blocks=200)
    live = engine.request(engine.add_request(prompt, params))
    while live.request.live:
        engine.step()
    output = live.output()
    assert isinstance(output, BeamSearchOutput)
    return output.sequences
