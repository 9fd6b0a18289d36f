"""One browser for the tests of this folder, and for each test a stream with a dashboard."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from stream_dp.config.settings import Settings
from tests.dashboard.chromium import chromium, complaints, prefer, size
from tests.dashboard.running import Running, running
from tests.system.streams import Stream


@pytest.fixture(scope="session")
def one_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def browser(one_browser: Chrome) -> Iterator[Chrome]:
    """A browser whose console must be silent at the end of the test.

    Ask for it last, so that the server is still there when the page is left.
    """
    size(one_browser, 1280, 900)
    complaints(one_browser)
    yield one_browser
    found = complaints(one_browser)
    one_browser.execute_script("if (location.protocol === 'http:') localStorage.clear()")
    one_browser.get("about:blank")
    prefer(one_browser, "light")
    assert found == []


@pytest.fixture
def stream(kafka: str, topic_prefix: str, tmp_path: Path) -> Stream:
    found = Stream(Settings(stream=topic_prefix, kafka=kafka), tmp_path)
    found.create_topics()
    return found


@pytest.fixture
def dashboard(stream: Stream, tmp_path: Path) -> Iterator[Running]:
    with running(stream.settings.kafka, stream.settings.stream, tmp_path) as started:
        started.wait_until("/readyz", 200)
        yield started
