"""A headless Chromium that tests talk to through two pipes, in its DevTools protocol: no packages.

It can reach nothing but this machine: names resolve to nowhere. What a page logs or throws is kept
in `complaints`, what it asks for in `requests`. Where there is no browser, tests are skipped; with
MINIPAGED_REQUIRE_BROWSER set, as in CI, they fail.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
IS_REQUIRED = bool(os.environ.get("MINIPAGED_REQUIRE_BROWSER"))
if IS_REQUIRED and CHROMIUM is None:
    raise RuntimeError(f"no browser is installed: {', '.join(NAMES)}")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--disable-dev-shm-usage",  # containers have little of it
    *("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--remote-debugging-pipe"),
)

PATIENCE = 100  # seconds
_NAMED = ("Tab", "Enter", "Escape", " ", "End", "Home")
_ARROWS = (f"Arrow{way}" for way in ("Left", "Up", "Right", "Down"))
KEY_CODES = {  # JupyterLab looks at these alone
    **dict(zip((*_NAMED, *_ARROWS), (9, 13, 27, 32, 35, 36, 37, 38, 39, 40), strict=True)),
    **{sign: ord(sign.upper()) for sign in "abcdefghijklmnopqrstuvwxyz0123456789"},
}

# Chromium reads commands from 3 and answers on 4.
_START = """
import fcntl, os, sys
to_read, to_write = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3])
os.dup2(to_read, 3), os.dup2(to_write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Chromium:
    """One page; use it in a `with` statement, which ends the browser."""

    def __init__(self, width: int = 1280, height: int = 800, *flags: str) -> None:
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        where = (f"--user-data-dir={self._folder.name}", f"--window-size={width},{height}")
        start = (sys.executable, "-c", _START, str(to_read), str(to_write))
        self._process = subprocess.Popen(
            [*start, str(CHROMIUM), *FLAGS, *where, *flags, "about:blank"],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._rest, self._number, self._session = b"", 0, ""
        self.complaints: list[str] = []
        self.requests: list[str] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(10)
        os.close(self._to)
        os.close(self._from)
        self._folder.cleanup()

    def open(self, url: str) -> None:
        """Load a page and wait until it is drawn."""
        self.call("Page.navigate", url=url)
        self._wait_for("Page.loadEventFired")
        self.settle()

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        frame = "new Promise(done => requestAnimationFrame(() => setTimeout(done, 30)))"
        self.evaluate(frame)

    def evaluate(self, code: str) -> Any:
        """Give the value of an expression, of a promise when it is kept."""
        got = self.call("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in got, got["exceptionDetails"]
        return got["result"].get("value")

    def wait_until(self, condition: str, seconds: int = 20) -> None:
        """Wait until an expression is true."""
        code = f"""new Promise((done, fail) => {{
            const end = Date.now() + {seconds * 1000};
            const look = () => {{
                if ({condition}) done();
                else if (Date.now() > end) fail(new Error("waited in vain"));
                else setTimeout(look, 20);
            }};
            look();
        }})"""
        self.evaluate(code)

    def press(self, *keys: str) -> None:
        """Press keys, one after the other; `Shift+x` holds Shift."""
        for key in keys:
            name = key.removeprefix("Shift+")
            text = {"text": name} if len(name) == 1 else {}
            what = {"key": name, "modifiers": 8 if key != name else 0, **text}
            what["windowsVirtualKeyCode"] = KEY_CODES.get(name, 0)
            if name == "Enter":
                what["text"] = "\r"
            self.call("Input.dispatchKeyEvent", type="keyDown", **what)
            self.call("Input.dispatchKeyEvent", type="keyUp", **what)
        self.settle()

    def type(self, text: str) -> None:
        """Press a key for each character."""
        self.press(*text)

    def emulate(self, **features: str) -> None:
        """Set media features, e.g. prefers_color_scheme="dark"."""
        rows = [{"name": k.replace("_", "-"), "value": v} for k, v in features.items()]
        self.call("Emulation.setEmulatedMedia", features=rows)
        self.settle()

    def resize(self, width: int, height: int) -> None:
        """Give the page another size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.settle()

    def screenshot(self, path: Path) -> None:
        """Write what is seen as a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and give its result."""
        number = self._send(method, params)
        while True:
            got = self._receive()
            if got.get("id") == number:
                assert "error" not in got, got["error"]
                result: dict[str, Any] = got["result"]
                return result

    def _send(self, method: str, params: dict[str, Any]) -> int:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        return self._number

    def _wait_for(self, event: str) -> None:
        while self._receive().get("method") != event:
            pass

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select.select([self._from], [], [], PATIENCE)[0], "Chromium says nothing"
            part = os.read(self._from, 1 << 16)
            assert part, "Chromium is gone"
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(str(params["args"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.javascriptDialogOpening":  # may this page be left? Else all would wait
            self._send("Page.handleJavaScriptDialog", {"accept": True})
        elif method == "Network.webSocketCreated":
            self.requests.append(params["url"])
