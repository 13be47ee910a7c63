"""A headless Chromium that tests drive, by the DevTools protocol over two pipes.

Messages are JSON, each ended by a zero byte: requests go to the browser's descriptor 3, answers and
events come from its descriptor 4. No port, no web socket, no dependency.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


# Long enough for a loaded machine; only a browser that hangs waits for it.
_PATIENCE = 120


def chromium() -> str | None:
    """The program, ``None`` where there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")


class Browser:
    """One process with a profile of its own; use it in a ``with`` statement."""

    def __init__(self, *, dark: bool = False, width: int = 1400, height: int = 1000) -> None:
        program = chromium()
        assert program is not None
        self._profile = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--remote-debugging-pipe",
            "--hide-scrollbars",
            f"--user-data-dir={self._profile.name}",
            f"--window-size={width},{height}",
        ]
        # By way of numbers that no pipe has got, so that neither copy lands on one still needed.
        move = (
            f'exec 200<&{theirs_in} 201>&{theirs_out}; exec 3<&200 4>&201 200<&- 201>&-; exec "$@"'
        )
        self._process = subprocess.Popen(
            ["bash", "-c", move, "browser", program, *options],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._number = itertools.count(1)
        self._held = b""
        self.events: list[dict[str, Any]] = []
        self.width, self.height, self.dark = width, height, dark

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.call("Browser.close")
            self._process.wait(20)
        except (OSError, EOFError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """The result of a command; events that come meanwhile are kept."""
        number = next(self._number)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        while True:
            found = self._message()
            if found.get("id") != number:
                self.events.append(found)
            elif "error" in found:
                raise RuntimeError(f"{method}: {found['error']}")
            else:
                result: dict[str, Any] = found["result"]
                return result

    def _message(self) -> dict[str, Any]:
        end = time.monotonic() + _PATIENCE
        while b"\0" not in self._held:
            if not select.select([self._in], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self._in, 1 << 20)
            if not part:
                raise EOFError("the browser is gone")
            self._held += part
        text, _, self._held = self._held.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        return found

    def open(self, path: Path) -> Page:
        """A file in a tab, when it has drawn."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.call(
            "Emulation.setDeviceMetricsOverride",
            width=self.width,
            height=self.height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if self.dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        page.call("Page.bringToFront")
        page.call("Page.navigate", url=path.resolve().as_uri())
        page.until("document.documentElement?.dataset.ready === 'yes'")
        return page


class Page:
    """One tab."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser, self.session = browser, session

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **params)

    def js(self, code: str) -> Any:
        """The value of an expression, waited for if it is a promise."""
        found = self.call(
            "Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise AssertionError(f"{code}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def until(self, code: str) -> None:
        """Wait for a condition."""
        end = time.monotonic() + _PATIENCE
        while not self.js(code):
            if time.monotonic() > end:
                raise TimeoutError(code)

    def text(self, selector: str) -> str:
        found = self.js(f"document.querySelector({json.dumps(selector)}).innerText")
        assert isinstance(found, str)
        return found

    def box(self, selector: str) -> dict[str, float]:
        found: dict[str, float] = self.js(
            f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().toJSON()"
        )
        return found

    def mouse(self, x: float, y: float, *, click: bool = False) -> None:
        """Move there, and press and release the left button."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        if click:
            for kind in ("mousePressed", "mouseReleased"):
                self.call(
                    "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1
                )

    def click(self, selector: str) -> None:
        box = self.box(selector)
        self.mouse(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, click=True)

    def key(self, key: str, *, shift: bool = False) -> None:
        """Press and release a key by its name in ``KeyboardEvent.key``."""
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowLeft": 37, "ArrowUp": 38}
        codes |= {"ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35}
        more: dict[str, Any] = {"windowsVirtualKeyCode": codes[key], "key": key, "code": key}
        if key == "Enter":
            more["text"] = "\r"
        modifiers = 8 if shift else 0
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, modifiers=modifiers, **more)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    @property
    def complaints(self) -> list[str]:
        """Exceptions, console errors, and requests that left the page."""
        self.js("1")  # what was on its way is here after the next answer
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            method, params = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]))
            elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
                found.append(params["entry"]["text"])
            elif method == "Network.requestWillBeSent":
                url = params["request"]["url"]
                if not url.startswith("file:"):
                    found.append(f"asked for {url}")
        return found
