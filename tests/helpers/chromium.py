"""A real browser for tests: Chromium without a window, driven over its DevTools pipe."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str | None:
    """Return the path of a browser, or `None` if this machine has none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One tab. `events` has everything that the browser reported: errors, requests, messages of the console."""

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive = send, receive
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self.events.append(answer)

    def open(self, path: Path, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Open a file at a window size in CSS pixels, in the light or the dark color scheme."""
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())
        self.evaluate("1")

    def evaluate(self, expression: str, *, wait: bool = False) -> Any:
        """Evaluate JavaScript in the page, whatever its policy is; `wait` awaits a promise."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=wait
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """Return errors and warnings of the page: of scripts, of the policy, of the network."""
        found = []
        for event in self.events:
            match event.get("method"):
                case "Log.entryAdded":
                    found.append(event["params"]["entry"]["text"])
                case (
                    "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Network.loadingFailed"
                ):
                    found.append(json.dumps(event["params"]))
        return found

    def requests(self) -> list[str]:
        """Return the addresses that the page asked for."""
        sent = [
            event for event in self.events if event.get("method") == "Network.requestWillBeSent"
        ]
        return [event["params"]["request"]["url"] for event in sent]

    def screenshot(self, path: Path) -> None:
        """Save the whole page as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
        path.write_bytes(base64.b64decode(data))

    def pdf(self, path: Path) -> None:
        """Print the page to a PDF."""
        path.write_bytes(base64.b64decode(self.call("Page.printToPDF")["data"]))

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + 300
        while b"\0" not in self._buffer:
            ready, _, _ = select.select(
                [self._receive], [], [], max(0, deadline - time.monotonic())
            )
            data = os.read(self._receive, 1 << 20) if ready else b""
            assert data, "the browser ended or does not answer"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """Start a browser with an empty profile; --remote-debugging-pipe opens no port."""
    program = find_chromium()
    assert program
    (from_us, to_browser), (from_browser, to_us) = os.pipe(), os.pipe()
    inherited = [fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in (from_us, to_us)]
    os.close(from_us)
    os.close(to_us)
    # The protocol fixes the numbers: the browser reads from 3 and writes to 4.
    shell = f'exec "$0" "$@" 3<&{inherited[0]} 4>&{inherited[1]}'
    options = (
        *(
            "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--remote-debugging-pipe",
        ),
        *(
            "--disable-dev-shm-usage", "--no-first-run", f"--user-data-dir={folder / 'profile'}",
            "about:blank",
        ),
    )  # fmt: skip
    process = subprocess.Popen(
        ["bash", "-c", shell, program, *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=inherited,
        start_new_session=True,
    )
    try:
        for handle in inherited:
            os.close(handle)
        yield Browser(to_browser, from_browser)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(to_browser)
        os.close(from_browser)
