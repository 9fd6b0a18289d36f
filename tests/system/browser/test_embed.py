"""The chart on a page of another site: where that is named it is shown, and elsewhere the browser refuses it."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from tests.apache_kafka.server import free_ports
from tests.dashboard.chromium import complaints
from tests.dashboard.page import text, wait_for, wait_for_round
from tests.dashboard.running import Running, running
from tests.http_server import serving
from tests.system.browser.test_accessible import complaints_of_axe
from tests.system.browser.test_windows import each_minute, publish
from tests.system.streams import Stream


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def site(folder: Path, port: int, chart: str) -> Iterator[str]:
    """Another site, on its own port, with the component of a dashboard on its page."""
    (folder / "index.html").write_text(
        f'<!doctype html><html lang="en"><title>News</title><link rel="icon" href="data:,">'
        f'<script type="module" src="{chart}/stream-dp-chart.js"></script>'
        f'<main><stream-dp-chart query="label=milk&amp;label=tea"></stream-dp-chart></main></html>'
    )
    with serving(ThreadingHTTPServer(("127.0.0.1", port), partial(Quiet, directory=str(folder)))) as address:
        yield f"{address}/"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "site"
    made.mkdir()
    return made


def frame_of(browser: Chrome) -> Any:
    return browser.execute_script(
        "return document.querySelector('stream-dp-chart')?.shadowRoot?.querySelector('iframe')"
    )


def test_a_site_that_is_named_shows_the_chart(
    stream: Stream, tmp_path: Path, folder: Path, browser: Chrome
) -> None:
    publish(stream, each_minute(stream, 1, 30))
    port, _ = free_ports()
    allowed = ["--embed-in", f"http://127.0.0.1:{port}"]
    with (
        running(stream.settings.kafka, stream.settings.stream, tmp_path, more=allowed) as dashboard,
        site(folder, port, dashboard.url) as url,
    ):
        browser.get(url)
        wait_for(browser, lambda: frame_of(browser) is not None)
        browser.switch_to.frame(frame_of(browser))
        wait_for(browser, lambda: len(browser.find_elements(By.ID, "round")) == 1)
        wait_for_round(browser, 30)
        wait_for(browser, lambda: browser.find_element(By.ID, "legend").text.split() == ["milk", "tea"])
        assert browser.find_element(By.ID, "plot").is_displayed()
        assert not browser.find_element(By.ID, "ranking").is_displayed()
        assert text(browser, "protects").startswith("Each single event is hidden")
        assert complaints_of_axe(browser)[1] == []
        browser.switch_to.default_content()
        browser.execute_script(
            "document.querySelector('stream-dp-chart').setAttribute('query', 'label=cake')"
        )
        browser.switch_to.frame(frame_of(browser))
        wait_for(
            browser,
            lambda: browser.execute_script("return document.getElementById('legend')?.textContent") == "cake",
        )
        browser.get("about:blank")


def test_no_other_site_shows_it(dashboard: Running, folder: Path, browser: Chrome) -> None:
    port, _ = free_ports()
    told: list[str] = []

    def refused() -> bool:
        told.extend(each["message"] for each in complaints(browser))
        return any("frame-ancestors" in each for each in told)

    with site(folder, port, dashboard.url) as url:
        browser.get(url)
        wait_for(browser, refused)
        browser.get("about:blank")
    complaints(browser)
