"""The planner: sizes that can be checked by hand, shares that add up, names found or suggested."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from minipaged.commands import plan as command
from minipaged.engine.config import EngineConfig
from minipaged.errors import ConfigError, ModelError
from minipaged.lab.hardware import GIB, GPUS, find_gpu
from minipaged.lab.models import MODELS, find_model
from minipaged.lab.planner import Plan, plan
from minipaged.lab.simulator import simulate
from minipaged.lab.workloads import LabRequest
from minipaged.memory.kv_cache_manager import KVCacheManager
from minipaged.models import json_fields

# As the hub counts them in each repository's safetensors; OPT as its papers' tools print it.
PUBLISHED = {
    "opt-13b": 12_853_473_280,
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "mistral-7b": 7_248_023_552,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-8b": 8_190_735_360,
    "qwen3-0.6b": 596_049_920,
    "tinyllama-1.1b": 1_100_048_384,
    "smollm2-135m": 134_515_008,
}


def llama(**options: Any) -> Plan:
    options = {"max_len": 4096, "mean_len": 512, **options}
    return plan(MODELS["llama-2-13b"], GPUS["a100-80g"], **options)


# --- the catalogues


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_that_follow_from_the_shape_are_those_that_are_published(name: str) -> None:
    assert MODELS[name].num_parameters == PUBLISHED[name]


@pytest.mark.parametrize(("name", "billions"), [("opt-66b", 66), ("opt-175b", 175)])
def test_a_model_is_as_large_as_its_name(name: str, billions: int) -> None:
    assert MODELS[name].num_parameters == pytest.approx(billions * 1e9, rel=0.01)


def test_a_tokens_keys_and_values_are_those_of_the_paper() -> None:
    assert MODELS["opt-13b"].kv_bytes_per_token() == 800 * 1024
    assert MODELS["llama-3-8b"].kv_bytes_per_token() == 128 * 1024


def test_every_entry_has_a_source_and_numbers_that_make_sense() -> None:
    for model in MODELS.values():
        assert model.source
        assert model.num_heads % model.num_kv_heads == 0
    for gpu in GPUS.values():
        assert gpu.source
        assert gpu.bus < gpu.bandwidth < gpu.flops
        assert 16 * GIB <= gpu.memory <= 192 * GIB


@pytest.mark.parametrize("name", ["a100-80g", "A100-80GB", "a100_80gb", " A100 80G "])
def test_a_gpus_name_may_be_written_in_several_ways(name: str) -> None:
    assert find_gpu(name) is GPUS["a100-80g"]


@pytest.mark.parametrize("name", ["llama-2-13b", "Llama-2-13B", "meta-llama/Llama-2-13b-hf"])
def test_a_models_name_may_be_its_id_on_the_hub(name: str) -> None:
    assert find_model(name) is MODELS["llama-2-13b"]


def test_a_config_json_works_too(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "vocab_size": 32000,
        "hidden_size": 5120,
        "intermediate_size": 13824,
        "num_hidden_layers": 40,
        "num_attention_heads": 40,
        "max_position_embeddings": 4096,
    }
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    for name in (tmp_path, file):
        model = find_model(str(name))
        assert model.num_parameters == MODELS["llama-2-13b"].num_parameters
        assert (model.name, model.max_len) == (tmp_path.name, 4096)
    file.write_text("{", encoding="utf-8")
    with pytest.raises(ModelError, match="not valid JSON"):
        find_model(str(tmp_path))


def test_a_folder_goes_before_the_known_model_of_its_name(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "vocab_size": 32000,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": 512,
    }
    folder = tmp_path / "llama-2-13b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert find_model(str(folder)).num_layers == 3
    assert find_model(str(tmp_path / "llama-2-7b")).num_layers == 32  # there is no such folder


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="the system has no endless file")
def test_an_endless_config_json_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_fields, "MAX_BYTES", 1000)
    (tmp_path / "config.json").symlink_to("/dev/zero")
    with pytest.raises(ModelError, match="larger than 1000 bytes"):
        find_model(str(tmp_path / "config.json"))
    with pytest.raises(ModelError, match="larger than 1000 bytes"):
        find_model(str(tmp_path))


@pytest.mark.parametrize(
    ("find", "name", "words"),
    [
        (find_gpu, "a100", "did you mean a100-40g or a100-80g?"),
        (find_gpu, "h10", "did you mean h100?"),
        (find_gpu, "abacus", "choose one of t4, "),
        (find_model, "lama-2-13b", "did you mean llama-2-13b"),
        (find_model, "llama-2", "did you mean llama-2-7b or llama-2-13b or llama-2-70b?"),
        (find_model, "", "choose one of opt-6.7b, "),
        (find_model, "nowhere/config.json", "can't be read"),
        (find_model, "x" * 9000, "choose one of opt-6.7b, "),
        (find_gpu, "x" * 9000, "choose one of t4, "),
    ],
)
def test_an_unknown_name_is_told_with_what_there_is(find: Any, name: str, words: str) -> None:
    with pytest.raises((ConfigError, ModelError)) as caught:
        find(name)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


# --- the arithmetic


def test_the_pool_of_the_paper_comes_out() -> None:
    """Table 1: 12 GB and 15.7K slots for OPT-13B on an A100 of 40 GB; 9.7K for 66B on four."""
    small = plan(MODELS["opt-13b"], GPUS["a100-40g"])
    assert small.kv_bytes / GIB == pytest.approx(12, rel=0.01)
    assert small.num_slots == pytest.approx(15_700, rel=0.01)
    large = plan(MODELS["opt-66b"], GPUS["a100-40g"], num_gpus=4)
    assert large.num_slots == pytest.approx(9_700, rel=0.02)


def test_slabs_for_the_longest_text_hold_seven_requests_as_in_the_paper() -> None:
    assert plan(MODELS["opt-13b"], GPUS["a100-40g"]).allocators[0].num_requests == 7


def test_512_tokens_leave_87_5_percent_of_a_slab_for_4096_untouched() -> None:
    slabs = llama().allocators[0]
    assert (slabs.slots_per_request, slabs.unused) == (4096, 87.5)


@pytest.mark.parametrize("mean_len", [2, 17, 512, 513, 4096])
@pytest.mark.parametrize("block_size", [1, 16, 128])
def test_shares_add_up_and_paging_wastes_less_than_a_block_a_request(
    mean_len: int, block_size: int
) -> None:
    planned = llama(mean_len=mean_len, block_size=block_size)
    for row in planned.allocators:
        kinds = (row.token_states, row.reserved, row.internal, row.external)
        assert sum(kinds) == pytest.approx(100)
        assert min(kinds) >= -1e-9
    paged = planned.allocators[-1]
    most = 100 * paged.num_requests * block_size / planned.num_slots
    assert paged.reserved + paged.internal <= most
    assert paged.num_requests >= paged.num_at_end


@pytest.mark.parametrize("block_size", [1, 7, 16, 40, 41])
@pytest.mark.parametrize(("prompt", "length"), [(1, 2), (1, 41), (16, 40), (39, 40), (5, 33)])
def test_what_paging_holds_is_the_mean_over_every_step(
    prompt: int, length: int, block_size: int
) -> None:
    planned = llama(mean_len=length, mean_prompt=prompt, block_size=block_size)
    row, steps = planned.allocators[-1], range(prompt, length)
    blocks = [-(-num_tokens // block_size) for num_tokens in steps]
    internal = [max(each * block_size - length, 0) for each in blocks]
    held = block_size * sum(blocks) / len(steps)
    assert row.num_requests == int(planned.num_blocks * block_size / held)
    per_slot = row.num_requests / planned.num_slots / len(steps)
    assert row.token_states == pytest.approx(100 * per_slot * sum(steps))
    assert row.internal == pytest.approx(100 * per_slot * sum(internal))


def test_an_output_of_a_power_of_two_reserves_no_more_than_itself() -> None:
    _, pow2, oracle, _ = llama(mean_len=512, mean_prompt=256).allocators
    assert (pow2.slots_per_request, pow2.unused) == (512, 0)
    assert oracle.slots_per_request == 512


def test_a_text_longer_than_the_pool_never_starts() -> None:
    planned = plan(MODELS["mistral-7b"], GPUS["t4"], mean_len=30_000)
    assert planned.num_slots < 30_000
    assert [row.num_requests for row in planned.allocators] == [0] * 4
    assert [row.external for row in planned.allocators] == [100] * 4


def test_a_plan_takes_no_longer_for_a_huge_pool_or_text() -> None:
    small = replace(MODELS["llama-2-7b"], num_layers=1, num_kv_heads=1, head_dim=2)
    tiny = replace(small, max_len=2**28, num_parameters=1)
    planned = plan(tiny, GPUS["mi300x"], mean_len=2**28, block_size=1, num_gpus=2**16)
    assert planned.num_slots > 2**50
    assert planned.allocators[0].num_requests == planned.num_slots >> 28


def test_who_knows_more_wastes_less() -> None:
    by_max, pow2, oracle, paged = (row.num_requests for row in llama().allocators)
    assert by_max < pow2 < oracle < paged


def test_paging_holds_in_a_simulation_what_was_planned() -> None:
    planned = plan(MODELS["opt-13b"], GPUS["a100-40g"], mean_len=128, mean_prompt=32)
    num = planned.allocators[-1].num_requests
    workload = [LabRequest(96 * i / num, 32, 97) for i in range(3 * num)]  # evenly in their lives
    config = EngineConfig(max_num_seqs=1024)
    manager = KVCacheManager(planned.num_blocks, 16, enable_prefix_caching=False)
    result = simulate(workload, config, manager)
    assert max(result.timeline.num_running) == pytest.approx(num, rel=0.03)
    assert max(result.timeline.num_used_blocks) == pytest.approx(planned.num_blocks, rel=0.03)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_len": 8192}, "4096 tokens, not 8192"),
        ({"max_len": 1}, "not 1"),
        ({"mean_len": 5000}, r"max_len \(4096\), not 5000"),
        ({"mean_len": 0}, "not 0"),
        ({"mean_prompt": 512}, "from 1 to 511"),
        ({"mean_prompt": 0}, "from 1 to 511"),
        ({"block_size": 0}, "block_size"),
        ({"block_size": 9999}, "block_size"),
        ({"num_gpus": 0}, "num_gpus"),
        ({"num_gpus": 10**400}, "num_gpus must be from 1 to"),
    ],
)
def test_a_number_that_makes_no_sense_is_told_with_its_limits(
    options: dict[str, int], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        llama(**options)


def test_weights_that_do_not_fit_are_told_with_the_number_of_gpus_that_would() -> None:
    with pytest.raises(ConfigError, match=r"122\.4 GiB of weights, 1 x a100-40g .* take 4 "):
        plan(MODELS["opt-66b"], GPUS["a100-40g"])
    assert plan(MODELS["opt-66b"], GPUS["a100-40g"], num_gpus=4).num_blocks > 0


# --- what the terminal shows


def shown(planned: Plan, width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    console = Console(width=width, highlight=False, record=True)
    monkeypatch.setattr(command, "Console", lambda **_: console)
    command.show_plan(planned, as_json=False)
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_the_table_fits_into_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(llama(), 80, monkeypatch)
    assert max(map(len, lines)) <= 80
    assert "llama-2-13b on a100-80g, fp16" in lines
    (row,) = [line.split() for line in lines if line.startswith("Orca (Max)") and "%" in line]
    assert row[2:6] == ["15", "4,096", "87.5", "%"]
    bars = [line[15:] for line in lines if set(line[15:]) & set("█▓▒░") and "tokens" not in line]
    assert [len(bar) for bar in bars] == [60] * 4


def test_a_gpu_on_which_no_slab_fits_has_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plan(MODELS["opt-6.7b"], GPUS["t4"], mean_len=64)
    assert planned.num_slots < 2 * 2048
    lines = shown(plan(MODELS["mistral-7b"], GPUS["t4"]), 80, monkeypatch)
    (row,) = [line.split() for line in lines if line.startswith("Orca (Max)") and "%" in line]
    assert row[2] == "0"
    assert not any(line.startswith("Paging runs") for line in lines)
