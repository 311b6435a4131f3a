"""`minipaged learn` for real: a JupyterLab on the student's copy, on this machine alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.notebook


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """Run the command, and give its process and what its server tells of itself."""
    folders = {f"JUPYTER_{n}_DIR": str(tmp_path / n) for n in ("CONFIG", "DATA", "RUNTIME")}
    env = {**os.environ, **folders, "BROWSER": "true", "IPYTHONDIR": str(tmp_path / "ipython")}
    command = [sys.executable, "-m", "minipaged", "learn", str(tmp_path / "mine")]
    if os.geteuid() == 0:  # JupyterLab refuses root unless it is told
        (tmp_path / "CONFIG").mkdir()
        settings = {"ServerApp": {"allow_root": True}}
        (tmp_path / "CONFIG" / "jupyter_server_config.json").write_text(json.dumps(settings))
    process = subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process, wait_for_server(process, tmp_path / "RUNTIME")
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def wait_for_server(process: subprocess.Popen[bytes], runtime: Path) -> dict[str, Any]:
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        for path in runtime.glob("jpserver-*.json"):
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8") or "{}")
            if found:
                return found
        time.sleep(0.1)
    raise AssertionError(f"no server; exit status {process.poll()}")


@pytest.mark.skipif(sys.platform == "win32", reason="ends a group of processes")
def test_jupyterlab_opens_on_the_copy(
    server: tuple[subprocess.Popen[bytes], dict[str, Any]], tmp_path: Path
) -> None:
    process, told = server
    assert told["url"].startswith(("http://127.0.0.1:", "http://localhost:"))
    assert Path(told["root_dir"]) == tmp_path / "mine"
    request = urllib.request.Request(
        f"{told['url']}api/contents", headers={"Authorization": f"token {told['token']}"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        names = {entry["name"] for entry in json.load(answer)["content"]}
    assert {"1_the_kv_cache.ipynb", "exercises", "README.md"} <= names
    assert process.poll() is None
