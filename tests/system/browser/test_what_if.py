"""The what-if of a notebook: settings tried on public events, in a page that implements the model of a widget."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

import stream_dp
from tests.dashboard.chromium import prefer
from tests.dashboard.page import text, wait_for
from tests.notebook.host import comms, shown
from tests.system.browser.test_accessible import complaints_of_axe

EVENTS = [["tea", "milk"]] * 2_000 + [["tea", "<i>rare</i>"]] * 3
_ROWS = """
const cells = row => [...row.querySelectorAll("td:not(.bar)")];
return [...document.querySelectorAll("#rows tr")].map(row => cells(row).map(cell => cell.textContent))
"""


@contextmanager
def cell(browser: Chrome) -> Iterator[Any]:
    with comms():
        widget = stream_dp.what_if(EVENTS, public=True)
    with shown(widget) as url:
        browser.get(url)
        wait_for(browser, lambda: len(browser.find_elements(By.TAG_NAME, "iframe")) == 1)
        browser.switch_to.frame(browser.find_element(By.TAG_NAME, "iframe"))
        wait_for(browser, lambda: len(browser.find_elements(By.CSS_SELECTOR, "#rows tr")) == 3)
        yield widget
        browser.get("about:blank")


def settled(browser: Chrome) -> list[list[str]]:
    busy = "return document.getElementById('rows').getAttribute('aria-busy')"
    wait_for(browser, lambda: bool(browser.execute_script(busy) == "false"))
    found: list[list[str]] = browser.execute_script(_ROWS)
    return found


def test_it_shows_what_settings_show_beside_the_truth(browser: Chrome) -> None:
    with cell(browser):
        Select(browser.find_element(By.ID, "mechanism")).select_by_value("blt every-round")
        browser.execute_script(
            "const found = document.getElementById('items'); found.value = 2; found.dispatchEvent(new Event('input'))"
        )
        wait_for(browser, lambda: text(browser, "about").endswith("100% are within the limit of items"))
        rows = settled(browser)
        assert [(row[0], row[2]) for row in rows] == [
            ("tea", "2,003"),
            ("milk", "2,000"),
            ("<i>rare</i>", "3"),
        ]
        assert rows[2][1] == "not shown"
        assert abs(int(rows[0][1].replace(",", "")) - 2_003) < 1_000
        assert text(browser, "labels") == "2 of 3"
        margin = text(browser, "margin")
        browser.find_element(By.ID, "epsilon").send_keys(Keys.END)
        wait_for(
            browser, lambda: text(browser, "margin") != margin and text(browser, "epsilon-value") == "16.0"
        )
        settled(browser)
        for scheme in ("light", "dark"):
            prefer(browser, scheme)
            assert complaints_of_axe(browser)[1] == []


def test_settings_that_cannot_be_are_told(browser: Chrome) -> None:
    with cell(browser):
        settled(browser)
        browser.execute_script(
            "const found = document.getElementById('items'); found.value = 0; found.dispatchEvent(new Event('input'))"
        )
        wait_for(
            browser, lambda: text(browser, "state").startswith("These settings cannot be: items_per_event")
        )


def test_private_data_are_refused() -> None:
    with pytest.raises(stream_dp.Refused, match="no guarantee at all: say public=True"):
        stream_dp.what_if(EVENTS, public=False)
    with pytest.raises(stream_dp.Refused, match="give items"):
        stream_dp.what_if([[], []], public=True)
