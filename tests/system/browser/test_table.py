"""The table in the hands of people: sorted by any column, what moves beside it, and saved as a file."""

import csv
import json
import re
import time
from pathlib import Path

import msgspec
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from stream_dp.privacy.wording import counted
from tests.dashboard.page import rows, text, wait_for, wait_for_round, wait_for_text
from tests.dashboard.running import Running
from tests.example_releases import release
from tests.system.browser.published import write
from tests.system.browser.test_windows import MINUTE, each_minute, late, pick, publish
from tests.system.streams import Stream


def labels(browser: Chrome) -> list[str]:
    return [row["label"] for row in rows(browser)]


def sort_by(browser: Chrome, column: str) -> None:
    browser.find_element(By.CSS_SELECTOR, f"thead [data-by='{column}']").click()


def test_it_is_sorted_by_any_column_and_the_address_says_so(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    publish(stream, each_minute(stream, 1, 30, late()))
    browser.get(dashboard.url)
    wait_for_round(browser, 30)
    assert labels(browser) == ["tea", "milk", "cake"]
    sort_by(browser, "label")
    assert labels(browser) == ["cake", "milk", "tea"]
    assert browser.current_url.endswith("/?sort=label")
    heading = browser.find_element(By.CSS_SELECTOR, "th.name")
    assert heading.get_attribute("aria-sort") == "ascending"
    sort_by(browser, "label")
    assert labels(browser) == ["tea", "milk", "cake"]
    assert heading.get_attribute("aria-sort") == "descending"
    wait_for(browser, lambda: text(browser, "movers-note").startswith("How counts changed between"))
    sort_by(browser, "trend")
    assert labels(browser) == ["milk", "cake", "tea"]
    assert [row["rank"] for row in rows(browser)] == ["2", "3", "1"]
    browser.refresh()
    wait_for_round(browser, 30)
    wait_for(browser, lambda: labels(browser) == ["milk", "cake", "tea"])


def test_what_rose_stands_beside_it_with_its_interval_and_a_click_shows_it_over_time(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    start = int(time.time() * 1000) - 20 * MINUTE
    publish(stream, each_minute(stream, 1, 20, start))
    browser.get(dashboard.url)
    wait_for_text(
        browser,
        "movers-note",
        "Between the last 5 minutes and the time of that length before, nothing changed by more than noise and "
        "ordinary chance explain.",
    )
    publish(stream, each_minute(stream, 21, 30, start))
    wait_for(browser, lambda: text(browser, "rising").startswith("▲milk rose, +1,450+"))
    low, high = (int(end.replace(",", "")) for end in re.findall(r"\+([\d,]+)", text(browser, "rising"))[1:])
    assert 1_450 - 100 < low < 1_450 < high < 1_450 + 100
    assert text(browser, "falling") == ""
    assert text(browser, "movers-note").startswith("How counts changed between the last 5 minutes and")
    browser.find_element(By.CSS_SELECTOR, "#rising button").click()
    assert text(browser, "legend") == "milk"


def test_what_moves_cannot_be_told_of_a_young_epoch_nor_after_a_silence(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    publish(stream, each_minute(stream, 1, 2))
    browser.get(dashboard.url)
    wait_for_text(browser, "movers-note", "Cannot tell yet: that takes two windows to compare.")
    publish(stream, each_minute(stream, 3, 30))
    wait_for(
        browser, lambda: text(browser, "movers-note").startswith("Cannot tell: nothing was released for")
    )
    assert text(browser, "rising") == ""


def test_a_row_that_comes_back_has_its_trend_also_on_an_idle_stream(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    publish(stream, each_minute(stream, 1, 30, late()))
    browser.get(dashboard.url)
    wait_for_round(browser, 30)
    drawn = "return [...document.querySelectorAll('#rows .trend path')].map(path => Boolean(path.getAttribute('d')))"
    wait_for(browser, lambda: browser.execute_script(drawn) == [True] * 3)
    search = browser.find_element(By.ID, "search")
    search.send_keys("nothing has this name")
    wait_for(browser, lambda: labels(browser) == [])
    search.clear()
    search.send_keys(Keys.ESCAPE)
    wait_for(browser, lambda: len(labels(browser)) == 3)
    wait_for(browser, lambda: browser.execute_script(drawn) == [True] * 3)
    pick(browser, "last 5 minutes")
    wait_for(browser, lambda: labels(browser) == ["milk", "tea", "cake"])
    assert browser.execute_script(drawn) == [True] * 3


def test_it_is_saved_as_csv_and_json_and_the_chart_as_a_picture(
    dashboard: Running, stream: Stream, browser: Chrome, tmp_path: Path
) -> None:
    """A spreadsheet must not run what strangers wrote."""
    hostile = {'=HYPERLINK("x")': 900, 'a "quoted", label': 800, "plain": 700}
    write(stream, release(64, hostile))
    browser.get(dashboard.url)
    wait_for_round(browser, 64)
    folder = tmp_path / "saved"
    allowed = {"behavior": "allow", "downloadPath": str(folder)}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", allowed)
    saved = folder / f"{stream.settings.stream}-epoch-1-round-64"
    for way in ("csv", "json", "png"):
        browser.find_element(By.CSS_SELECTOR, "#save summary").click()
        browser.find_element(By.CSS_SELECTOR, f"#save [data-way={way}]").click()
        file = saved.with_name(f"{saved.name}.{way}")
        wait_for(browser, file.exists)
    with saved.with_name(f"{saved.name}.csv").open(newline="") as lines:
        table = list(csv.reader(lines))
    what = counted("event", 3)
    assert text(browser, "counted") == what
    assert table == [
        ["rank", "label", "count", "low", "high", "counted"],
        ["1", '\'=HYPERLINK("x")', "900", "868", "932", what],
        ["2", 'a "quoted", label', "800", "768", "832", what],
        ["3", "plain", "700", "668", "732", what],
    ]
    found = json.loads(saved.with_name(f"{saved.name}.json").read_text())
    assert (found["round"], found["epsilon"], found["rows"][0]["label"]) == (64, 2, '=HYPERLINK("x")')
    assert found["counted"] == what
    assert "labels_seen" not in msgspec.json.encode(found).decode()
    assert saved.with_name(f"{saved.name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "clipboard", ["undefined", "{ writeText: async () => { throw new Error('denied'); } }"]
)
def test_a_link_is_there_to_copy_if_the_page_may_not(
    dashboard: Running, stream: Stream, browser: Chrome, clipboard: str
) -> None:
    """A page that came without TLS from another machine has no clipboard, and people may refuse it."""
    write(stream, release(1, {"tea": 900}))
    browser.get(f"{dashboard.url}/?label=tea")
    wait_for_round(browser, 1)
    browser.execute_script(f"Object.defineProperty(navigator, 'clipboard', {{ value: {clipboard} }})")
    browser.execute_script("window.prompt = (...told) => { window.told = told; }")
    browser.find_element(By.CSS_SELECTOR, "#save summary").click()
    browser.find_element(By.CSS_SELECTOR, "#save [data-way=link]").click()
    wait_for(browser, lambda: browser.execute_script("return window.told !== undefined"))
    assert browser.execute_script("return window.told[1]") == f"{dashboard.url}/?label=tea"
