"""The engine on the kernels, in Triton's interpreter, writes what it writes on the reference."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tiny_models import save_model

from minipaged import LLM, SamplingParams
from minipaged.engine import kv_cache, triton_attention
from minipaged.engine.attention import build_metadata, get_attention_backend
from minipaged.errors import ConfigError

needs_triton = pytest.mark.skipif(
    not triton_attention.has_triton(), reason="Triton has no build for this system"
)
Models = Callable[..., str]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """Random models with heads of 16, by family and window."""

    def save(family: str = "Llama", **changes: Any) -> str:
        folder = tmp_path_factory.mktemp(family) / "model"
        save_model(folder, family, hidden_size=64, **changes)
        return str(folder)

    torch.set_num_threads(1)
    return save


def tokens(folder: str, attention: str, **options: Any) -> list[list[int]]:
    """What an engine writes that has few blocks: it shares, copies, chunks and swaps."""
    sizes = {"block_size": 4, "num_blocks": 12, "max_num_batched_tokens": 8, "max_num_seqs": 4}
    swap = {"num_swap_blocks": 16, "preemption": "swap"}
    llm = LLM(folder, attention=attention, **{**sizes, **swap, **options})
    params = [
        SamplingParams(n=2, temperature=0.9, seed=5, max_tokens=7, ignore_eos=True),
        SamplingParams(temperature=0, max_tokens=7, ignore_eos=True),
        SamplingParams(temperature=0, max_tokens=3, ignore_eos=True),
    ]
    prompts: list[Any] = [list(range(20, 31)), list(range(20, 36)), [7]]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    return [list(text.token_ids) for output in outputs for text in output.outputs]


@needs_triton
@pytest.mark.interpret
@pytest.mark.parametrize(("family", "changes"), [("Llama", {}), ("Mistral", {"sliding_window": 6})])
def test_the_kernels_write_the_same_tokens(
    model: Models, family: str, changes: dict[str, Any]
) -> None:
    folder = model(family, **changes)
    assert tokens(folder, "triton-interpret") == tokens(folder, "reference")


@needs_triton
@pytest.mark.interpret
def test_bf16_runs_through_the_interpreter(model: Models) -> None:
    llm = LLM(model(), attention="triton-interpret", dtype="bfloat16", block_size=4, num_blocks=16)
    outputs = llm.generate([[5, 6, 7]], SamplingParams(max_tokens=2, ignore_eos=True))
    assert len(outputs[0].outputs[0].token_ids) == 2


@needs_triton
@pytest.mark.interpret
def test_many_splits_and_large_blocks_decode_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU's many processors, or blocks beyond a tile, would choose."""
    from minipaged_kernels import paged_decode_split_kv

    metadata = build_metadata([1, 1], [600, 5], [[1], [0]], [599 + 1024, 4])
    cache = torch.randn(1, 2, 2, 1024, 1, 16)
    query, key, value = torch.randn(3, 2, 1, 16)
    expected = attend("reference", metadata, cache, query, key, value)
    for processors in (1, 16):
        monkeypatch.setattr(paged_decode_split_kv, "num_processors", lambda _, n=processors: n)
        output = attend("triton-interpret", metadata, cache, query, key, value)
        assert torch.allclose(output, expected, atol=5e-6)


def attend(name: str, metadata: Any, cache: torch.Tensor, *heads: torch.Tensor) -> torch.Tensor:
    plan = get_attention_backend(name, "cpu").plan(metadata, cache, heads[0].shape[1], None)
    return plan(*heads, cache[0])


@needs_triton
def test_a_gpu_gets_the_kernels_unless_they_can_not_read_its_cache() -> None:
    backend = get_attention_backend("auto", "cuda")
    assert isinstance(backend, triton_attention.TritonBackend)
    metadata = build_metadata([1], [1], [[0]], [0])
    odd = torch.zeros(1, 2, 1, 4, 1, 20)
    heads = torch.randn(3, 1, 1, 20)
    output = backend.plan(metadata, odd, 1, None)(*heads, odd[0])
    assert torch.allclose(output, heads[2])
    with pytest.raises(ConfigError, match='multiple of 16, not 20: choose attention="sdpa"'):
        get_attention_backend("triton", "cuda").plan(metadata, odd, 1, None)


@needs_triton
def test_kernels_that_would_be_compiled_need_a_gpu() -> None:
    with pytest.raises(ConfigError, match='"triton" needs a GPU, not cpu; "triton-interpret"'):
        get_attention_backend("triton", "cpu")
    with pytest.raises(ConfigError, match="runs on the CPU, not on cuda"):
        get_attention_backend("triton-interpret", "cuda")


@pytest.mark.parametrize("name", ["triton", "triton-interpret"])
def test_without_triton_there_is_one_clear_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(ConfigError, match=f'"{name}" needs Triton, which is not installed'):
        get_attention_backend(name, "cpu")
    assert not isinstance(get_attention_backend("auto", "cuda"), triton_attention.TritonBackend)


def test_engine_and_copies_load_without_triton() -> None:
    code = "import sys; sys.modules['triton'] = None; import minipaged.engine.model_runner"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@needs_triton
def test_the_interpreter_is_asked_for_before_python_starts() -> None:
    code = (
        "from minipaged.engine.attention import get_attention_backend\n"
        "try:\n    get_attention_backend('triton-interpret', 'cpu')\n"
        "except ValueError as error:\n    print(error)"
    )
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert "needs TRITON_INTERPRET=1 in the environment before triton is imported" in done.stdout
    assert done.stdout.count("\n") == 1, done.stdout + done.stderr


def test_swaps_are_batched() -> None:
    cache, host = torch.randn(2, 2, 3, 2, 4, 1, 16)
    expected = cache[:, [2, 0]].clone()
    kv_cache.swap_blocks(cache[None], host[None], [(2, 1), (0, 2)])
    assert torch.equal(host[:, [1, 2]], expected)
