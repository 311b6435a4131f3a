"""Scripted runs without a model, for tests of the views: what happens here is known exactly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from minipaged.memory.events import Finished, Preempted, Requested, Sampled
from minipaged.memory.kv_cache_manager import KVCacheManager
from minipaged.memory.trace import Trace, TraceHeader


def words(text: str) -> list[str]:
    return text.split(" ")


SYSTEM = ["You", " are", " a", " poet", ".", " Be", " brief", "."]
STORIES = {
    0: words("The moon is a lantern that nobody has to light ."),
    1: words("A white boat sails through the night , alone ."),
    2: words("Ask the tide , it knows her name ."),
    3: words("Salt and wind and old songs without an end ."),
    4: words("Stars are slow rain on a dark roof ."),
}


class Script:
    """Plays the scheduler's and the model's part, and records a trace."""

    def __init__(self, num_blocks: int, block_size: int = 4, num_swap_blocks: int = 0) -> None:
        self.trace = Trace(
            TraceHeader(
                block_size, num_blocks, num_swap_blocks, model={"name": "scripted"}, title="a scene"
            )
        )
        self.words: list[str] = []
        self.manager = KVCacheManager(
            num_blocks,
            block_size,
            num_swap_blocks=num_swap_blocks,
            notify=self.trace.observe,
            token_text=lambda token: self.words[token],
        )
        self.tokens: dict[int, list[int]] = {}
        self.prompt_length: dict[int, int] = {}
        self.running: list[int] = []
        self.waiting_for_fork: dict[int, list[int]] = defaultdict(list)

    def ids(self, words: Sequence[str]) -> list[int]:
        """Give each word a number, the same one for the same word."""
        for word in words:
            if word not in self.words:
                self.words.append(word)
        return [self.words.index(word) for word in words]

    def request(self, seq: int, words: Sequence[str], name: str = "", samples: int = 1) -> None:
        self.tokens[seq] = self.ids(words)
        self.prompt_length[seq] = len(words)
        self.waiting_for_fork[seq] = list(range(seq + 1, seq + samples))
        self.trace.observe(Requested(seq, name, len(words)))

    def admit(self, seq: int) -> None:
        self.manager.allocate(seq, self.tokens[seq])
        self.running.append(seq)

    def step(self, note: str = "") -> None:
        """Compute the missing tokens of everyone who runs, then sample one more for each."""
        chunks = []
        for seq in self.running:
            missing = self.tokens[seq][self.manager.num_tokens(seq) :]
            self.manager.append_slots(seq, len(missing))
            chunks.append((seq, missing))
        self.manager.commit(chunks)
        for seq in list(self.running):
            for child in self.waiting_for_fork.pop(seq, []):
                self._fork(seq, child)
        self._sample()
        prefill = sum(len(tokens) for _, tokens in chunks if len(tokens) > 1)
        decode = sum(len(tokens) == 1 for _, tokens in chunks)
        self.trace.end_step(prefill, decode, note)

    def preempt(self, seq: int, how: str, why: str) -> None:
        self.running.remove(seq)
        self.trace.observe(Preempted(seq, how, why))
        if how == "swap":
            self.manager.swap_out([seq])
        else:
            self.manager.free(seq, "preempted")

    def swap_in(self, seq: int) -> None:
        self.manager.swap_in([seq])
        self.running.append(seq)

    def finish(self, seq: int, why: str = "length") -> None:
        self.running.remove(seq)
        self.trace.observe(Finished(seq, why))
        self.manager.free(seq)

    def _fork(self, parent: int, child: int) -> None:
        self.manager.fork(parent, child)
        self.tokens[child] = list(self.tokens[parent])
        self.prompt_length[child] = self.prompt_length[parent]
        self.running.append(child)

    def _sample(self) -> None:
        texts = []
        for seq in self.running:
            number = len(self.tokens[seq]) - self.prompt_length[seq]
            story = STORIES[seq % len(STORIES)]
            texts.append(" " + story[number % len(story)])
        tokens = self.ids(texts)
        for seq, token in zip(self.running, tokens, strict=True):
            self.tokens[seq].append(token)
        millinats = tuple(-100 * (seq + 1) for seq in self.running)
        self.trace.observe(Sampled(tuple(self.running), tuple(tokens), tuple(texts), millinats))


def everything() -> Trace:
    """A shared prefix, a fork with copy-on-write, eviction, both preemptions, and the end."""
    script = Script(num_blocks=16, num_swap_blocks=6)
    script.request(0, [*SYSTEM, "Tell", " me", " of", " the", " moon", "."], "moon", samples=3)
    script.admit(0)
    script.step()
    script.request(3, [*SYSTEM, "And", " the", " sea", "?"], "sea")
    script.admit(3)
    for _ in range(3):
        script.step()
    script.request(4, [*SYSTEM, "And", " the", " stars", "?"], "stars")
    script.step()
    script.finish(2, "stop")
    script.admit(4)
    script.step()
    script.step()
    script.preempt(4, "recompute", "seq 0 needs 1 blocks, 0 free")
    script.step()
    script.preempt(3, "swap", "seq 0, 1 needs 2 blocks, 1 free")
    script.step()
    script.step()
    script.finish(1)
    script.step()
    script.swap_in(3)
    script.step()
    script.finish(0)
    script.admit(4)
    for _ in range(3):
        script.step()
    script.finish(3)
    script.finish(4, "stop")
    script.trace.end_step(0, 0, "done")
    kinds = {event.kind for step in script.trace.steps for event in step.events}
    claimed = {"hit", "fork", "share", "copy", "evict", "preempt", "swap_out", "swap_in", "release"}
    assert claimed <= kinds, f"the scene lacks {claimed - kinds}"
    hows = {e.how for s in script.trace.steps for e in s.events if isinstance(e, Preempted)}
    assert hows == {"recompute", "swap"}
    return script.trace
