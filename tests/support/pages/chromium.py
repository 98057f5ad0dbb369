# SPDX-License-Identifier: MIT OR Apache-2.0
"""A headless Chromium, asked over its debugging pipe: the DevTools protocol, without a package for it."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# It asks nobody for anything, and keeps nothing but in a folder of its own.
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
SECONDS = 120.0


def find() -> str:
    """Return the browser's path; $PYFA_ROCM_BROWSER names another one.

    Raises
    ------
    FileNotFoundError
        There is none.
    """
    names = [os.environ["PYFA_ROCM_BROWSER"]] if "PYFA_ROCM_BROWSER" in os.environ else BROWSERS
    for name in names:
        if path := shutil.which(name):
            return path
    wanted = " or ".join(names)
    raise FileNotFoundError(f"no browser {wanted}; native/tools/toolchain.sh --evidence installs one")


class Chromium:
    """A browser with one tab."""

    def __init__(self, folder: Path) -> None:
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        # Chromium takes descriptors 3 and 4. High numbers first, so that neither is in the way.
        command = ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", find(), *OPTIONS]
        command += [f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen(
            command, pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer = b""
        self._number = 0
        self._session = ""
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def _next(self, until: float) -> dict[str, Any]:
        """Return the next message."""
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise TimeoutError(f"the browser said nothing for {SECONDS:.0f} s")
            found = os.read(self._from, 1 << 16)
            if not found:
                raise ConnectionError("the browser has ended")
            self._buffer += found
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def ask(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result.

        Raises
        ------
        RuntimeError
            The browser refused.
        """
        self._number += 1
        message = {"id": self._number, "method": method, "params": arguments}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + SECONDS
        while True:
            answer = self._next(until)
            if answer.get("id") != self._number:
                self.events.append(answer)
                continue
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            result: dict[str, Any] = answer["result"]
            return result

    def resize(self, width: int, height: int, scheme: str) -> None:
        """Make the window that large, for who likes pages "light" or "dark"."""
        phone = width < 600
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", features=features)

    def open(self, path: Path, width: int, height: int, scheme: str, query: str = "") -> None:
        """Open a file, without a network, in such a window; `query` begins with a question mark."""
        self.visit(path.as_uri() + query, width, height, scheme)

    def visit(self, address: str, width: int, height: int, scheme: str, *, offline: bool = True) -> None:
        """Open an address in such a window."""
        self.resize(width, height, scheme)
        self.ask(
            "Network.emulateNetworkConditions",
            offline=offline,
            latency=0,
            downloadThroughput=0 if offline else -1,
            uploadThroughput=0 if offline else -1,
        )
        self.events.clear()
        self.ask("Page.navigate", url=address)
        until = time.monotonic() + SECONDS
        while not self.named("Page.loadEventFired"):
            self.events.append(self._next(until))

    def wait_for(self, script: str) -> Any:
        """Evaluate JavaScript again and again, until its value is true, and return that.

        Raises
        ------
        TimeoutError
            It stayed false.
        """
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            if found := self.evaluate(script):
                return found
            time.sleep(0.05)
        raise TimeoutError(f"{script}: false for {SECONDS:.0f} s")

    def named(self, method: str) -> list[dict[str, Any]]:
        """Return what the browser told under this name since the page was opened."""
        return [event["params"] for event in self.events if event.get("method") == method]

    def evaluate(self, script: str) -> Any:
        """Return the value of JavaScript.

        Raises
        ------
        RuntimeError
            It threw.
        """
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write a picture of the window, or of the whole page."""
        answer = self.ask("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))
