"""The dashboard in a real browser: it shows what the topic says, and goes on after a restart."""

from math import ceil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

import stream_dp
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.releases.estimates.intervals import whole_intervals
from stream_dp.releases.release import TestRecord as FoundBy
from tests.dashboard.chromium import complaints, size
from tests.dashboard.page import (
    expected_rows,
    of_page,
    pin_button,
    rows,
    shown_rows,
    start_the_clock,
    stop_the_clock,
    text,
    wait_for,
    wait_for_round,
    wait_for_text,
)
from tests.dashboard.running import Running, running
from tests.example_releases import carrying_on, release
from tests.system.browser.published import write
from tests.system.example_events import event, some_events
from tests.system.streams import Stream, small_stream

HOSTILE = [
    "<img src=x onerror=window.hacked=1>",
    "<script>window.hacked=1</script>",
    "__proto__",
    "constructor",
    "\u202eright to left",
    "a&b=c#d/e?f%20g",
    "x" * 1024,
    " ",
    "\u0000\n\ttabs",
    "javascript:alert(1)",
    '"><svg onload=window.hacked=1>',
]


def test_it_shows_exactly_what_a_worker_releases_and_goes_on_by_itself(
    browser: Chrome, kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    with (
        small_stream(kafka, redis_url, topic_prefix, tmp_path) as stream,
        running(kafka, topic_prefix, tmp_path) as dashboard,
    ):
        browser.get(dashboard.url)
        worker = stream.start()
        stream.feed(
            [event("tea")]
        )  # once the worker is up, releases follow their events at once: they are live
        stream.wait_until_round(1, worker)
        for number, events in ((200, some_events(199, 1)), (300, some_events(100, 2))):
            stream.feed(events)
            stream.wait_until_round(number, worker)
            wait_for_round(browser, number)
            with stream_dp.subscribe(kafka, topic_prefix, "earliest") as releases:  # intervals know the past
                last = next(each for each in releases if each.round == number)
            assert len(last.labels) > 3
            assert shown_rows(browser) == expected_rows(last)[:25]
            assert text(browser, "horizon") == f"{last.horizon:,}"
            assert text(browser, "tau") == f"{last.tau:,}"
            assert text(browser, "released") == f"{len(last.labels):,}"
            assert text(browser, "margin") == f"± {ceil(1.96 * last.sd):,}"
            assert (text(browser, "epsilon"), text(browser, "delta")) == ("30", "1e-6")
            assert float(text(browser, "rho")) == pytest.approx(last.rho, rel=0.005)
            wait_for_text(browser, "badge", "Live")
            assert "any one event" in text(browser, "guarantee")
        assert "First counts are too high" in browser.find_element(By.TAG_NAME, "body").text
        browser.get("about:blank")


_TOTALS = """
return [...document.querySelectorAll("#rows td.total")].map(
  cell => [cell.checkVisibility(), cell.textContent, cell.title])
"""


def test_totals_over_epochs_stand_beside_the_counts_and_only_where_there_are_any(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    counts = {"a": 1_000, "b": 500, "c": 112}
    write(stream, release(64, counts))
    browser.get(dashboard.url)
    wait_for_round(browser, 64)
    assert browser.execute_script(_TOTALS) == [[False, "", ""]] * 3
    write(stream, carrying_on(release(65, counts)))
    wait_for_round(browser, 65)
    assert browser.execute_script(_TOTALS) == [
        [True, "2,000 ± 49", "since epoch 1"],
        [True, "1,500 ± 49", "since epoch 1"],
        [True, "112 ± 32", "since epoch 3"],
    ]
    size(browser, 360, 800)
    assert [shown for shown, _, _ in browser.execute_script(_TOTALS)] == [True] * 3
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")


def test_bars_and_threshold_line_stand_where_the_numbers_say(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    shown = release(64, {"a": 1_000, "b": 500, "c": 112})
    write(stream, shown)
    browser.get(dashboard.url)
    wait_for_round(browser, 64)
    wait_for(browser, lambda: browser.execute_script("return document.getAnimations().length") == 0)
    scale = float(text(browser, "axis-end").replace(",", ""))
    assert scale >= 1_000 + 1.96 * shown.sd
    rows = browser.find_elements(By.CSS_SELECTOR, "#rows tr")
    for row, count, low, high in zip(rows, shown.counts, *whole_intervals(shown), strict=True):
        track, solid, spread, tick = (
            browser.execute_script("return arguments[0].getBoundingClientRect().toJSON()", each)
            for each in (
                row.find_element(By.CSS_SELECTOR, ".track"),
                *(
                    row.find_element(By.CSS_SELECTOR, f".track .{name}")
                    for name in ("solid", "spread", "tick")
                ),
            )
        )
        assert solid["width"] / track["width"] == pytest.approx(low / scale, abs=0.003)
        assert spread["width"] / track["width"] == pytest.approx(high / scale, abs=0.003)
        assert (tick["x"] - track["x"]) / track["width"] == pytest.approx(count / scale, abs=0.003)
    at = browser.execute_script("return document.getElementById('table').style.getPropertyValue('--tau-at')")
    assert float(at) == pytest.approx(112 / scale, abs=0.001)


def test_where_tests_find_labels_it_says_when_the_next_is_due_and_what_each_found(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    """A test round has a threshold, but no line stands there; a label that was known is not called new."""
    record = FoundBy(round=64, tau=112, sd=20.0)
    discovery = {
        "mechanism": "blt",
        "shown": "kept",
        "next_test": 128,
        "at_least": 1,
        "draw_sd": 2.0,
        "test_draw_sd": 3.0,
    }
    for number, counts in ((63, {"listed": 30}), (64, {"listed": 31, "tea": 140})):
        told = [0, 1][: len(counts)]
        made = msgspec.structs.replace(
            release(number, counts),
            **discovery,
            tau=112 if number == 64 else None,
            found=told,
            since=told,
            sds={f"{test}": 16.0 for test in told},
            tests={"1": record} if number == 64 else {},
        )
        write(stream, made)
        if number == 63:
            browser.get(dashboard.url)
        wait_for_round(browser, number)
    assert (text(browser, "tau-title"), text(browser, "tau")) == ("Next test", "round 128")
    assert text(browser, "tau-note").endswith("new labels are looked for")
    assert not browser.find_element(By.ID, "axis-tau").is_displayed()
    marks = "return [...document.querySelectorAll('#rows .found')].map(mark => mark.textContent)"
    assert browser.execute_script(marks) == ["found in round 64", "known"]
    wait_for(browser, lambda: text(browser, "new").startswith("tea"))
    assert "listed" not in text(browser, "new")


def test_it_survives_a_restart_of_the_server(dashboard: Running, stream: Stream, browser: Chrome) -> None:
    write(stream, release(1, {"a": 300}))
    browser.get(dashboard.url)
    wait_for_round(browser, 1)
    wait_for(browser, lambda: of_page(browser, "trends", "page.trends.size === 1 && !page.request.busy"))
    wait_for(browser, lambda: of_page(browser, "windows", "!page.request.busy"))
    browser.execute_script("window.mark = 'the same page'")
    assert dashboard.stop() == 0
    wait_for_text(browser, "badge", "Reconnecting")
    assert browser.find_element(By.ID, "notice").is_displayed()
    assert shown_rows(browser)[0][0] == "a"
    said: list[dict[str, Any]] = []

    def has_knocked_in_vain() -> bool:
        said.extend(complaints(browser))
        return bool(said)

    wait_for(browser, has_knocked_in_vain)
    after = release(3, {"b": 500, "a": 310})
    write(stream, release(2, {"a": 305}), after)
    dashboard.start()
    wait_for_round(browser, 3)
    wait_for_text(browser, "badge", "Live")
    assert shown_rows(browser) == expected_rows(after)
    assert browser.execute_script("return window.mark") == "the same page"
    said += complaints(browser)
    assert all("api/v1/stream" in each["message"] and "net::" in each["message"] for each in said), said


def test_labels_are_text_whatever_they_hold(dashboard: Running, stream: Stream, browser: Chrome) -> None:
    before = release(1, {"plain": 9_000})
    hostile = release(2, {label: 900 - rank for rank, label in enumerate(HOSTILE)})
    write(stream, before)
    browser.get(dashboard.url)
    wait_for_round(browser, 1)
    log.create_topics(stream.settings.kafka, f"{stream.settings.stream}.results")
    result = {
        "status": "done",
        "job": HOSTILE[0],
        "labels": HOSTILE,
        "guarantee": HOSTILE[1],
        "ts": HOSTILE[0],
    }
    stream.write(f"{stream.settings.stream}.results", [Record(0, 0, b"1", msgspec.json.encode(result))])
    stop_the_clock(browser)
    write(stream, hostile)
    wait_for_round(browser, 2)
    assert shown_rows(browser) == expected_rows(hostile)
    assert {row["label"] for row in rows(browser) if row["fresh"]} >= set(HOSTILE[-5:])
    [turned] = [
        line for line in browser.find_elements(By.CSS_SELECTOR, "#rows td.name") if "right" in line.text
    ]
    assert turned.get_attribute("title") == "U+202Eright to left"
    seen = (
        "const style = getComputedStyle(arguments[0].querySelector('.control'), arguments[1]); return style"
    )
    assert browser.execute_script(f"{seen}.content", turned, "::after") == '"U+202E"'
    assert browser.execute_script(f"{seen}.unicodeBidi", turned, None) == "isolate", (
        "it turns nothing beside it"
    )
    start_the_clock(browser)
    wait_for(browser, lambda: browser.find_element(By.ID, "results").is_displayed())
    listed = "return [...document.querySelectorAll('#result-cards li bdi')].map(each => each.textContent)"
    assert browser.execute_script(listed) == HOSTILE
    for label in HOSTILE[:4]:
        pin_button(browser, label).click()
    size(browser, 360, 780)
    assert browser.execute_script("return document.documentElement.scrollWidth") == 360
    assert browser.execute_script("return window.hacked") is None
    assert browser.find_elements(By.CSS_SELECTOR, "img, #rows script, #new script, iframe") == []
    wait_for(browser, lambda: of_page(browser, "trends", "page.trends.size") == len(HOSTILE))
    assert browser.execute_script("return {}.counts") is None


def test_behind_a_password_everything_works(
    kafka: str, stream: Stream, tmp_path: Path, browser: Chrome
) -> None:
    with running(kafka, stream.settings.stream, tmp_path, ("anna", "secret")) as dashboard:
        write(stream, *(release(number, {"a": 300 + number}) for number in range(1, 4)))
        browser.get(dashboard.url.replace("://", "://anna:secret@"))
        wait_for_round(browser, 3)
        wait_for(browser, lambda: of_page(browser, "trends", "page.trends.size") == 1)
        of_page(browser, "past", "page.lookBack('round=2')")
        wait_for_round(browser, 2)
        assert dashboard.status("/api/v1/release/latest") == 401
        browser.get("about:blank")
