"""Chromium without a window, driven over pipes with the Chrome DevTools Protocol.

https://chromedevtools.github.io/devtools-protocol: messages are JSON, each ends with a zero byte.
Debian updates its Chromium every week and keeps no old one, so no version is pinned.
"""

import base64
import json
import os
import re
import select
import subprocess
import time
from pathlib import Path

import pytest

CHROMIUM = "/usr/bin/chromium"
OLDEST = 132  # the first version whose option --headless has the layout of a window
SECONDS = 60
# Chromium reads commands from its file 3 and writes to its file 4.
SHELL = 'exec "$0" "${@:3}" 3<&"$1" 4>&"$2"'


def read_version(text: str) -> int:
    """Return the major version that `chromium --version` prints. Fails for one that is too old."""
    match = re.search(r"Chromium (\d+)\.", text)
    if match is None:
        pytest.fail(f"{CHROMIUM} --version prints no version of Chromium: {text!r}")
    version = int(match[1])
    if version < OLDEST:
        pytest.fail(
            f"{CHROMIUM} is version {version}, and the tests need {OLDEST} or later: "
            "apt-get install chromium"
        )
    return version


def name_version() -> str:
    """Return what `chromium --version` prints. Fails for a version that is too old."""
    command = [CHROMIUM, "--version"]
    text = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS).stdout
    read_version(text)
    return text.strip()


class Chromium:
    """A page in a Chromium of its own.

    events: what the page did: (method, parameters) of each event of the protocol.
    """

    def __init__(self, profile: Path, *, width: int, height: int, dark: bool = False) -> None:
        commands, self._commands = os.pipe()
        self._results, results = os.pipe()
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        options += ["--hide-scrollbars", f"--user-data-dir={profile}", "about:blank"]
        with open(profile.with_suffix(".log"), "wb") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", SHELL, CHROMIUM, str(commands), str(results), *options],
                pass_fds=(commands, results),
                stdout=log,
                stderr=log,
            )
        os.close(commands)
        os.close(results)
        self._held = b""
        self._count = 0
        self._session: str | None = None
        self.events: list[tuple[str, dict]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM", "Accessibility"):
            self.call(f"{domain}.enable")
        self.resize(width, height)
        self.set_dark(dark=dark)

    def __enter__(self) -> "Chromium":
        return self

    def __exit__(self, *exception: object) -> None:
        self._session = None
        try:
            self.call("Browser.close")
            self._process.wait(SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._commands)
            os.close(self._results)

    def _receive(self, end: float) -> dict:
        while b"\0" not in self._held:
            if not select.select([self._results], [], [], max(end - time.monotonic(), 0))[0]:
                raise TimeoutError("Chromium does not answer")
            received = os.read(self._results, 1 << 20)
            if not received:
                raise EOFError("Chromium ended")
            self._held += received
        message, _, self._held = self._held.partition(b"\0")
        return json.loads(message)

    def call(self, method: str, **parameters: object) -> dict:
        """Call a method of the protocol, and return its result."""
        self._count += 1
        command = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            command["sessionId"] = self._session
        raw = json.dumps(command).encode() + b"\0"
        while raw:
            raw = raw[os.write(self._commands, raw) :]
        end = time.monotonic() + SECONDS
        while True:
            message = self._receive(end)
            if message.get("id") == self._count:
                assert "error" not in message, message
                return message["result"]
            if "method" in message:
                self.events.append((message["method"], message["params"]))

    def run(self, script: str) -> object:
        """Return the value of an expression of JavaScript; a promise is awaited."""
        result = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait_for(self, script: str) -> None:
        """Wait until an expression of JavaScript is true."""
        end = time.monotonic() + SECONDS
        while not self.run(script):
            assert time.monotonic() < end, f"never true: {script}"
            time.sleep(0.02)

    def open(self, url: str) -> None:
        """Load a page."""
        self.call("Page.navigate", url=url)
        self.wait_for("location.href!=='about:blank'&&document.readyState==='complete'")

    def resize(self, width: int, height: int) -> None:
        """Set the size of the window, in pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def set_dark(self, *, dark: bool) -> None:
        """Set whether the reader prefers dark colours."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def press(self, key: str, code: int) -> None:
        """Press a key. code: its number in Windows, which the protocol asks for."""
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                **(text if kind == "keyDown" else {}),
            )

    def take_screenshot(self) -> bytes:
        """Return what is in the window as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot")["data"])

    def list_requests(self) -> list[str]:
        """Return the addresses that the page asked for over the network or in files."""
        addresses = [
            parameters["request"]["url"]
            for method, parameters in self.events
            if method == "Network.requestWillBeSent"
        ]
        return [url for url in addresses if not url.startswith(("data:", "blob:", "about:"))]

    def list_messages(self) -> list[str]:
        """Return the errors and messages of the page, such as breaches of its policy."""
        found = []
        for method, parameters in self.events:
            if method == "Log.entryAdded":
                found.append(parameters["entry"]["text"])
            elif method == "Runtime.consoleAPICalled":
                found.append(json.dumps(parameters["args"]))
            elif method == "Runtime.exceptionThrown":
                found.append(json.dumps(parameters["exceptionDetails"]))
        return found
