"""The main chart: chosen labels over time, with intervals, read by pointer and keyboard, and what a link restores."""

import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from stream_dp.config.times import iso_timestamp
from stream_dp.releases.release import Release
from stream_dp.releases.whole_release import WholeRelease, decode_whole_release
from tests.dashboard.page import of_page, pin_button, text, wait_for, wait_for_round, wait_for_text
from tests.dashboard.running import Running, records
from tests.example_releases import release
from tests.system.browser.published import write
from tests.system.browser.test_windows import MINUTE, NOON, each_minute, publish
from tests.system.streams import Stream

_SHOWN = """page.curves([...document.querySelectorAll("#legend bdi")].map(each => each.textContent))"""

_WATCH_WORDS = """
window.words = [];
const draw = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (...all) { words.push(all[0]); return draw.apply(this, all); };
"""

_WATCH_GROUND = """
window.shaded = [];
const fill = CanvasRenderingContext2D.prototype.fillRect;
CanvasRenderingContext2D.prototype.fillRect = function (...all) {
  shaded.push(this.fillStyle);
  return fill.apply(this, all);
};
"""


def legend(browser: Chrome) -> list[str]:
    found: list[str] = browser.execute_script(
        "return [...document.querySelectorAll('#legend bdi')].map(each => each.textContent)"
    )
    return found


def drawn(browser: Chrome) -> dict[str, Any]:
    found: dict[str, Any] = of_page(browser, "curves", _SHOWN)
    return found


def test_it_draws_the_largest_labels_and_then_those_that_are_pinned(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    held = each_minute(stream, 1, 30)
    publish(stream, held)
    browser.get(dashboard.url)
    wait_for_round(browser, 30)
    wait_for(browser, lambda: legend(browser) == ["tea", "milk", "cake"])
    wait_for(browser, lambda: len(drawn(browser)["x"]) == 30)
    found = drawn(browser)
    assert (found["areTimes"], found["x"][0]) == (True, NOON / 1000 + 60)
    tea, _, cake = found["series"]
    assert tea["counts"] == [each.counts[each.labels.index("tea")] for each in held]
    assert (tea["low"][9], tea["high"][9]) == (2_268, 2_332)
    assert cake["counts"] == [None] * 27 + [200] * 3
    assert browser.execute_script("return document.querySelectorAll('#plot canvas').length") == 1
    pin_button(browser, "milk").click()
    assert legend(browser) == ["milk"]
    assert browser.current_url.endswith("/?label=milk")
    pin_button(browser, "cake").click()
    assert legend(browser) == ["milk", "cake"]


def test_two_pinned_labels_are_compared(dashboard: Running, stream: Stream, browser: Chrome) -> None:
    made = release(64, {"tea": 900, "milk": 700, "cake": 690})
    write(stream, made)
    whole: WholeRelease = decode_whole_release(msgspec.json.encode(made))
    apart, near = whole.compare("tea", "milk"), whole.compare("milk", "cake")
    browser.get(f"{dashboard.url}/?label=milk&label=tea")
    wait_for_round(browser, 64)
    wait_for(browser, lambda: "tea is above milk, by" in text(browser, "chart-note"))
    least, most = map(int, re.findall(r"\d+", text(browser, "chart-note"))[:2])
    assert abs(least - apart.low) < 2
    assert abs(most - apart.high) < 2
    browser.get(f"{dashboard.url}/?label=milk&label=cake")
    wait_for(browser, lambda: "whether milk or cake is larger" in text(browser, "chart-note"))
    [most] = map(int, re.findall(r"at most (\d+)", text(browser, "chart-note")))
    assert abs(most - near.high) < 2
    browser.get(f"{dashboard.url}/?label=milk&label=coffee")
    wait_for_text(browser, "chart-note", "The pinned labels; two are compared.")


def test_it_is_read_with_the_keyboard(dashboard: Running, stream: Stream, browser: Chrome) -> None:
    publish(stream, each_minute(stream, 1, 30))
    browser.get(dashboard.url)
    wait_for_round(browser, 30)
    plot = browser.find_element(By.ID, "plot")
    wait_for(browser, lambda: plot.get_attribute("aria-valuemax") == "29")
    assert plot.get_attribute("role") == "slider"
    assert str(plot.get_attribute("aria-label")).startswith("Counts of tea, milk, cake over time, 2026-01-31")
    plot.send_keys(Keys.HOME)
    assert plot.get_attribute("aria-valuetext") == (
        "2026-01-31 12:01:00 · round 1: tea 2,030, milk 510, cake not released"
    )
    plot.send_keys(Keys.ARROW_RIGHT)
    assert "round 2: tea 2,060" in str(plot.get_attribute("aria-valuetext"))
    tip = browser.find_element(By.ID, "tip")
    assert tip.is_displayed()
    assert "2,028 – 2,092" in tip.text
    plot.send_keys(Keys.TAB)
    assert not tip.is_displayed()


def second_epoch(stream: Stream, first: int, last: int) -> list[Release]:
    """Releases of epoch 2, each half an hour later than that of the same round in epoch 1."""
    return [
        msgspec.structs.replace(
            each, epoch=2, nonce="22" * 16, ts=iso_timestamp(NOON + MINUTE * (30 + each.round))
        )
        for each in each_minute(stream, first, last)
    ]


def test_it_goes_back_to_the_epoch_before_and_marks_where_this_one_begins(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    before, now = each_minute(stream, 1, 30), second_epoch(stream, 1, 10)
    stream.write(stream.settings.releases, records(before + now))
    browser.get(dashboard.url)
    wait_for(browser, lambda: text(browser, "about").endswith("epoch 2"))
    wait_for_round(browser, 10)
    wait_for(browser, lambda: len(drawn(browser)["x"]) == 40)
    found = drawn(browser)
    assert (found["begins"], found["epoch"], found["gaps"]) == ([30], [1] * 30 + [2] * 10, [])
    tea = found["series"][0]
    assert tea["counts"] == [each.counts[each.labels.index("tea")] for each in before + now]
    assert text(browser, "chart-range").endswith(
        "A dashed line is where an epoch begins; its counts start anew"
    )
    browser.execute_script(_WATCH_WORDS)
    of_page(browser, "state", "page.changed(true)")
    wait_for(browser, lambda: "epoch 2" in browser.execute_script("return words"))
    plot = browser.find_element(By.ID, "plot")
    plot.send_keys(Keys.HOME)
    assert "round 1 of epoch 1: tea 2,030" in str(plot.get_attribute("aria-valuetext"))
    plot.send_keys(Keys.END)
    assert "round 10 of epoch 2: tea 2,300" in str(plot.get_attribute("aria-valuetext"))
    of_page(browser, "past", "page.lookBack('round=4&epoch=2')")
    wait_for_round(browser, 4)
    assert (len(drawn(browser)["x"]), drawn(browser)["begins"]) == (34, [30])


def test_where_nothing_was_released_for_long_the_ground_is_shaded(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    hour = 60 * MINUTE
    later = [
        msgspec.structs.replace(each, ts=iso_timestamp(NOON + hour + MINUTE * each.round))
        for each in each_minute(stream, 11, 20)
    ]
    stream.write(stream.settings.releases, records(each_minute(stream, 1, 10) + later))
    browser.get(dashboard.url)
    wait_for_round(browser, 20)
    wait_for(browser, lambda: len(drawn(browser)["x"]) == 20)
    begins = NOON / 1000 + 600
    assert drawn(browser)["gaps"] == [[begins, begins + 3_660]]
    browser.execute_script(_WATCH_GROUND)
    of_page(browser, "state", "page.changed(true)")
    ground = of_page(browser, "dom", "page.style('--track')")
    wait_for(browser, lambda: ground in browser.execute_script("return shaded"))


def test_a_link_restores_what_is_seen(dashboard: Running, stream: Stream, browser: Chrome) -> None:
    publish(stream, each_minute(stream, 1, 30))
    browser.get(f"{dashboard.url}/?label=milk&label=tea&window=5m&round=24")
    wait_for_round(browser, 24)
    wait_for(browser, lambda: text(browser, "window-note").startswith("Rounds 20 to 24"))
    assert legend(browser) == ["milk", "tea"]
    assert text(browser, "badge") == "History"
    wait_for(browser, lambda: len(drawn(browser)["x"]) == 24)
    address = browser.current_url
    place = {"round": ["24"], "epoch": ["1"]}
    seen = {"label": ["milk", "tea"], "window": ["5m"]}
    assert parse_qs(urlsplit(address).query) == seen | place
    browser.find_element(By.ID, "live").click()
    wait_for_round(browser, 30)
    assert parse_qs(urlsplit(browser.current_url).query) == seen
    browser.execute_script("localStorage.clear()")
    browser.get(address)
    wait_for_round(browser, 24)
    assert legend(browser) == ["milk", "tea"]
    assert text(browser, "badge") == "History"
