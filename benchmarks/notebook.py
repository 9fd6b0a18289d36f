"""How soon a notebook shows a stream that runs: from the import to the first bars in a browser."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from rich.console import Console
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from stream_dp.config.settings import Settings
from stream_dp.dev.servers import embedded
from tests.dashboard.chromium import chromium
from tests.dashboard.shop import an_hour
from tests.system.streams import Stream
from tests.system.waiting import wait_until

RUNS = 7
_CELL = """
import sys, time
from tests.notebook.host import comms, shown
began = time.time()
import stream_dp
with comms():
    chart = stream_dp.watch(sys.argv[1], "shop")
with shown(chart) as url:
    print(began, time.time(), url, flush=True)
    sys.stdin.read()
"""
"""What a notebook runs, in a process of its own, and when it did."""


def main(console: Console) -> None:
    """Measure, and print the medians."""
    with tempfile.TemporaryDirectory() as name, embedded(Path(name) / "servers") as servers:
        stream = Stream(Settings(stream="shop", kafka=servers.kafka), Path(name))
        stream.create_topics()
        stream.write("shop.releases", an_hour("shop", time.time_ns() // 1_000_000))
        with chromium(Path(name) / "profile") as browser:
            _first(browser, servers.kafka)  # files are in the memory of the machine from now on
            found = [_first(browser, servers.kafka) for _ in range(RUNS)]
    returned, drawn = (median(column) for column in zip(*found, strict=True))
    console.print(
        f"the cell finishes {returned:.2f} s after the import began, bars are drawn after {drawn:.2f} s"
    )


def _first(browser: Chrome, kafka: str) -> tuple[float, float]:
    """Seconds from the import until the cell finishes, and until the first bars are drawn."""
    command = [sys.executable, "-c", _CELL, kafka]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as cell:
        assert cell.stdout is not None
        began, returned, url = cell.stdout.readline().split()
        browser.get(url)
        wait_until(lambda: len(browser.find_elements(By.TAG_NAME, "iframe")) == 1, lambda: url)
        browser.switch_to.frame(browser.find_element(By.TAG_NAME, "iframe"))
        wait_until(lambda: len(browser.find_elements(By.CSS_SELECTOR, "#rows tr")) > 0, lambda: url)
        drawn = time.time()
        browser.get("about:blank")
        assert cell.stdin is not None
        cell.stdin.close()
    return float(returned) - float(began), drawn - float(began)
