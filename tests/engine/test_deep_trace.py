"""Deep traces: the recorded shares equal transformers' attention weights, summed by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from random_models import WINDOW, RandomModel, Variant, random_prompt

from minipaged import LLM, BeamSearchParams, DeepTrace, SamplingParams, Trace
from minipaged.engine.deep_trace import to_permille
from minipaged.memory.events import MEAN_OF_HEADS, Attended, Event, Forked, PrefixHit
from minipaged.memory.integrity import check_trace
from minipaged.memory.replay import Replay

BLOCK_SIZE = 4
LAYERS, HEADS = (0, 1), 4


def deep_llm(model: RandomModel, trace: DeepTrace | str, **options) -> LLM:
    options = {"num_blocks": 64, "block_size": BLOCK_SIZE, **options}
    return LLM(str(model.folder), trace=trace, max_num_batched_tokens=64, **options)


def with_states(trace: Trace) -> Iterator[tuple[Event, Replay]]:
    """Every event, and the state behind it."""
    header = trace.header
    state = Replay(header.num_blocks, header.block_size, header.num_swap_blocks)
    for step in trace.steps:
        for event in step.events:
            state.apply(event)
            yield event, state


def tokens_of(state: Replay, seq: int) -> list[int]:
    """What lies in a sequence's blocks."""
    table, count = state.tables[seq], state.num_tokens[seq]
    return [token.id for block in table for token in state.contents[block]][:count]


class Weights:
    """Attention weights of transformers' model, each text worked out once."""

    def __init__(self, model: RandomModel) -> None:
        self.model = model.model
        self.model.set_attn_implementation("eager")
        self._known: dict[tuple[int, ...], list[torch.Tensor]] = {}

    def by_block(self, token_ids: list[int], layer: int, head: int) -> list[float]:
        """Shares of the last token's attention, in 1/1000 a block."""
        text = tuple(token_ids)
        if text not in self._known:
            with torch.no_grad():
                output = self.model(torch.tensor([token_ids]), output_attentions=True)
            self._known[text] = [weights[0, :, -1] for weights in output.attentions]
        heads = self._known[text][layer]
        row = heads.mean(dim=0) if head == MEAN_OF_HEADS else heads[head]
        return [1000 * float(part.sum()) for part in row.split(BLOCK_SIZE)]


def check_against_transformers(trace: Trace, model: RandomModel) -> int:
    """Compare every event; give how many there were."""
    weights, count = Weights(model), 0
    for event, state in with_states(trace):
        if isinstance(event, Attended):
            count += 1
            assert sum(event.permille) == 1000
            want = weights.by_block(tokens_of(state, event.seq), event.layer, event.head)
            assert event.permille == pytest.approx(want, abs=2)
    return count


def kinds(trace: Trace) -> set[type[Event]]:
    return {type(event) for step in trace.steps for event in step.events}


@pytest.mark.parametrize(
    "variant", [Variant(), Variant("Mistral", window=True), Variant("Qwen3", kv_heads=1)], ids=str
)
@pytest.mark.parametrize("heads", [(), range(HEADS)], ids=["mean", "each head"])
def test_shares_are_those_of_transformers(
    random_model: Callable[[Variant], RandomModel], variant: Variant, heads: tuple[int, ...]
) -> None:
    model = random_model(variant)
    with deep_llm(model, DeepTrace(LAYERS, heads)) as llm:
        prompts = [random_prompt(21), random_prompt(70), [*random_prompt(21)[:13], 7, 8, 9]]
        params = SamplingParams(n=2, seed=1, max_tokens=9, ignore_eos=True)
        llm.generate(prompts, params, use_tqdm=False)  # 70 tokens are more than a step takes
        llm.generate(prompts[0], params, use_tqdm=False)
    assert {PrefixHit, Forked} <= kinds(llm.trace)
    assert check_against_transformers(llm.trace, model) > 50 * len(LAYERS) * max(len(heads), 1)


def test_beams_are_recorded_too(random_model: Callable[[Variant], RandomModel]) -> None:
    model = random_model(Variant())
    with deep_llm(model, DeepTrace()) as llm:
        llm.beam_search([random_prompt(9)], BeamSearchParams(beam_width=3, max_tokens=7))
    assert check_against_transformers(llm.trace, model) > 15


def test_deep_means_the_mean_of_the_last_layer(
    random_model: Callable[[Variant], RandomModel], tmp_path: Path
) -> None:
    model = random_model(Variant("Mistral", window=True))
    with deep_llm(model, "deep") as llm:
        llm.generate([random_prompt(30)], SamplingParams(max_tokens=3), use_tqdm=False)
    events = [e for step in llm.trace.steps for e in step.events if isinstance(e, Attended)]
    assert {(event.layer, event.head) for event in events} == {(1, MEAN_OF_HEADS)}
    assert sum(events[0].permille[: -WINDOW // BLOCK_SIZE - 1]) == 0  # behind the window
    llm.trace.save(tmp_path / "deep.jsonl.gz")
    check_trace(tmp_path / "deep.jsonl.gz")


def test_a_deep_trace_writes_the_same_text_and_a_file(
    random_model: Callable[[Variant], RandomModel], tmp_path: Path
) -> None:
    model, path = random_model(Variant()), tmp_path / "run.jsonl"
    texts = []
    for trace in (False, DeepTrace(path=path)):
        with deep_llm(model, trace) as llm:
            (output,) = llm.generate(
                [random_prompt(12)], SamplingParams(seed=3, max_tokens=12), use_tqdm=False
            )
            texts.append(output.outputs[0].token_ids)
    assert texts[0] == texts[1]
    assert Attended in kinds(Trace.load(path))


def test_without_a_deep_trace_nothing_stands_before_the_backend(
    random_model: Callable[[Variant], RandomModel],
) -> None:
    with deep_llm(random_model(Variant()), True) as llm:
        llm.generate([random_prompt(5)], SamplingParams(max_tokens=2), use_tqdm=False)
        assert type(llm.engine.runner.model.attention).__name__ == "GatherBackend"
    assert Attended not in kinds(llm.trace)


def test_rounding_keeps_the_sum() -> None:
    assert to_permille([0.9996, 0.0004, 0.0]) == [1000, 0, 0]
    assert to_permille([0.2, 0.2, 0.2]) == [334, 333, 333]
    shares = torch.rand(97, generator=torch.Generator().manual_seed(1)).tolist()
    rounded = to_permille(shares)
    assert sum(rounded) == 1000
    assert rounded == pytest.approx([1000 * s / sum(shares) for s in shares], abs=1)
