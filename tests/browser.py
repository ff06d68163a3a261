"""A headless Chromium driven over the DevTools protocol through a pipe, with nothing but Python's standard library.

Messages are JSON ended by a NUL byte, on file descriptors 3 (to the browser) and 4 (from it):
https://chromedevtools.github.io/devtools-protocol/
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
KEYS = {"Tab": 9, "Enter": 13, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, " ": 32}


def find_browser() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page. Collects what scripts complain about in `errors` and every address asked for in `requests`."""

    def __init__(self, binary: str, timeout: float = 60):
        self.timeout = timeout
        self.errors, self.requests, self.replies = [], [], {}
        self.next_id, self.buffer = 0, b""
        self.profile = tempfile.TemporaryDirectory()
        to_browser, self.to_browser = os.pipe()
        self.from_browser, from_browser = os.pipe()

        def connect():  # descriptors 3 and 4, by way of high numbers in case these are in use
            a, b = os.dup(to_browser), os.dup(from_browser)
            high_a, high_b = a + 64, b + 65
            os.dup2(a, high_a), os.dup2(b, high_b)
            os.dup2(high_a, 3, inheritable=True), os.dup2(high_b, 4, inheritable=True)

        self.process = subprocess.Popen(
            [binary, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
             "--no-first-run", "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
             f"--user-data-dir={self.profile.name}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=connect, close_fds=False)
        os.close(to_browser), os.close(from_browser)
        self.session = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def close(self):
        self.process.terminate()
        self.process.wait(20)
        os.close(self.to_browser), os.close(self.from_browser)
        try:
            self.profile.cleanup()
        except OSError:
            pass  # a helper process of the browser still writes there

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, method: str, **parameters) -> dict:
        self.next_id += 1
        number = self.next_id
        message = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = memoryview(json.dumps(message).encode() + b"\0")
        while data:
            data = data[os.write(self.to_browser, data):]
        deadline = time.monotonic() + self.timeout
        while number not in self.replies:
            self.read(deadline, method)
        reply = self.replies.pop(number)
        assert "error" not in reply, (method, reply["error"])
        return reply["result"]

    def read(self, deadline: float, waiting_for: str):
        ready, _, _ = select.select([self.from_browser], [], [], max(0, deadline - time.monotonic()))
        chunk = os.read(self.from_browser, 1 << 20) if ready else b""
        assert chunk, f"the browser gave no answer to {waiting_for}"
        *whole, self.buffer = (self.buffer + chunk).split(b"\0")
        for message in map(json.loads, whole):
            if "id" in message:
                self.replies[message["id"]] = message
            elif message["method"] == "Runtime.exceptionThrown":
                details = message["params"]["exceptionDetails"]
                self.errors.append(details.get("exception", {}).get("description", details["text"]))
            elif message["method"] == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                self.errors.append(message["params"]["entry"]["text"])
            elif message["method"] == "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])

    def resize(self, width: int, height: int, phone: bool = False):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def colours(self, scheme: str):
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, file: Path):
        self.send("Page.navigate", url=file.resolve().as_uri())
        deadline = time.monotonic() + self.timeout
        while self.run("document.readyState") != "complete" or self.run("location.href") == "about:blank":
            assert time.monotonic() < deadline, f"{file} did not load"
            time.sleep(0.05)
        self.run("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")

    def run(self, expression: str):
        """The value of a JavaScript expression (a promise is waited for)."""
        reply = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def press(self, key: str, shift: bool = False):
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key], modifiers=8 if shift else 0)

    def screenshot(self, file: Path, selector: str | None = None, scale: float = 1):
        """A PNG of what is in view, or of the first element that fits the selector."""
        options = {}
        if selector:
            options = {"captureBeyondViewport": True, "clip": self.run(f"""(() => {{
                const box = document.querySelector({json.dumps(selector)}).getBoundingClientRect();
                return {{x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: box.height, scale: {scale}}};
            }})()""")}
        file.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png", **options)["data"]))
