"""A run without a model, the same on every machine, in which every kind of event happens."""

from __future__ import annotations

from collections.abc import Sequence

from minipaged.memory.events import Finished, Preempted, Requested, Sampled
from minipaged.memory.kv_cache_manager import KVCacheManager
from minipaged.memory.trace import Trace, TraceHeader

WORDS = ["<s>", "The", " moon", " écrit", " ☾", " 🌊", "\n", " ⟨E2⟩", " sea", " is", " old", "."]
SYSTEM = [0, 1, 2, 3]


class ScriptedRun:
    """Plays the scheduler's and the model's part: token `t` is always followed by `t + 1`."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.manager = KVCacheManager(
            trace.header.num_blocks,
            trace.header.block_size,
            num_swap_blocks=trace.header.num_swap_blocks,
            notify=trace.observe,
            token_text=self.text_of,
        )
        self.tokens: dict[int, list[int]] = {}

    def text_of(self, token: int) -> str:
        return WORDS[token % len(WORDS)]

    def admit(self, seq: int, prompt: Sequence[int]) -> None:
        self.trace.observe(Requested(seq, f"request {seq}", len(prompt)))
        self.tokens[seq] = list(prompt)
        self.prefill(seq)

    def prefill(self, seq: int) -> None:
        tokens = self.tokens[seq]
        cached = self.manager.allocate(seq, tokens)
        self.manager.commit([(seq, tokens[cached:])])
        num_computed = len(tokens) - cached
        self.sample([seq])
        self.trace.end_step(num_computed, 0, f"prompt of seq {seq}")

    def sample(self, seqs: Sequence[int]) -> None:
        new = [self.tokens[seq][-1] + 1 + seq for seq in seqs]
        texts = tuple(map(self.text_of, new))
        self.trace.observe(Sampled(tuple(seqs), tuple(new), texts, tuple(-100 * n for n in new)))
        for seq, token in zip(seqs, new, strict=True):
            self.tokens[seq].append(token)

    def decode(self, *seqs: int) -> None:
        for seq in seqs:
            self.manager.append_slots(seq)
        self.manager.commit([(seq, self.tokens[seq][-1:]) for seq in seqs])
        self.sample(seqs)
        self.trace.end_step(0, len(seqs), "decode")

    def fork(self, parent: int, child: int) -> None:
        self.manager.fork(parent, child)
        self.tokens[child] = self.tokens[parent].copy()

    def preempt(self, how: str, *seqs: int) -> None:
        for seq in seqs:
            self.trace.observe(Preempted(seq, how, "others need room"))
        if how == "swap":
            self.manager.swap_out(seqs)
        for seq in seqs if how == "recompute" else ():
            self.manager.free(seq, "preempted")

    def finish(self, seq: int) -> None:
        self.trace.observe(Finished(seq, "stop"))
        self.manager.free(seq)


def scripted_trace(path: str | None = None) -> Trace:
    """Run a shared prefix, three samples, a swap, a recomputation and evictions to their end."""
    header = TraceHeader(
        block_size=4,
        num_blocks=8,
        num_swap_blocks=4,
        bytes_per_block=1024,
        model={"name": "scripted", "layers": 2, "heads": [4, 2], "tied": True, "chat": None},
        scheduler={"preemption": "swap", "max_num_seqs": 4},
        title="Every kind of event: ☾",
    )
    run = ScriptedRun(Trace(header, path))
    run.admit(0, [*SYSTEM, 4, 5])
    for child in (1, 2):
        run.fork(0, child)
    run.decode(0, 1, 2)
    run.admit(3, [*SYSTEM, 8, 9])
    run.decode(0, 1, 2, 3)
    run.preempt("swap", 0, 1, 2)
    run.admit(4, [*range(20, 32), 7, 7, 7])
    run.preempt("recompute", 3)
    run.prefill(3)
    run.finish(4)
    run.decode(3)
    run.admit(5, [*range(40, 56), 7])
    run.finish(5)
    run.finish(3)
    run.manager.swap_in([0, 1, 2])
    run.decode(0, 1, 2)
    for seq in (1, 0, 2):
        run.finish(seq)
    run.trace.end_step(0, 0, "the end")
    run.trace.close()
    return run.trace
