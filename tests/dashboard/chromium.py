"""Debian's Chromium without a screen, told by its driver, on an empty profile."""

import base64
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

_ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--js-flags=--expose-gc",
)
_WAIT_SECONDS = 30


@contextmanager
def chromium(profile: Path) -> Iterator[webdriver.Chrome]:
    """A browser of 1280 by 900 pixels; fails with what to install if there is none."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.fail(
            "the browser tests need Chromium: apt-get install chromium chromium-driver", pytrace=False
        )
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in (*_ARGUMENTS, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=Service(driver))
    try:
        opened.set_script_timeout(10 * _WAIT_SECONDS)
        size(opened, 1280, 900)
        yield opened
    finally:
        opened.quit()


def size(browser: webdriver.Chrome, width: int, height: int, scale: int = 2) -> None:
    """Make the page so many CSS pixels large, of so many points each; narrow ones are phones."""
    measures = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", measures)


def prefer(browser: webdriver.Chrome, scheme: str) -> None:
    """Have the system ask for `light` or `dark`."""
    wanted = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wanted})


def complaints(browser: webdriver.Chrome) -> list[dict[str, Any]]:
    """What the console has said since it was asked last."""
    found: list[dict[str, Any]] = browser.get_log("browser")  # type: ignore[no-untyped-call]
    return found


def heap_bytes(browser: webdriver.Chrome) -> int:
    """Memory of the page's script after a garbage collection."""
    browser.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
    return int(browser.execute_cdp_cmd("Runtime.getHeapUsage", {})["usedSize"])


def screenshot(browser: webdriver.Chrome, file: Path) -> None:
    """What is on the screen as a picture."""
    picture = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    file.write_bytes(base64.b64decode(picture["data"]))
