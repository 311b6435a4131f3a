"""The scene of `minipaged watch` contains what it claims, with several models."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from minipaged.commands.scene import SYSTEM, pool_for, scene
from minipaged.commands.watch import LiveSource
from minipaged.engine.config import EngineConfig
from minipaged.memory.replay import Replay
from minipaged.models.catalog import cache_folder, resolve
from minipaged.models.model_files import open_folder
from minipaged.models.tokenizer import load_tokenizer
from tests.tiny_models import save_model
from training.storyteller import stories

MODELS = ("storyteller", "tiny", "smollm2-q4")
SMOLLM2 = cache_folder() / "smollm2-q4"


@pytest.fixture(params=[(name, size) for name in MODELS for size in (2, 4, 8)])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> LiveSource:
    name, block_size = request.param
    if name == "storyteller":
        files = resolve(name, pytest.fail)
    elif name == "tiny":
        save_model(tmp_path, max_position_embeddings=512)
        files = open_folder(tmp_path, name)
    elif SMOLLM2.is_dir():
        files = open_folder(SMOLLM2, name)
    else:
        pytest.skip("smollm2-q4 was never fetched on this machine")
    tokenizer = load_tokenizer(files)
    arrivals = scene(tokenizer, block_size)
    config = EngineConfig(block_size=block_size, num_blocks=pool_for(arrivals, block_size))
    return LiveSource(files, config, arrivals, tokenizer)


def test_the_scene_shows_all(source: LiveSource) -> None:
    assert {event.kind for event in source.preview()} == {"request", "alloc"}
    kinds: Counter[str] = Counter()
    state = Replay(source.header.num_blocks, source.header.block_size)
    most_sharers = 0
    while (step := source.advance()) is not None:
        for event in step.events:
            kinds[event.kind] += 1
            state.apply(event)
            most_sharers = max(most_sharers, *state.ref_counts)
    assert source.ended
    wanted = {"hit", "fork", "share", "copy", "publish", "evict", "preempt", "finish", "release"}
    assert wanted <= kinds.keys(), wanted - kinds.keys()
    assert kinds["fork"] >= 2
    assert kinds["copy"] >= 2
    assert most_sharers >= 4
    assert state.snapshot() == source.engine.manager.snapshot()
    assert state.snapshot().num_used == 0


def test_its_system_prompt_is_that_of_the_built_in_model() -> None:
    assert SYSTEM == stories.SYSTEM
