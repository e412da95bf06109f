"""A real browser, Debian's Chromium: one process for many pages, each with its own settings."""

from __future__ import annotations

import base64
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Self

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
ELSEWHERE = "jobs.example"  # a name, not localhost, that the browser finds at this machine
SECONDS = 60.0  # for what a page has to come to, on a busy machine
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1",
    "--hide-scrollbars",
    "--lang=en-GB",
)


class BrowserMissing(RuntimeError):
    """Chromium or its driver is not there."""


class Browser:
    """Chromium without a window."""

    def __init__(self) -> None:
        """Raises BrowserMissing."""
        missing = [path for path in (CHROMIUM, DRIVER) if shutil.which(path) is None]
        if missing:
            raise BrowserMissing(f"no {', '.join(missing)}: make debian installs it")
        # Here, since it takes half a second, and each process of the tests imports this module.
        from selenium.webdriver import Chrome, ChromeOptions
        from selenium.webdriver.chrome.service import Service

        options = ChromeOptions()
        options.binary_location = CHROMIUM
        for argument in ARGUMENTS:
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        # Its driver ends it so that it removes nothing.
        self._folder = tempfile.TemporaryDirectory(
            prefix="outlast-browser-", ignore_cleanup_errors=True
        )
        env = {**os.environ, "TMPDIR": self._folder.name}
        self.driver = Chrome(options=options, service=Service(DRIVER, env=env))
        self.driver.set_script_timeout(SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End it, and remove its files."""
        self.driver.quit()
        self._folder.cleanup()

    def start_over(self) -> None:
        """Leave the page, and forget its sessions and what the console has said."""
        self.open("about:blank")
        self.command("Network.clearBrowserCookies")
        self.look_like()
        self.complaints()

    def look_like(
        self,
        *,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        javascript: bool = True,
        zone: str = "Europe/Berlin",
    ) -> None:
        """Set how it shows pages from now on."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.command("Emulation.setScriptExecutionDisabled", value=not javascript)
        self.command("Emulation.setTimezoneOverride", timezoneId=zone)

    def command(self, name: str, **parameters: Any) -> Any:
        """Send a command of the DevTools protocol."""
        return self.driver.execute_cdp_cmd(name, parameters)

    def open(self, address: str) -> None:
        """Open a page."""
        self.driver.get(address)

    def run(self, script: str, *values: Any) -> Any:
        """Return what a script returns, run beside the page's own."""
        return self.driver.execute_script(script, *values)

    def text(self, selector: str = "body") -> str:
        """Return what is written in the first element of a selector; nothing if there is none."""
        script = "return (document.querySelector(arguments[0]) || {innerText: ''}).innerText"
        return str(self.run(script, selector))

    def wait(self, condition: Any, message: str = "") -> Any:
        """Return the first true answer of ``condition(self)``."""
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, SECONDS, 0.05).until(lambda _: condition(self), message)

    def complaints(self) -> list[str]:
        """Return what the console has said since the last time: errors, what was refused."""
        return [
            entry["message"]
            for entry in self.driver.get_log("browser")
            if entry["level"] in {"SEVERE", "WARNING"}
        ]

    def photograph(self, path: Path, until: str | None = None) -> None:
        """Write a picture of the page: whole, or as far as the element before this one."""
        size = self.command("Page.getLayoutMetrics")["cssContentSize"]
        if until is not None:
            top = "return document.querySelector(arguments[0]).getBoundingClientRect().top"
            size["height"] = self.run(top, until)
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        taken = self.command("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(taken["data"]))
