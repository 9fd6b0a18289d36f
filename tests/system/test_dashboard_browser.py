"""The dashboard in a real browser: it shows what the topic says, goes on after a restart, and is usable by all."""

import time
from collections.abc import Iterator
from math import ceil, floor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import stream_dp
from stream_dp.config.settings import Settings
from stream_dp.config.times import iso_timestamp
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.releases.release import Release
from tests.dashboard.chromium import chromium, complaints, heap_bytes, prefer, size
from tests.dashboard.page import (
    expected_rows,
    pin_button,
    rows,
    shown_rows,
    start_the_clock,
    stop_the_clock,
    text,
    wait_for,
    wait_for_round,
    wait_for_text,
    wait_until_drawn,
)
from tests.dashboard.running import Running, records, running
from tests.example_releases import release
from tests.system.streams import Stream, event, small_stream, some_events

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


@pytest.fixture(scope="module")
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


def write(stream: Stream, *releases: Release) -> None:
    """Release now what may be dated otherwise."""
    ts = iso_timestamp(time.time_ns() // 1_000_000)
    fresh = [msgspec.structs.replace(each, ts=ts, stream=stream.settings.stream) for each in releases]
    stream.write(stream.settings.releases, records(fresh))


def many(count: int) -> dict[str, int]:
    """Counts of so many labels, falling from 9,000 on."""
    return {f"label {rank}": 9_000 - rank for rank in range(count)}


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
            assert "any one event" in text(browser, "promise")
        assert "First counts are too high" in browser.find_element(By.TAG_NAME, "body").text
        browser.get("about:blank")


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
    for row, count in zip(browser.find_elements(By.CSS_SELECTOR, "#rows tr"), shown.counts, strict=True):
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
        low, high = floor(count - 1.96 * shown.sd), ceil(count + 1.96 * shown.sd)
        assert solid["width"] / track["width"] == pytest.approx(low / scale, abs=0.003)
        assert spread["width"] / track["width"] == pytest.approx(high / scale, abs=0.003)
        assert (tick["x"] - track["x"]) / track["width"] == pytest.approx(count / scale, abs=0.003)
    at = browser.execute_script("return document.getElementById('table').style.getPropertyValue('--tau-at')")
    assert float(at) == pytest.approx(112 / scale, abs=0.001)


def test_it_survives_a_restart_of_the_server(dashboard: Running, stream: Stream, browser: Chrome) -> None:
    write(stream, release(1, {"a": 300}))
    browser.get(dashboard.url)
    wait_for_round(browser, 1)
    wait_for(browser, lambda: browser.execute_script("return trends.size === 1 && !trendBusy"))
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
    wait_for(browser, lambda: browser.execute_script("return trends.size") == len(HOSTILE))
    assert browser.execute_script("return {}.counts") is None


def test_search_and_pins(dashboard: Running, stream: Stream, browser: Chrome) -> None:
    write(stream, release(1, many(1_000)))
    browser.get(dashboard.url)
    wait_for_round(browser, 1)
    assert len(rows(browser)) == 25
    browser.find_element(By.ID, "more").click()
    assert len(rows(browser)) == 50
    field = browser.find_element(By.ID, "search")
    field.send_keys("LABEL 99")
    assert [row["label"] for row in rows(browser)] == [
        "label 99",
        *(f"label {rank}" for rank in range(990, 1000)),
    ]
    assert "11 of 1,000" in text(browser, "matches")
    pin_button(browser, "label 995").click()
    field.send_keys(Keys.ESCAPE)
    found = rows(browser)
    assert [(row["label"], row["rank"], row["pinned"]) for row in found[:2]] == [
        ("label 995", "996", "true"),
        ("label 0", "1", "false"),
    ]
    browser.refresh()
    wait_for_round(browser, 1)
    assert [row["label"] for row in rows(browser)[:2]] == ["label 995", "label 0"]
    write(stream, release(2, {"label 0": 9_000}))
    wait_for_round(browser, 2)
    assert rows(browser)[0] | {"fresh": False} == {
        "label": "label 995",
        "rank": "–",
        "count": "–",
        "interval": "below threshold",
        "pinned": "true",
        "fresh": False,
    }
    pin_button(browser, "label 995").click()
    assert [row["label"] for row in rows(browser)] == ["label 0"]


def test_everything_can_be_done_with_the_keyboard(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    write(stream, release(1, many(40)))
    browser.get(dashboard.url)
    wait_for_round(browser, 1)

    def press(*keys: str) -> Any:
        for key in keys:
            browser.switch_to.active_element.send_keys(key)
        return browser.switch_to.active_element

    assert press(Keys.TAB).get_attribute("class") == "skip"
    assert press(Keys.TAB).get_attribute("id") == "pause"
    assert press(Keys.TAB).get_attribute("id") == "theme"
    assert press("/").get_attribute("id") == "search"
    assert press("label 7", Keys.ARROW_DOWN).get_attribute("aria-label") == "Pin label 7"
    assert press(Keys.ENTER).get_attribute("aria-label") == "Pin label 7"
    assert press(Keys.ARROW_UP).get_attribute("id") == "search"
    press(Keys.ESCAPE)
    assert [row["label"] for row in rows(browser)[:2]] == ["label 7", "label 0"]
    assert (
        press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_DOWN).get_attribute("aria-label") == "Pin label 1"
    )
    reversed_counts = {f"label {rank}": 100 + 10 * rank for rank in range(39, 0, -1)}
    write(stream, release(2, reversed_counts))
    wait_for_round(browser, 2)
    assert browser.switch_to.active_element.get_attribute("aria-label") == "Pin label 1"
    assert [row["label"] for row in rows(browser)[:2]] == ["label 7", "label 39"]
    outline = browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    pause = browser.find_element(By.ID, "pause")
    pause.send_keys(Keys.SPACE)
    assert pause.get_attribute("aria-pressed") == "true"


def test_it_can_be_heard(dashboard: Running, stream: Stream, browser: Chrome) -> None:
    """Every control has a name, the table is one on a phone too, and news are told politely."""
    write(stream, release(1, many(30)))
    browser.get(dashboard.url)
    for width in (1280, 360):
        size(browser, width, 900)
        wait_for_round(browser, 1)
        tree = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        named = [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in tree
            if not node["ignored"]
        ]
        controls = {"button", "searchbox", "slider", "link", "table", "progressbar"}
        assert {role for role, _ in named} >= controls | {"main", "banner", "contentinfo", "status"}
        assert [each for each in named if each[0] in controls and not each[1]] == []
        assert sum(role == "row" for role, _ in named) == 26
        headers = [name for role, name in named if role == "columnheader"]
        assert headers == ["#", "Label", "Bar", "Count", "95% interval", "Trend", "Pin"]
    announcer = browser.find_element(By.ID, "announcer")
    assert announcer.get_attribute("aria-live") == "polite"
    news = "Round 1 of 65,535. 30 labels. Largest: label 0 9,000,"
    wait_for(browser, lambda: text(browser, "announcer").startswith(news))


def test_nothing_has_to_be_scrolled_sideways(dashboard: Running, stream: Stream, browser: Chrome) -> None:
    write(stream, release(60_000, {"w" * 300: 1_234_567} | many(30)))
    cut = """return [...document.querySelectorAll("#facts dd, td.count, td.interval")].filter(
        each => each.scrollWidth > each.clientWidth + 1).map(each => each.textContent)"""
    for width in (320, 360, 768, 1280):
        size(browser, width, 780)
        browser.get(dashboard.url)
        wait_for_round(browser, 60_000)
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth"), width
        assert browser.execute_script(cut) == [], width


def test_light_dark_and_the_toggle(dashboard: Running, stream: Stream, browser: Chrome) -> None:
    write(stream, release(1, many(3)))
    browser.get(dashboard.url)
    wait_for_round(browser, 1)

    def brightness() -> float:
        color = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        return sum(int(each) for each in color.strip("rgb()").split(",")) / 765

    seen = {}
    for scheme in ("light", "dark"):
        prefer(browser, scheme)
        seen[scheme] = brightness()
    assert seen["light"] > 0.9
    assert seen["dark"] < 0.15
    toggle = browser.find_element(By.ID, "theme")
    toggle.click()
    assert (toggle.text, brightness()) == ("Theme: light", seen["light"])
    toggle.click()
    prefer(browser, "light")
    assert (toggle.text, brightness()) == ("Theme: dark", seen["dark"])
    browser.refresh()
    assert brightness() == seen["dark"]


def wait_until_heard(browser: Chrome, number: int) -> None:
    """Return when the page has been told of this round's release, and would show it now if it meant to."""
    wait_for(browser, lambda: browser.execute_script("return heard.release.round") == number)
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


_MANY_RELEASES = """
const done = arguments[arguments.length - 1], [first, last] = arguments;
const release = { ...heard.release }, ids = Array.from(heard.ids);
let number = first;
function some() {
  for (const end = Math.min(last, number + 500); number < end; number++) {
    const fresh = number % 60 ? [] : [`come and gone ${number}`];
    hear({ state: "open", age: 0, delay: 0, behind: 0, rate: 50, history: [1, 1],
           release: { ...release, round: number, sd: 10 + number % 16 }, ids,
           counts: ids.map((id, rank) => 9000 - rank + number % 7), labels: [],
           new: fresh.map(label => [label, number]) }, false);
    if (number % 25 === 0) draw(true);
  }
  if (number < last) setTimeout(some); else done();
}
some();
"""


def test_half_an_hour_of_releases_leaves_the_page_as_small_as_it_was(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    """18,000 frames of 1,000 labels, ten a second for half an hour, handed to the page as fast as it takes them."""
    write(stream, release(1, many(1_000)))
    browser.get(dashboard.url)
    wait_for_round(browser, 1)
    browser.execute_script("source.close(); reconnect = () => {}")  # it hears of the server no more
    browser.execute_async_script(_MANY_RELEASES, 1, 2_000)
    before, nodes = heap_bytes(browser), len(browser.find_elements(By.CSS_SELECTOR, "*"))
    browser.execute_async_script(_MANY_RELEASES, 2_000, 18_000)
    after = heap_bytes(browser)
    print(f"memory of the page: {before / 1e6:.2f} MB, after half an hour {after / 1e6:.2f} MB")
    assert after < before + 500_000
    assert len(browser.find_elements(By.CSS_SELECTOR, "*")) <= nodes + 10
    assert nodes < 1_000
    wait_for_round(browser, 17_999)


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
    assert (text(browser, "epsilon"), "e^2 " in text(browser, "promise")) == ("2", True)
    look_back_to(browser, "2026-01-31T11:59")
    wait_for(browser, lambda: "does not hold a release of 2026-01-31T11:59" in text(browser, "notice-text"))
    assert text(browser, "round") == "4"
    [said] = complaints(browser)
    assert "404" in said["message"]
    browser.find_element(By.ID, "live").click()
    wait_for_round(browser, 2)
    assert (text(browser, "epsilon"), "e^5" in text(browser, "promise")) == ("5", True)


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


def test_behind_a_password_everything_works(
    kafka: str, stream: Stream, tmp_path: Path, browser: Chrome
) -> None:
    with running(kafka, stream.settings.stream, tmp_path, ("anna", "secret")) as dashboard:
        write(stream, *(release(number, {"a": 300 + number}) for number in range(1, 4)))
        browser.get(dashboard.url.replace("://", "://anna:secret@"))
        wait_for_round(browser, 3)
        wait_for(browser, lambda: browser.execute_script("return trends.size") == 1)
        browser.execute_script("lookBack('round=2')")
        wait_for_round(browser, 2)
        assert dashboard.status("/api/v1/release/latest") == 401
        browser.get("about:blank")


def test_fifty_releases_a_second_of_a_thousand_labels_become_few_frames(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    """What comes faster than it can be seen is left out, not queued; the last release is on the page."""
    write(stream, release(1, many(1_000)))
    browser.get(dashboard.url)
    wait_for_round(browser, 1)
    browser.execute_script(
        "window.frames_heard = window.best_rate = 0; const before = hear; hear = (frame, ...rest) => {"
        "frames_heard++; best_rate = Math.max(best_rate, frame.rate ?? 0); before(frame, ...rest); }"
    )
    nodes = len(browser.find_elements(By.CSS_SELECTOR, "*"))
    counts = many(1_000)
    began = time.monotonic()
    for start in range(2, 77, 5):
        tenth = [release(start + each, {name: n + start for name, n in counts.items()}) for each in range(5)]
        write(stream, *tenth)
        time.sleep(0.1)
    wait_for_round(browser, 76)
    assert shown_rows(browser) == expected_rows(tenth[-1])[:25]
    assert 1 <= browser.execute_script("return frames_heard") <= 10 * (time.monotonic() - began) + 10
    assert len(browser.find_elements(By.CSS_SELECTOR, "*")) <= nodes + 10
    assert browser.execute_script("return best_rate") > 0
    wait_for(browser, lambda: text(browser, "rate") != "–")
