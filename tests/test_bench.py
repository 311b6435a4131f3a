"""`minipaged bench` on a tiny model: its figures add up, and it leaves the engine as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from minipaged.bench.ours import linears_alone, make_bench, measure
from minipaged.bench.peers import continuous_generate, load_peer, padded_generate
from minipaged.bench.stopwatch import stopwatches
from minipaged.bench.workload import make_workload
from minipaged.commands.bench import bench as bench_command
from minipaged.commands.bench import summarize
from minipaged.errors import ConfigError, MinipagedError
from minipaged.models.model_files import ModelFiles, open_folder
from tests.tiny_models import save_model

OPTIONS: dict[str, Any] = {"num_requests": 5, "new_tokens": 6}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("model")
    save_model(folder, max_position_embeddings=512)
    return open_folder(folder, "tiny")


def test_the_shares_of_a_run_make_a_whole(files: ModelFiles) -> None:
    workload = make_workload(files.config.vocab_size, **OPTIONS)
    figures = measure(make_bench(files, "float32", workload), workload, repeats=2)
    assert [len(figures[k]) for k in ("seconds", "traced_seconds", "linear_seconds")] == [2, 2, 2]
    assert set(figures["shares"]) == {"linear", "attention", "sampling", "other"}
    assert all(0 < share < 1 for share in figures["shares"].values())
    assert sum(figures["shares"].values()) == pytest.approx(1)
    report = summarize({"minipaged": [{**figures, "peak_bytes": 7}]}, files, "float32", OPTIONS)
    assert report["new_tokens"] == 30
    assert report["ratios"] == {"minipaged": 1.0}
    rates = sorted(30 / seconds for seconds in figures["seconds"])
    assert rates[0] <= report["tokens_per_second"]["minipaged"] <= rates[1]


def test_every_linear_layer_and_every_step_is_timed(files: ModelFiles) -> None:
    workload = make_workload(files.config.vocab_size, **OPTIONS)
    bench = make_bench(files, "float32", workload)
    layer = bench.runner.model.layers[0].mlp
    before = layer.gate_up_proj, bench.runner.model.attention
    with stopwatches(bench.runner) as parts:
        bench.run(workload)
    assert (layer.gate_up_proj, bench.runner.model.attention) == before
    assert "sample" not in vars(bench.runner)
    assert len(parts.linears) == 4 * files.config.num_layers + 1
    (sampler,) = parts.sampler
    assert {len(watch.shapes) for watch in parts.linears} == {len(sampler.shapes)} == {6}
    tokens = sum(shape[0] for shape in parts.linears[-1].shapes)
    assert tokens == sum(map(len, workload.prompts)) + 5 * 5
    assert linears_alone(parts.linears, bench.runner) > 0


@pytest.mark.parametrize(
    "make", [padded_generate, pytest.param(continuous_generate, marks=pytest.mark.slow)]
)
def test_peers_generate_as_many_tokens(files: ModelFiles, make: Any) -> None:
    pytest.importorskip("transformers")
    workload = make_workload(files.config.vocab_size, num_requests=2, new_tokens=3)
    assert make(load_peer(files, "float32"))(workload) > 0


@pytest.mark.parametrize(
    ("against", "rounds", "options", "words"),
    [
        ("vllm", 1, OPTIONS, "transformers"),
        (None, 0, OPTIONS, "rounds"),
        (None, 1, {**OPTIONS, "num_requests": 0}, "0, 6"),
        (None, 1, {**OPTIONS, "new_tokens": 0}, "5, 0"),
    ],
)
def test_what_makes_no_sense_is_told_at_once(
    files: ModelFiles, against: str | None, rounds: int, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        bench_command(str(files.folder), "float32", against, rounds, options, as_json=True)


def test_a_contender_that_fails_says_why(files: ModelFiles) -> None:
    with pytest.raises(MinipagedError, match=r"^minipaged failed: dtype is .*int8"):
        bench_command(str(files.folder), "int8", None, 1, OPTIONS, as_json=True)
