"""What the page's layout has to hold: rows, tiles, clocks and cards, on every screen."""

import time
from typing import Any

import msgspec
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from stream_dp.events.record import Record
from stream_dp.kafka import log
from tests.dashboard.chromium import size
from tests.dashboard.page import of_page, text, wait_for, wait_for_round, wait_for_text
from tests.dashboard.running import Running, records
from tests.example_releases import release
from tests.system.browser.published import many, write
from tests.system.streams import Stream

_WATCH_ROWS = """
window.overlap = 0;
(function look() {
  const seen = [...document.querySelectorAll("#rows tr")].map(each => each.getBoundingClientRect());
  seen.forEach((each, place) => { if (place) overlap = Math.max(overlap, seen[place - 1].bottom - each.top); });
  requestAnimationFrame(look);
})();
"""

_OUTSIDE_THEIR_TILE = """
return [...document.querySelectorAll("#facts dd:not(.meter)")].filter(each => {
  const text = document.createRange(), tile = each.parentElement.getBoundingClientRect();
  text.selectNodeContents(each);
  const end = text.getBoundingClientRect();
  return end.right > tile.right - 4 || each.scrollWidth > each.clientWidth + 1;
}).map(each => each.textContent)
"""

_THRESHOLD_AND_END = """
const places = [".axis", "#axis-tau", "#axis-end"];
const [axis, threshold, end] = places.map(each => document.querySelector(each).getBoundingClientRect());
return {
  shows: end.width > 0 && end.top < axis.bottom,
  apart: threshold.right <= end.left,
  inside: threshold.right <= axis.right + 1,
}
"""


def test_no_two_rows_overlap_while_they_are_sorted(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    counts = many(20)
    write(stream, release(1, counts))
    browser.get(dashboard.url)
    wait_for_round(browser, 1)
    browser.execute_script(_WATCH_ROWS)
    write(stream, release(2, dict(zip(reversed(counts), counts.values(), strict=True))))
    wait_for_round(browser, 2)
    wait_for(browser, lambda: browser.execute_script("return document.getAnimations().length") == 0)
    assert browser.execute_script("return overlap") <= 1


def test_a_tile_holds_its_text_on_every_screen_and_a_wide_one_is_used(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    """The release of 22 minutes ago has the longest age that is told."""
    long_ago = time.time_ns() // 1_000_000 - 22 * 60_000
    shown = release(60_000, {"a": 1_234_567}, stream.settings.stream)
    stream.write(stream.settings.releases, [each._replace(timestamp=long_ago) for each in records([shown])])
    browser.get(dashboard.url)
    wait_for_round(browser, 60_000)
    wait_for(browser, lambda: text(browser, "age").startswith("22 min"))
    for width in (320, 700, 900, 1_060, 1_100, 1_280, 1_920, 2_560):
        size(browser, width, 900)
        assert browser.execute_script(_OUTSIDE_THEIR_TILE) == [], width
    used = "return document.querySelector('main').getBoundingClientRect().width / innerWidth"
    assert browser.execute_script(used) > 0.95


def test_names_are_whole_where_there_is_room(dashboard: Running, stream: Stream, browser: Chrome) -> None:
    """Those of 34 characters are on a wide screen, and of 24 on a small one; the bars keep theirs."""
    names = "return [...document.querySelectorAll('#rows td.name')]"
    cut = f"{names}.filter(name => name.scrollWidth > name.clientWidth).length"
    bars = "return document.querySelector('#rows td.bar').clientWidth"
    found = {}
    for number, (width, longest) in enumerate(
        ((1_700, 34), (1_280, 24), (1_280, 60), (2_560, 34), (1_000, 24)), 1
    ):
        write(
            stream, release(number, {("White Hanging Heart T-Light Holder" * 2)[:longest]: 900, "tea": 500})
        )
        browser.get(dashboard.url)
        wait_for_round(browser, number)
        browser.refresh()  # now it is nothing new
        wait_for_round(browser, number)
        size(browser, width, 900)
        found[width, longest] = browser.execute_script(cut)
        assert browser.execute_script(bars) > 100, width
    assert found == {(1_700, 34): 0, (1_280, 24): 0, (1_280, 60): 1, (2_560, 34): 0, (1_000, 24): 0}


@pytest.mark.parametrize("largest", [44_664, 150])
def test_the_threshold_is_never_written_over_the_end_of_the_axis(
    dashboard: Running, stream: Stream, browser: Chrome, largest: int
) -> None:
    """The column of bars is narrowest just above a change of the layout; the threshold is 112."""
    write(stream, release(1, {"a": largest, "b": 120}))
    browser.get(dashboard.url)
    wait_for_round(browser, 1)
    found = {}
    for width in (833, 1_060, 1_200, 1_201, 1_280, 1_800, 1_887, 1_888, 1_920, 2_560):
        size(browser, width, 900)
        found[width] = browser.execute_script(_THRESHOLD_AND_END)
    assert {width: each for width, each in found.items() if each["shows"] and not each["apart"]} == {}
    assert {width: each for width, each in found.items() if not each["inside"]} == {}
    assert found[2_560]["shows"]


def test_on_a_wide_screen_the_chart_reaches_its_end_and_stays_beside_the_ranking(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    write(stream, release(1, many(200)))
    browser.get(dashboard.url)
    wait_for_round(browser, 1)

    def chart() -> dict[str, float]:
        place = "return document.getElementById('chart').getBoundingClientRect().toJSON()"
        found: dict[str, float] = browser.execute_script(place)
        return found

    size(browser, 2_560, 1_300)
    wait_for(browser, lambda: 0 <= 1_300 - chart()["bottom"] < 60)
    drawn = "return document.querySelector('#plot canvas').getBoundingClientRect().height"
    wait_for(browser, lambda: browser.execute_script(drawn) > 800)
    size(browser, 2_560, 800)
    browser.execute_script("scrollTo(0, 400)")
    wait_for(browser, lambda: browser.execute_script("return scrollY") == 400)
    wait_for(browser, lambda: 0 <= chart()["top"] < chart()["bottom"] <= 800)


def test_on_a_phone_what_rises_stands_before_the_ranking(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    write(stream, release(1, many(30)))
    browser.get(dashboard.url)
    wait_for_round(browser, 1)
    size(browser, 390, 844)
    tops = "return ['chart', 'movers', 'ranking'].map(id => document.getElementById(id).getBoundingClientRect().top)"
    found = browser.execute_script(tops)
    assert found == sorted(found)


def test_the_past_has_one_clock_and_knows_nothing_of_what_came_later(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    early = [release(number, {"a": 300 + number}) for number in range(1, 6)]
    write(stream, *early)
    browser.get(dashboard.url)
    wait_for_round(browser, 5)
    write(stream, release(6, {"a": 400, "later": 200}))
    wait_for_round(browser, 6)
    wait_for(browser, lambda: "later" in text(browser, "new"))
    assert text(browser, "age-title") == "Last release"
    curve = "return document.querySelector('#rows .trend path').getAttribute('d').match(/[ML]/g)?.length"
    wait_for(browser, lambda: browser.execute_script(curve) == 6)
    of_page(browser, "past", "page.lookBack('round=3')")
    wait_for_round(browser, 3)
    assert text(browser, "age-title") == "This release"
    assert "ago" not in text(browser, "age")
    ts = browser.execute_script("return document.getElementById('ts').title")
    assert (text(browser, "age"), text(browser, "ts")) == (ts[11:19], f"UTC on {ts[:10]}")
    assert "later" not in text(browser, "new")
    wait_for(browser, lambda: browser.execute_script(curve) == 3)
    browser.find_element(By.ID, "live").click()
    wait_for(browser, lambda: "later" in text(browser, "new") and browser.execute_script(curve) == 6)
    assert text(browser, "age-title") == "Last release"


def test_the_stream_has_its_name_before_its_first_release(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    browser.get(dashboard.url)
    wait_for_text(browser, "stream", stream.settings.stream)
    assert browser.title == f"{stream.settings.stream} · stream-dp"


def test_a_search_without_matches_leaves_no_axis(dashboard: Running, stream: Stream, browser: Chrome) -> None:
    write(stream, release(1, many(3)))
    browser.get(dashboard.url)
    wait_for_round(browser, 1)
    browser.find_element(By.ID, "search").send_keys("nowhere")
    wait_for(browser, lambda: text(browser, "matches").startswith("0 of 3 released labels match."))
    assert not browser.find_element(By.ID, "table").is_displayed()
    browser.find_element(By.ID, "search").clear()
    browser.execute_script("document.getElementById('search').dispatchEvent(new Event('input'))")
    assert browser.find_element(By.ID, "table").is_displayed()


def test_a_card_of_a_result_cuts_no_row_and_has_one_epsilon(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    """Its guarantee says epsilon 1; what the ledger made of it at its own delta is another number."""
    result: dict[str, Any] = {
        "status": "done",
        "job": "top-k",
        "labels": [f"label {number}" for number in range(20)],
        "counts": list(range(120, 100, -1)),
        "cost": {"rho": 0.125, "delta": 0, "epsilon": 0.9, "at_delta": 1e-5},
        "guarantee": "Taking any one event out changes any probability by at most a factor of e^1 (about 2.7).",
        "ts": "2026-01-31T12:00:00.000Z",
    }
    log.create_topics(stream.settings.kafka, f"{stream.settings.stream}.results")
    stream.write(f"{stream.settings.stream}.results", [Record(0, 0, b"1", msgspec.json.encode(result))])
    write(stream, release(1, many(3)))
    browser.get(dashboard.url)
    wait_for(browser, lambda: browser.find_element(By.ID, "results").is_displayed())
    card = browser.find_element(By.CSS_SELECTOR, "#result-cards article")
    assert "rho 0.125" in card.text
    assert "epsilon" not in card.text
    cut = (
        "return [...document.querySelectorAll('#result-cards ol')].some(e => e.scrollHeight > e.clientHeight)"
    )
    assert not browser.execute_script(cut)
    assert "label 8" not in card.text
    card.find_element(By.TAG_NAME, "summary").click()
    assert "label 19" in card.text
    assert not browser.execute_script(cut)


def test_a_stream_that_goes_on_for_ever_has_no_end_and_is_not_complete(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    write(stream, msgspec.structs.replace(release(7, many(3)), horizon=None, window_rounds=1_000))
    browser.get(dashboard.url)
    wait_for_round(browser, 7)
    wait_for_text(browser, "badge", "Live")
    assert text(browser, "about") == "Private counts of the last 1,000 rounds · epoch 1"
    assert not browser.find_element(By.ID, "of-horizon").is_displayed()
    assert not browser.find_element(By.ID, "progress").is_displayed()
