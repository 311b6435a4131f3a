"""A kernel of the exercises runs in Triton's interpreter, and where Triton is not, just so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from minipaged.exercises import torch_tiles
from minipaged.exercises.chapter_5 import ex_5_2
from minipaged.exercises.checking import judge
from minipaged.exercises.files import solution
from minipaged.exercises.kernel_loop import chosen_cases
from minipaged.exercises.torch_tiles import OutOfBoundsError, language
from minipaged.memory.events import KernelAccess

HERE = Path(__file__).parent
WITHOUT_TRITON = f"""
import sys
sys.modules["triton"] = None
sys.path.insert(0, {str(HERE)!r})
from minipaged.exercises import tiles
from minipaged.exercises.chapter_5 import ex_5_2
from minipaged.exercises.checking import judge
from minipaged.exercises.files import load_attempt, solution, starter
from wrong_5 import KERNELS

assert not tiles.USES_TRITON
assert judge(ex_5_2, load_attempt(ex_5_2, solution(ex_5_2))).passed
assert judge(ex_5_2, load_attempt(ex_5_2, starter(ex_5_2))).status == "unsolved"
for name, (attempt, words) in KERNELS.items():
    verdict = judge(ex_5_2, attempt)
    assert verdict.status == "failed" and words in str(verdict), (name, str(verdict))
"""


def test_without_triton_the_same_exercise_gives_the_same_verdicts() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_TRITON], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


BROKEN_TRITON = """
from triton.runtime import interpreter
interpreter.InterpreterBuilder.create_dot = None
from minipaged.exercises import tiles
from minipaged.exercises.chapter_5 import ex_5_2
from minipaged.exercises.checking import judge
from minipaged.exercises.files import load_attempt, solution

assert not tiles.USES_TRITON
assert judge(ex_5_2, load_attempt(ex_5_2, solution(ex_5_2))).passed
"""


def test_with_a_triton_that_does_not_work_here_the_exercise_does() -> None:
    pytest.importorskip("triton")
    done = subprocess.run([sys.executable, "-c", BROKEN_TRITON], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_kernel_written_in_a_notebooks_cell_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton wants the source of a kernel; of a cell's, too."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setitem(
        sys.modules, "__main__", sys.modules["__main__"]
    )  # the shell takes its place
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    result = shell.run_cell(solution(ex_5_2).read_text(encoding="utf-8"))
    assert result.success
    assert judge(ex_5_2, shell.user_ns["paged_decode_inner"]).passed
    broken = solution(ex_5_2).read_text(encoding="utf-8").replace("tl.dot(q, ", "tl.dot(p, ")
    assert shell.run_cell(broken).success
    verdict = judge(ex_5_2, shell.user_ns["paged_decode_inner"])
    assert "name 'p' is not defined (line" in str(verdict)
    assert "scores = tl.dot(p, tl.trans(k)) * scale" in str(verdict)
    assert "__file__" not in shell.user_ns  # else multiprocessing would take it for the main file


def test_a_plain_function_will_do() -> None:
    names: dict[str, Any] = {}
    text = solution(ex_5_2).read_text(encoding="utf-8").replace("@jit", "")
    exec(compile(text, "plain", "exec"), names)
    assert judge(ex_5_2, names["paged_decode_inner"]).passed


def test_cases_have_every_kind_of_context_and_small_ones_first() -> None:
    cases = chosen_cases()
    assert len(str(cases[0])) == min(len(str(case)) for case in cases)
    ends = {len(c.context.scores) % c.context.block_size for c in cases if c.context.block_size > 1}
    assert {0, 1} <= ends
    assert {(c.num_kv_heads, c.kv_head, c.group) for c in cases} >= {(2, 1, 2), (2, 0, 2)}
    assert all(c.context.table != list(range(len(c.context.table))) for c in cases)


def run(kernel: Any, **arguments: Any) -> list[KernelAccess]:
    touched: list[KernelAccess] = []
    torch_tiles.run_kernel(kernel, arguments, touched)
    return touched


def test_what_stands_in_for_triton_tells_what_was_touched() -> None:
    def kernel(cache: Any, out: Any) -> None:
        slots = language.arange(0, 4)
        row = language.load(cache + (2 * 4 + slots) * 6 + 3, mask=slots < 3, other=7.0)
        language.store(out + slots, row, mask=slots != 1)

    cache, out = torch.arange(4 * 4 * 2 * 3.0).view(4, 4, 2, 3), torch.zeros(4)
    load, store = run(kernel, cache=cache, out=out)
    assert (load.blocks, load.slots, load.heads, load.num_bytes) == ((2,), (8, 9, 10), (1,), 12)
    assert (store.access, store.tensor, store.blocks) == ("store", "out", ())
    assert out.tolist() == [8 * 6 + 3, 0, 10 * 6 + 3, 7]


def test_what_stands_in_for_triton_stays_inside_of_tensors() -> None:
    def kernel(numbers: Any) -> None:
        language.load(numbers + language.arange(0, 4) - 1)

    with pytest.raises(
        OutOfBoundsError, match=r"a load outside of numbers \[3\]: elements -1 to 2"
    ):
        run(kernel, numbers=torch.zeros(3))


def test_entries_of_a_table_stay_integers() -> None:
    def kernel(table: Any, out: Any) -> None:
        block = language.load(table + 1, mask=True, other=0.0)
        language.store(out + block, block)

    out = torch.zeros(4, dtype=torch.int64)
    run(kernel, table=torch.tensor([9, 3]), out=out)
    assert out.tolist() == [0, 0, 0, 3]
