from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import transformers
from random_models import RandomModel, Variant
from ties import Ties
from watched_engine import WatchedLLM

from minipaged import LLM


@pytest.fixture(scope="session", autouse=True)
def _quiet_and_on_one_thread() -> None:
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()


@pytest.fixture(scope="session")
def random_model(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[Variant], RandomModel]:
    """Models by variant, each made once."""
    models: dict[Variant, RandomModel] = {}

    def get(variant: Variant) -> RandomModel:
        if variant not in models:
            models[variant] = RandomModel(variant, tmp_path_factory.mktemp("model"))
        return models[variant]

    return get


@pytest.fixture(scope="module")
def ties() -> Iterator[Ties]:
    """Counts the excuses of a module's tests; they must be few."""
    ties = Ties()
    yield ties
    ties.check_few_excused()


@pytest.fixture
def watched(random_model: Callable[[Variant], RandomModel]) -> Iterator[WatchedLLM]:
    """A small LLM. When the test ends every block is free, and its trace replays."""
    watched = WatchedLLM(
        random_model(Variant(ends=True)).folder,
        block_size=4,
        num_blocks=48,
        max_num_seqs=8,
        max_model_len=100,
    )
    yield watched
    watched.check_idle()


@pytest.fixture
def llm(watched: WatchedLLM) -> LLM:
    return watched.llm
