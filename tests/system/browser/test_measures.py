"""The ranking and the chart as rates and shares: what is shown is the count, times what the page says."""

import msgspec
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from tests.dashboard.page import of_page, rows, text, wait_for, wait_for_round
from tests.dashboard.running import Running
from tests.system.browser.test_windows import each_minute, late, pick, publish
from tests.system.streams import Stream


def show_as(browser: Chrome, words: str) -> None:
    Select(browser.find_element(By.ID, "measure")).select_by_visible_text(words)


def numbers(browser: Chrome) -> list[tuple[str, str]]:
    return [(row["label"], row["count"]) for row in rows(browser)]


def offered(browser: Chrome) -> list[str]:
    options = Select(browser.find_element(By.ID, "measure")).options
    return [option.text for option in options if option.is_enabled()]


def test_counts_as_rates_of_the_window_and_of_all_since_the_start(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    publish(stream, each_minute(stream, 1, 30, late()))
    browser.get(dashboard.url)
    wait_for_round(browser, 30)
    wait_for(browser, lambda: "per hour" in offered(browser))
    show_as(browser, "per minute")  # 2,900 in the 29 minutes since the first round
    wait_for(browser, lambda: numbers(browser)[:1] == [("tea", "100")])
    assert text(browser, "count-title") == "Per minute"
    pick(browser, "last 5 minutes")
    wait_for(browser, lambda: numbers(browser) == [("milk", "▲300"), ("tea", "30.0"), ("cake", "≥5.2")])
    show_as(browser, "per hour")
    wait_for(browser, lambda: numbers(browser)[:2] == [("milk", "▲18,000"), ("tea", "1,800")])
    low, high = (int(end.replace(",", "")) for end in rows(browser)[0]["interval"].split(" – "))
    assert 17_000 < low < 18_000 < high < 19_000
    assert browser.current_url.endswith("/?window=5m&as=hour")
    browser.refresh()
    wait_for(browser, lambda: numbers(browser)[:1] == [("milk", "▲18,000")])
    show_as(browser, "counts")
    wait_for(browser, lambda: numbers(browser)[:1] == [("milk", "▲1,500")])
    assert text(browser, "count-title") == "In window"


def test_the_chart_shows_what_came_in_the_while_before_each_moment(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    publish(stream, each_minute(stream, 1, 30, late()))
    browser.get(f"{dashboard.url}/?window=10m&as=hour&label=milk")
    wait_for(
        browser, lambda: "Each point is of about the 10 minutes before it" in text(browser, "chart-range")
    )
    assert text(browser, "chart-title") == "Over time, per hour"
    place = browser.find_element(By.ID, "plot")
    wait_for(
        browser, lambda: "milk 9,300" in (place.get_attribute("aria-valuetext") or "")
    )  # 1,550 in 10 minutes
    show_as(browser, "counts")
    wait_for(browser, lambda: text(browser, "chart-title") == "Over time")
    wait_for(browser, lambda: "milk 2,250" in (place.get_attribute("aria-valuetext") or ""))


def test_shares_are_of_all_that_was_counted_if_releases_tell_how_much_that_is(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    some = each_minute(stream, 1, 30, late())
    publish(stream, some[:29])
    browser.get(f"{dashboard.url}/?as=share")
    wait_for_round(browser, 29)
    wait_for(browser, lambda: "share of all" not in offered(browser))
    assert numbers(browser)[:1] == [("tea", "2,870")]
    told = msgspec.structs.replace(some[29], units=5_800, over_cap=0, units_sd=40.0)
    publish(stream, [told])
    wait_for(browser, lambda: numbers(browser)[:1] == [("tea", "50.0%")])
    assert text(browser, "count-title") == "Share"
    low, high = (float(end.rstrip("%")) for end in rows(browser)[0]["interval"].split(" – "))
    assert low < 49.0 < 50 < 51.0 < high, "what is not known of the whole widens them"
    pick(
        browser, "last 5 minutes"
    )  # the release where it begins does not tell how many events came until then
    wait_for(browser, lambda: numbers(browser)[:1] == [("milk", "▲1,500")])
    assert of_page(browser, "measure", "page.measured().column") == ""


def test_shares_of_a_window_are_of_what_came_in_it(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    every = each_minute(stream, 1, 30, late())
    told = {"over_cap": 0, "units_sd": 40.0}
    publish(
        stream,
        [msgspec.structs.replace(each, units=1_000 * each.round, **told) for each in every],
    )
    browser.get(f"{dashboard.url}/?as=share&window=5m")
    wait_for_round(browser, 30)
    wait_for(browser, lambda: numbers(browser)[:1] == [("milk", "▲30.0%")])  # 1,500 of 5,000
    assert text(browser, "count-title") == "Share"
    pick(browser, "since the start")
    wait_for(browser, lambda: numbers(browser)[:1] == [("tea", "9.67%")])
