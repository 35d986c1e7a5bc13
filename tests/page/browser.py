"""A headless Chromium, driven over the WebDriver protocol with the standard library alone."""

import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")

_PATIENCE_S = 20.0
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1360,900",
)
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""Key of an element's name in the protocol."""

_KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Tab": "\ue004", "Space": "\ue00d"}


class Browser:
    """One window.

    Args:
        profile: an empty folder.
    """

    def __init__(self, profile: Path) -> None:
        assert DRIVER is not None
        self._driver = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, text=True)
        self._address = f"http://127.0.0.1:{self._port()}"
        options = {"binary": CHROMIUM, "args": [*_FLAGS, f"--user-data-dir={profile}"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        session = self._send("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{session['sessionId']}"

    def close(self) -> None:
        try:
            self._send("DELETE", self._session)
        finally:
            self._driver.terminate()
            self._driver.wait()
            assert self._driver.stdout is not None
            self._driver.stdout.close()

    def open(self, address: str) -> None:
        self._send("POST", f"{self._session}/url", {"url": address})

    def click(self, selector: str) -> None:
        self._send("POST", f"{self._element(selector)}/click", {})

    def write(self, selector: str, text: str) -> None:
        """Put a text in place of what a field has."""
        element = self._element(selector)
        self._send("POST", f"{element}/clear", {})
        self._send("POST", f"{element}/value", {"text": text})

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, wherever the focus is."""
        presses = []
        for key in keys:
            value = _KEYS.get(key, key)
            presses += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        actions = [{"type": "key", "id": "keyboard", "actions": presses}]
        self._send("POST", f"{self._session}/actions", {"actions": actions})

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function body in JavaScript returns."""
        body = {"script": script, "args": list(arguments)}
        return self._send("POST", f"{self._session}/execute/sync", body)

    def text(self, selector: str) -> str:
        """Text of all elements that match, hidden parts included."""
        script = "return [...document.querySelectorAll(arguments[0])].map(x => x.textContent)"
        return "\n".join(self.run(script, selector))

    def wait(self, check: Callable[[], Any], what: str) -> Any:
        """Ask until something is true, and return it."""
        end_s = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end_s:
            found = check()
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError(f"{what} did not come; the page says:\n{self.text('main')[-2000:]}")

    def wait_text(self, selector: str, wanted: str) -> None:
        self.wait(lambda: wanted in self.text(selector), f"{wanted!r} in {selector}")

    def look(self, *, width: int, height: int, dark: bool = False, scale: float = 1) -> None:
        """Change size and colour scheme; below 500 points it is a phone."""
        metrics = {"width": width, "height": height, "mobile": width < 500}
        self.devtools("Emulation.setDeviceMetricsOverride", {**metrics, "deviceScaleFactor": scale})
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", {"features": [scheme]})

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._send("GET", f"{self._session}/screenshot")))

    def devtools(self, command: str, parameters: dict[str, Any]) -> Any:
        body = {"cmd": command, "params": parameters}
        return self._send("POST", f"{self._session}/goog/cdp/execute", body)

    def complaints(self) -> list[str]:
        """What stands in the console since the last call."""
        found = self._send("POST", f"{self._session}/se/log", {"type": "browser"})
        return [entry["message"] for entry in found]

    def _element(self, selector: str) -> str:
        body = {"using": "css selector", "value": selector}
        found = self._send("POST", f"{self._session}/element", body)
        return f"{self._session}/element/{found[_ELEMENT]}"

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address + path, data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.loads(response.read())["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(error.read().decode()[:500]) from None

    def _port(self) -> int:
        assert self._driver.stdout is not None
        for line in self._driver.stdout:
            if "successfully on port " in line:
                return int(line.rpartition("on port ")[2].strip().rstrip("."))
        raise AssertionError("chromedriver did not start")
