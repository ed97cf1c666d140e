"""Drives headless Chromium by the DevTools protocol over a pipe: pages that live, keys, themes, pictures."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""A browser of a test: no window, and nothing asked of the network by itself."""
PATIENCE_SECONDS: Final = 120.0
_FIRST_FREE: Final = 20
"""File descriptors of ours, away from 3 and 4, which are the browser's."""
_BAD: Final = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")


def find_browser() -> str | None:
    """The program, where one is installed."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Tab:
    """One page."""

    def __init__(self, browser: "Browser", session: str) -> None:
        self._browser, self._session = browser, session
        self.console: list[dict[str, Any]] = []
        """What the page, or the browser about it, has complained of."""

    def call(self, method: str, **parameters: Any) -> Any:
        answer = self._browser.call(method, self._session, **parameters)
        self.console += [each for each in self._browser.take_events(self._session) if each["method"] in _BAD]
        return answer

    def look(self, *, width: int, height: int = 900, is_dark: bool = False) -> None:
        """Have a window of this size, and a reader who likes dark pages or light ones."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, expression: str) -> Any:
        """The value once it is true; what the page does not have yet is not."""
        attempt = f"(() => {{ try {{ return {expression} }} catch {{ return null }} }})()"
        end = time.monotonic() + PATIENCE_SECONDS
        while not (found := self.value(attempt)):
            assert time.monotonic() < end, (expression, self.console)
            time.sleep(0.05)
        return found

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            code = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowRight": 39}[key]
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def picture(self, path: Path) -> None:
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=False)
        path.write_bytes(base64.b64decode(shot["data"]))


class Browser:
    """The process and its pipe."""

    def __init__(self, program: str, folder: Path) -> None:
        asks, self._asks = (_moved(end) for end in os.pipe())
        self._answers, answers = (_moved(end) for end in os.pipe())
        command = [
            program,
            *FLAGS,
            "--remote-debugging-pipe",
            f"--user-data-dir={folder / 'profile'}",
            "about:blank",
        ]
        shell = ["bash", "-c", f'exec "$@" 3<&{asks} 4>&{answers} {asks}<&- {answers}>&-', "bash", *command]
        self._process = subprocess.Popen(
            shell, pass_fds=(asks, answers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(asks)
        os.close(answers)
        self._number, self._rest = 0, b""
        self._events: list[dict[str, Any]] = []

    def call(self, method: str, session: str = "", **parameters: Any) -> Any:
        self._number += 1
        task = {"id": self._number, "method": method, "params": parameters}
        os.write(self._asks, json.dumps(task | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]
            self._events.append(message)

    def take_events(self, session: str) -> list[dict[str, Any]]:
        taken = [each for each in self._events if each.get("sessionId") == session and "method" in each]
        self._events = [each for each in self._events if each not in taken]
        return taken

    def tab(self) -> Tab:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session)
        for room in ("Page", "Runtime", "Log"):
            tab.call(f"{room}.enable")
        return tab

    def close(self) -> None:
        os.close(self._asks)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._answers)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._answers], [], [], PATIENCE_SECONDS)
            assert ready, "the browser says nothing"
            data = os.read(self._answers, 1 << 16)
            assert data, "the browser has ended"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message


def _moved(descriptor: int) -> int:
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)
    os.close(descriptor)
    return moved


@contextmanager
def browsing(program: str, folder: Path) -> Iterator[Browser]:
    """A browser of its own profile, ended afterwards."""
    browser = Browser(program, folder)
    try:
        yield browser
    finally:
        browser.close()
