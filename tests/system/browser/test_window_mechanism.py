"""A stream that counts the last W rounds without end: its page says so, and offers nothing that needs a beginning."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from stream_dp.privacy.wording import for_viewers
from stream_dp.releases.release import Release, decode_release
from tests.dashboard.page import expected_rows, of_page, shown_rows, text, wait_for_round
from tests.dashboard.running import Running
from tests.system.browser.test_accessible import complaints_of_axe
from tests.system.streams import Stream, small_stream

WINDOW, ROUNDS = 12, 40


@pytest.fixture
def stream(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> Iterator[Stream]:
    """Each event brings tea, and milk too until half of them are read."""
    own = {"mechanism": "window", "window": WINDOW, "epsilon": 8.0, "delta": 0.2, "items_per_event": 2}
    with small_stream(kafka, redis_url, topic_prefix, tmp_path, **own) as made:
        made.feed([b'{"items": ["tea", "milk"]}'] * (ROUNDS // 2) + [b'{"items": ["tea"]}'] * (ROUNDS // 2))
        assert made.run(until_round=ROUNDS) == 0, made.logged()
        yield made


def released(stream: Stream) -> list[Release]:
    return [decode_release(record.value or b"") for record in stream.releases()]


def is_seen(browser: Chrome, name: str) -> bool:
    return browser.find_element(By.ID, name).is_displayed()


def test_the_page_says_of_which_rounds_the_counts_are_and_shows_no_horizon(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    newest = released(stream)[-1]
    browser.get(dashboard.url)
    wait_for_round(browser, ROUNDS)
    assert shown_rows(browser) == expected_rows(newest)
    assert "tea" in newest.labels
    assert text(browser, "about") == "Private counts of the last 12 rounds · epoch 1"
    assert text(browser, "window-note") == "Rounds 29 to 40: every count is of the last 12 rounds."
    assert text(browser, "count-title") == "In window"
    for nothing in ("of-horizon", "progress", "picker", "movers", "axis-tau"):
        assert not is_seen(browser, nothing), nothing
    assert is_seen(browser, "window-note")
    assert not browser.find_element(By.ID, "trend-title").is_enabled()


def test_its_guarantee_is_that_of_all_rounds_and_axe_finds_no_violation(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    browser.get(dashboard.url)
    wait_for_round(browser, ROUNDS)
    assert text(browser, "protects") == for_viewers("event", 8.0, 0.2)
    assert text(browser, "guarantee").startswith(
        "Taking any one event (up to 2 labels) out of the data changes the probability of anything that all rounds "
        "together show by at most a factor of e^8 (about 2,981.0), except with probability 0.2."
    )
    assert (text(browser, "mechanism"), text(browser, "unit")) == ("window", "one event")
    passed, violations = complaints_of_axe(browser)
    assert violations == []
    assert passed > 30


def test_a_link_that_picks_a_window_shows_the_one_that_is_there(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    newest = released(stream)[-1]
    browser.get(f"{dashboard.url}/?window=5m&sort=-trend")
    wait_for_round(browser, ROUNDS)
    assert shown_rows(browser) == expected_rows(newest)
    assert text(browser, "window-note").startswith("Rounds 29 to 40: ")
    assert of_page(browser, "windows", "page.request.at") == 0, "a window of windows was asked for"
    saved = json.loads(of_page(browser, "save", "JSON.stringify(page.content())"))
    assert (saved["window"], saved["since_round"], saved["sd"]) == ("12", 28, newest.sd)


def test_its_past_has_windows_too_and_the_first_ones_are_short(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    held = released(stream)
    browser.get(dashboard.url)
    wait_for_round(browser, ROUNDS)
    for number, covered in (
        (20, "Rounds 9 to 20: every count is of the last 12 rounds."),
        (7, "Rounds 1 to 7: the epoch is younger than its window of 12 rounds."),
    ):
        of_page(browser, "past", f"page.lookBack('round={number}')")
        wait_for_round(browser, number)
        assert shown_rows(browser) == expected_rows(held[number - 1])
        assert text(browser, "window-note") == covered
        assert not is_seen(browser, "picker")
