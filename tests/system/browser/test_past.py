"""The page looks back: paused, at an earlier round, at a moment, at a replay of old events."""

import time

import msgspec
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from stream_dp.events.record import Record
from tests.dashboard.chromium import complaints
from tests.dashboard.page import (
    expected_rows,
    of_page,
    shown_rows,
    text,
    wait_for,
    wait_for_round,
    wait_for_text,
    wait_until_drawn,
)
from tests.dashboard.running import Running, records
from tests.example_releases import release
from tests.system.browser.published import write
from tests.system.streams import Stream


def wait_until_heard(browser: Chrome, number: int) -> None:
    """Return when the page has been told of this round's release, and would show it now if it meant to."""
    wait_for(browser, lambda: of_page(browser, "state", "page.heard.release.round") == number)
    wait_until_drawn(browser)


def test_pause_and_the_past(dashboard: Running, stream: Stream, browser: Chrome) -> None:
    held = [release(number, {"a": 300 + number, "b": 200 + number}) for number in range(1, 101)]
    write(stream, *held[:90])
    browser.get(dashboard.url)
    wait_for_round(browser, 90)
    pause = browser.find_element(By.ID, "pause")
    pause.click()
    write(stream, *held[90:])
    wait_until_heard(browser, 100)
    wait_for_text(browser, "badge", "Paused")
    assert text(browser, "round") == "90"
    pause.click()
    wait_for_round(browser, 100)
    browser.execute_script(
        "const it = document.getElementById('slider'); it.value = 37; it.dispatchEvent(new Event('input'))"
    )
    wait_for_round(browser, 37)
    wait_for_text(browser, "badge", "History")
    assert shown_rows(browser) == expected_rows(held[36])
    write(stream, release(101, {"a": 999}))
    wait_until_heard(browser, 101)
    assert text(browser, "round") == "37"
    browser.find_element(By.ID, "live").click()
    wait_for_round(browser, 101)
    wait_for_text(browser, "badge", "Live")


def test_releases_of_old_events_are_marked_as_a_replay(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    now = time.time_ns() // 1_000_000
    long_ago = {"ts": "2013-01-01T10:15:00.000Z", "stream": stream.settings.stream}
    old = msgspec.structs.replace(release(5, {"a": 300}), **long_ago)
    stream.write(stream.settings.releases, [Record(0, now, b"k", msgspec.json.encode(old))])
    browser.get(dashboard.url)
    wait_for_round(browser, 5)
    wait_for_text(browser, "badge", "Replay")
    assert "2013-01-01 10:15:00 UTC" in text(browser, "notice-text")
    last = msgspec.structs.replace(release(65_535, {"a": 300}), **long_ago)
    stream.write(stream.settings.releases, [Record(0, now, b"k", msgspec.json.encode(last))])
    wait_for_round(browser, 65_535)
    wait_for_text(browser, "badge", "Complete")


def look_back_to(browser: Chrome, moment: str) -> None:
    browser.execute_script(
        "const it = document.getElementById('moment');"
        "it.value = arguments[0]; it.dispatchEvent(new Event('change'))",
        moment,
    )


def test_the_past_by_time_across_epochs(dashboard: Running, stream: Stream, browser: Chrome) -> None:
    """A release a second from noon on: five rounds of epoch 1, then epoch 2, which promises something else."""
    noon, name = 1_769_860_800_000, stream.settings.stream
    first = [
        msgspec.structs.replace(release(number, {"a": 300 + number}), stream=name) for number in range(1, 6)
    ]
    second = [
        msgspec.structs.replace(
            release(number, {"b": 500}), stream=name, epoch=2, nonce="22" * 16, epsilon=5.0
        )
        for number in (1, 2)
    ]
    stream.write(
        stream.settings.releases,
        [
            each._replace(timestamp=noon + 1_000 * second)
            for second, each in enumerate(records(first + second))
        ],
    )
    browser.get(dashboard.url)
    wait_for_round(browser, 2)
    look_back_to(browser, "2026-01-31T12:00:03")
    wait_for_round(browser, 4)
    wait_for_text(browser, "badge", "History")
    assert shown_rows(browser) == expected_rows(first[3])
    assert text(browser, "about").endswith("epoch 1")
    assert text(browser, "slider-value") == "round 4"
    assert (text(browser, "epsilon"), "e^2 " in text(browser, "guarantee")) == ("2", True)
    look_back_to(browser, "2026-01-31T11:59")
    wait_for(browser, lambda: "does not hold a release of 2026-01-31T11:59" in text(browser, "notice-text"))
    assert text(browser, "round") == "4"
    [said] = complaints(browser)
    assert "404" in said["message"]
    browser.find_element(By.ID, "live").click()
    wait_for_round(browser, 2)
    assert (text(browser, "epsilon"), "e^5" in text(browser, "guarantee")) == ("5", True)


def test_where_few_rounds_are_released_the_slider_shows_the_release_before(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    shown = {number: release(number, {"a": number}) for number in range(100, 1_001, 100)}
    write(stream, *shown.values())
    browser.get(dashboard.url)
    wait_for_round(browser, 1_000)
    assert "Rounds per second" in browser.find_element(By.ID, "facts").text
    points = "return document.querySelector('#rows .trend path').getAttribute('d').match(/[ML]/g)?.length"
    wait_for(browser, lambda: browser.execute_script(points) == 10)
    slide = (
        "const it = document.getElementById('slider'); it.value = 555; it.dispatchEvent(new Event('input'))"
    )
    browser.execute_script(slide)
    wait_for_round(browser, 500)
    assert shown_rows(browser) == expected_rows(shown[500])
    wait_for(browser, lambda: text(browser, "slider-value") == "round 500")
    told = text(browser, "notice-text")
    assert told.startswith("Round 555 was not released. You see round 500 of epoch 1 as it was released, ")
    browser.execute_script(slide.replace("555", "300"))
    wait_for_round(browser, 300)
    wait_for(browser, lambda: text(browser, "notice-text").startswith("You see round 300 of epoch 1"))


def test_a_label_grows_a_curve_with_gaps_and_is_called_new_once(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    write(stream, *(release(number, {"a": 100 * number} if number != 3 else {}) for number in range(1, 6)))
    browser.get(dashboard.url)
    wait_for_round(browser, 5)
    assert text(browser, "new") == "a round 1"
    curve = "return document.querySelector('#rows .trend path').getAttribute('d')"
    wait_for(browser, lambda: browser.execute_script(curve) == "M20.0 18.0h0L40.0 14.0M80.0 6.0h0L100.0 2.0")
    write(stream, release(6, {"a": 600, "late": 200}))
    wait_for(browser, lambda: text(browser, "new") == "late round 6a round 1")
    write(stream, release(7, {"a": 700}), release(8, {"a": 800, "late": 210}))
    wait_for_round(browser, 8)
    assert text(browser, "new") == "late round 6a round 1"
