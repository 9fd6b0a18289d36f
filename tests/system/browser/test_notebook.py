"""The live chart of a notebook, in a page that implements the model of a widget."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

import stream_dp
from tests.dashboard.chromium import prefer
from tests.dashboard.page import (
    expected_rows,
    rows,
    shown_rows,
    text,
    wait_for,
    wait_for_round,
    wait_until_drawn,
)
from tests.dashboard.running import PATIENCE
from tests.example_releases import release
from tests.notebook.host import comms, shown
from tests.system.browser.published import write
from tests.system.browser.test_windows import each_minute, late, publish
from tests.system.streams import Stream


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    for (module, constant), value in PATIENCE.items():
        monkeypatch.setattr(module, constant, value)


@contextmanager
def chart(browser: Chrome, stream: Stream, **asked: Any) -> Iterator[Any]:
    """The chart of a stream in a cell; the browser is in its frame."""
    with comms():
        widget = stream_dp.watch(stream.settings.kafka, stream.settings.stream, **asked)
    try:
        with shown(widget) as url:
            browser.get(url)
            enter(browser)
            yield widget
            browser.get("about:blank")
    finally:
        widget.close()


def enter(browser: Chrome) -> None:
    browser.switch_to.default_content()
    wait_for(browser, lambda: len(browser.find_elements(By.TAG_NAME, "iframe")) == 1)
    browser.switch_to.frame(browser.find_element(By.TAG_NAME, "iframe"))
    wait_for(browser, lambda: len(browser.find_elements(By.ID, "rows")) == 1)


def test_it_follows_the_stream(stream: Stream, browser: Chrome) -> None:
    first, second = release(1, {"tea": 400, "milk": 300}), release(2, {"tea": 420, "<b>cake</b>": 350})
    write(stream, first)
    with chart(browser, stream) as widget:
        wait_for_round(browser, 1)
        assert shown_rows(browser) == expected_rows(first)
        assert text(browser, "tau") == "112"
        write(stream, second)
        wait_for_round(browser, 2)
        assert shown_rows(browser) == expected_rows(second)
        assert widget.release.round == 2


def test_it_shows_windows_and_looks_back(stream: Stream, browser: Chrome) -> None:
    publish(stream, each_minute(stream, 1, 30, late()))
    with chart(browser, stream, labels=["milk"], window="5m"):
        wait_for_round(browser, 30)
        wait_for(browser, lambda: text(browser, "window-note").startswith("Rounds 26 to 30"))
        wait_for(browser, lambda: [row["label"] for row in rows(browser)] == ["milk", "tea", "cake"])
        legend = "return [...document.querySelectorAll('#legend bdi')].map(each => each.textContent)"
        assert browser.execute_script(legend) == ["milk"]
        Select(browser.find_element(By.ID, "window")).select_by_visible_text("since the start")
        browser.execute_script(
            "const slider = document.getElementById('slider');"
            "slider.value = 12; slider.dispatchEvent(new Event('input'))"
        )
        wait_for_round(browser, 12)
        assert text(browser, "badge") == "History"


def test_it_begins_in_the_past_and_a_second_cell_shows_it_too(stream: Stream, browser: Chrome) -> None:
    publish(stream, each_minute(stream, 1, 30))
    with chart(browser, stream, round=7):
        wait_for_round(browser, 7)
        browser.switch_to.default_content()
        browser.execute_script("away(); again()")
        enter(browser)
        wait_for_round(browser, 7)


@pytest.mark.parametrize(("light", "theme"), [("false", "dark"), ("true", "light")])
def test_it_has_the_theme_of_jupyterlab(stream: Stream, browser: Chrome, light: str, theme: str) -> None:
    write(stream, release(1, {"tea": 400}))
    prefer(browser, "light" if theme == "dark" else "dark")
    with chart(browser, stream):
        browser.switch_to.default_content()
        browser.execute_script(f"document.body.dataset.jpThemeLight = '{light}'; away(); again()")
        enter(browser)
        wait_for_round(browser, 1)
        assert browser.execute_script("return document.documentElement.dataset.theme") == theme
        drawn = "return getComputedStyle(document.body).colorScheme"
        assert browser.execute_script(drawn) == theme


def drawn_in(browser: Chrome, theme: str) -> bool:
    return bool(browser.execute_script("return getComputedStyle(document.body).colorScheme") == theme)


def has_changed(browser: Chrome, script: str, before: str) -> bool:
    """What a script returns is not what it was."""
    return bool(browser.execute_script(script) != before)


def test_it_follows_the_theme_that_is_switched_while_it_is_open(stream: Stream, browser: Chrome) -> None:
    """Nothing is loaded anew, and the chart is drawn in the other colours though nothing is released."""
    write(stream, release(1, {"tea": 400}), release(2, {"tea": 420}))
    prefer(browser, "light")
    with chart(browser, stream):
        wait_for_round(browser, 2)
        wait_for(browser, lambda: len(browser.find_elements(By.CSS_SELECTOR, "#plot canvas")) == 1)
        browser.execute_script("window.isTheSame = true")
        picture = "return document.querySelector('#plot canvas').toDataURL()"
        for light, theme in (("false", "dark"), ("true", "light"), ("false", "dark")):
            wait_until_drawn(browser)
            before = browser.execute_script(picture)
            browser.switch_to.default_content()
            browser.execute_script(f"document.body.dataset.jpThemeLight = '{light}'")
            enter(browser)
            wait_for(browser, partial(drawn_in, browser, theme))
            wait_for(browser, partial(has_changed, browser, picture, before))
        assert browser.execute_script("return window.isTheSame")
        assert not browser.find_element(By.ID, "theme").is_displayed()


def test_the_page_sees_nothing_of_the_notebook(stream: Stream, browser: Chrome) -> None:
    write(stream, release(1, {"tea": 400}))
    peek = "try { return parent.document.title } catch (refused) { return refused.name }"
    with chart(browser, stream):
        wait_for_round(browser, 1)
        assert browser.execute_script(peek) == "SecurityError"
        assert browser.execute_script("return origin") == "null"
        assert browser.find_elements(By.CSS_SELECTOR, "[data-of-server][href]") == []


def test_a_chart_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="a window is a time such as"):
        stream_dp.watch("localhost:1", "shop", window="yesterday")
