"""A JupyterLab of the tests' own, and a notebook in it that a Chromium looks at.

The server listens on this machine alone, keeps all it writes in a folder that goes away, and looks
for no news. It ends with the `with` statement, and its kernels with it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from chromium import Chromium

SETTINGS = {  # looking for news would ask outside
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "apputils-extension/themes": {"adaptive-theme": False},
}
FLAGS = (
    *("--no-browser", "--ServerApp.ip=127.0.0.1", "--ServerApp.allow_root=True"),
    "--LabApp.expose_app_in_browser=True",
    "--LabApp.extension_manager=readonly",
    "--LabApp.news_url=",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    "--LanguageServerManager.autodetect=False",
    # Tests that are killed end no server: then it ends its kernels and itself.
    "--MappingKernelManager.cull_idle_timeout=300",
    "--ServerApp.shutdown_no_activity_timeout=300",
)
PANEL = "[...jupyterapp.shell.widgets('main')].find(widget => widget.sessionContext)"


class JupyterLab:
    """A running server; notebooks lie in its folder `root`."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        home = Path(self._folder.name)
        self.root = home / "notebooks"
        self.root.mkdir()
        for name, values in SETTINGS.items():
            path = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(values), "utf-8")
        self._log = (home / "log").open("wb")
        self._process = subprocess.Popen(
            [*(sys.executable, "-m", "jupyterlab"), *FLAGS, f"--ServerApp.port={_free_port()}"],
            cwd=self.root,
            env={**os.environ, **_folders(home)},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        try:
            self._server = self._wait_for_server(home / "runtime")
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __enter__(self) -> JupyterLab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
        self._folder.cleanup()

    def write(self, name: str, cells: Sequence[str]) -> Path:
        """Write a notebook with these cells of code."""
        path = self.root / f"{name}.ipynb"
        rows = [
            {"cell_type": "code", "id": f"cell-{number}", "source": source, "metadata": {},
             "execution_count": None, "outputs": []}
            for number, source in enumerate(cells)
        ]  # fmt: skip
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        notebook = {"cells": rows, "metadata": {"kernelspec": kernel}}
        path.write_text(json.dumps({**notebook, "nbformat": 4, "nbformat_minor": 5}), "utf-8")
        return path

    def address(self, name: str) -> str:
        """Give where a notebook is found."""
        url, token = self._server["url"], self._server["token"]
        return f"{url}lab/tree/{name}.ipynb?token={token}&reset"

    def log(self) -> str:
        """Give what the server said so far."""
        return Path(self._log.name).read_text("utf-8", errors="replace")

    def _wait_for_server(self, runtime: Path) -> dict[str, Any]:
        """Wait for the file in which a server that is ready tells its address."""
        end = time.monotonic() + 60
        while time.monotonic() < end and self._process.poll() is None:
            for path in runtime.glob("jpserver-*.json"):
                server: dict[str, Any] = json.loads(path.read_text("utf-8") or "{}")
                if server:
                    return server
            time.sleep(0.1)
        raise RuntimeError(f"JupyterLab does not start:\n{self.log()}")


class Notebook:
    """A notebook that is open in a browser, with its kernel."""

    def __init__(self, browser: Chromium, lab: JupyterLab, name: str) -> None:
        self.browser = browser
        self._address = lab.address(name)
        self.open()

    def open(self) -> None:
        """Load it, or load it again, and wait until its kernel answers."""
        self.browser.open(self._address)
        self.browser.wait_until("window.jupyterapp", 60)
        self.browser.evaluate("jupyterapp.restored.then(() => null)")
        self.browser.wait_until(PANEL, 60)
        self.browser.evaluate(
            f"""Promise.all([{PANEL}.context.ready, {PANEL}.sessionContext.ready])
                .then(() => {PANEL}.sessionContext.session.kernel.info)
                .then(() => jupyterapp.shell.activateById({PANEL}.id))"""
        )

    def run_all(self) -> None:
        """Run all cells; does not wait for their ends."""
        self.browser.evaluate("void jupyterapp.commands.execute('notebook:run-all-cells')")

    def run_cell(self, index: int) -> None:
        """Run a cell; does not wait for its end."""
        self.choose_cell(index)
        self.browser.evaluate("void jupyterapp.commands.execute('notebook:run-cell')")

    def interrupt(self) -> None:
        """Interrupt the kernel."""
        self.browser.evaluate(f"{PANEL}.sessionContext.session.kernel.interrupt()")

    def choose_cell(self, index: int) -> None:
        """Choose a cell; it gets the keys."""
        self.browser.evaluate(f"{PANEL}.content.activeCellIndex = {index}")

    def save(self) -> None:
        """Write the notebook to its file."""
        self.browser.evaluate(f"{PANEL}.context.save()")

    def wait_for_cell(self, index: int, seconds: int = 60) -> None:
        """Wait until a cell has run to its end."""
        state = f"{PANEL}.content.widgets[{index}].model"
        self.browser.wait_until(
            f"{state}.executionState === 'idle' && {state}.executionCount", seconds
        )

    def value(self, expression: str) -> str:
        """Give the `repr` of a Python expression in the kernel, when the kernel is idle."""
        request = {"code": "", "store_history": False, "user_expressions": {"value": expression}}
        kernel = f"{PANEL}.sessionContext.session.kernel"
        reply = self.browser.evaluate(
            f"{kernel}.requestExecute({json.dumps(request)}).done.then(reply => reply.content)"
        )
        got = reply["user_expressions"]["value"]
        assert got["status"] == "ok", got
        return str(got["data"]["text/plain"])

    @property
    def num_cells(self) -> int:
        """How many cells there are."""
        return int(self.browser.evaluate(f"{PANEL}.content.widgets.length"))


def _folders(home: Path) -> dict[str, str]:
    """Where Jupyter reads and writes, so that nobody's own settings count."""
    folders = {
        f"{name}_DIR": str(home / name.split("_")[-1].lower())
        for name in (
            *("JUPYTER_CONFIG", "JUPYTER_DATA", "JUPYTER_RUNTIME"),
            *("JUPYTERLAB_SETTINGS", "JUPYTERLAB_WORKSPACES"),
        )
    }
    return {**folders, "IPYTHONDIR": str(home / "ipython")}


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
