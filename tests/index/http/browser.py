"""Headless Chromium, controlled with the DevTools protocol through a pipe.

The pipe needs no WebSocket client: messages are JSON, each followed by a zero byte.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

WITHIN_S = 30.0

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), "")
"""Path of the program; "" if it is not installed."""

KEYS = {"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, ""), "/": (191, "/"), " ": (32, " ")}
"""Key name -> (virtual key code, text)."""

Json = dict[str, object]


class Chromium:
    """Browser with one page. `reads`, `writes`: file descriptors of the pipes."""

    def __init__(self, reads: int, writes: int) -> None:
        self.problems: list[str] = []
        """Errors that the browser reported, also violations of the content security policy."""
        self._reads, self._writes = reads, writes
        self._rest = b""
        self._number = 0
        self._session = ""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = str(attached["sessionId"])
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def show(self, url: str) -> None:
        """Open an address and wait until it has loaded."""
        self._call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def rescale(self, width: int, height: int, dark: bool = False) -> None:
        """Set the window size and the colour scheme."""
        phone = width < 600
        size: Json = {"width": width, "height": height, "mobile": phone, "deviceScaleFactor": 1}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def value(self, expression: str) -> object:
        """Evaluate an expression in the page."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        result = answer["result"]
        assert isinstance(result, dict)
        return result.get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        end = monotonic() + WITHIN_S
        while not self.value(f"!!({expression})"):
            seen = self.value("document.querySelector('.search')?.innerText")
            assert monotonic() < end, f"{expression} does not hold; {self.problems}: {seen}"
            sleep(0.02)

    def text(self, selector: str) -> str:
        """Return the text of an element."""
        return str(self.value(f"document.querySelector({json.dumps(selector)}).innerText"))

    def type(self, text: str) -> None:
        """Type into the focused element."""
        self._call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Press a key."""
        code, text = KEYS[key]
        down: Json = {"type": "keyDown", "key": key, "windowsVirtualKeyCode": code, "text": text}
        self._call("Input.dispatchKeyEvent", **down)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def screenshot(self, path: Path) -> None:
        """Write a screenshot of the whole page as PNG."""
        screenshot = self._call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(str(screenshot["data"])))

    def _call(self, method: str, **parameters: object) -> Json:
        self._number += 1
        request: Json = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            request["sessionId"] = self._session
        os.write(self._writes, json.dumps(request).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == self._number:
                assert "error" not in message, (method, message)
                result = message["result"]
                assert isinstance(result, dict)
                return result
            self._record_problem(message)

    def _next(self) -> Json:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._reads], [], [], WITHIN_S)
            data = os.read(self._reads, 1 << 16) if ready else b""
            assert data, "Chromium closed the pipe or did not answer in time"
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        found = json.loads(message)
        assert isinstance(found, dict)
        return found

    def _record_problem(self, message: Json) -> None:
        match message:
            case {"method": "Runtime.exceptionThrown", "params": {"exceptionDetails": details}}:
                self.problems.append(json.dumps(details))
            case {"method": "Log.entryAdded", "params": {"entry": {"level": "error"} as entry}}:
                self.problems.append(json.dumps(entry))


@contextmanager
def chromium(profile: Path) -> Iterator[Chromium]:
    """Start a browser with a profile directory."""
    browser_reads, writes = os.pipe()
    reads, browser_writes = os.pipe()
    # Chromium expects the pipes at the file descriptors 3 and 4.
    program = f'exec "$0" "$@" 3<&{browser_reads} 4>&{browser_writes}'
    options = (
        "--headless=new",
        "--no-sandbox",  # the sandbox does not work as root; only our own pages are opened
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--no-first-run",
        "--hide-scrollbars",
        f"--user-data-dir={profile}",
        "--remote-debugging-pipe",
    )
    with (profile.parent / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", program, CHROMIUM, *options],
            pass_fds=(browser_reads, browser_writes),
            stdout=log,
            stderr=log,
        )
    os.close(browser_reads)
    os.close(browser_writes)
    try:
        yield Chromium(reads, writes)
    finally:
        os.close(writes)
        os.close(reads)
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
