"""Doctests of kernels: as the tests run them; where Triton has no build, those without it."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything imports triton

if importlib.util.find_spec("triton") is None:
    plain = {"conftest.py", "__init__.py", "reference.py"}
    collect_ignore = [str(p) for p in Path(__file__).parent.rglob("*.py") if p.name not in plain]
