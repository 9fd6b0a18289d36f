"""The page ranks by what happened lately, and marks what rises and falls beyond what noise explains."""

import time

import msgspec
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from stream_dp.config.times import iso_timestamp, milliseconds, parse_time
from stream_dp.releases.release import Release
from tests.dashboard.page import of_page, rows, text, wait_for, wait_for_round, wait_for_text
from tests.dashboard.running import Running, records
from tests.example_releases import release
from tests.system.browser.published import write
from tests.system.streams import Stream

NOON = 1_769_860_800_000
MINUTE = 60_000
MOVES = "return [...document.querySelectorAll('#rows tr')].map(row => row.querySelector('.move').textContent)"


def each_minute(stream: Stream, first: int, last: int, start: int = NOON) -> list[Release]:
    """A release a minute after `start`: tea 30 each, milk 10 and from round 26 on 300, cake from round 28 on."""
    found = []
    for number in range(first, last + 1):
        counts = {"tea": 2_000 + 30 * number, "milk": 500 + 10 * number + 290 * max(0, number - 25)}
        if number >= 28:
            counts["cake"] = 200
        ranked = dict(sorted(counts.items(), key=lambda found: -found[1]))
        made = release(number, ranked, stream.settings.stream)
        found.append(
            msgspec.structs.replace(made, ts=iso_timestamp(start + MINUTE * number), previous=number - 1)
        )
    return found


def late() -> int:
    """A whole minute that thirty more lead into the future: a window ends with a release that comes so late."""
    return int(time.time() // 60 - 25) * MINUTE


def publish(stream: Stream, releases: list[Release]) -> None:
    times = [milliseconds(parse_time(each.ts)) for each in releases]
    written = zip(records(releases), times, strict=True)
    stream.write(stream.settings.releases, [each._replace(timestamp=time) for each, time in written])


def pick(browser: Chrome, words: str) -> None:
    Select(browser.find_element(By.ID, "window")).select_by_visible_text(words)


def ranking(browser: Chrome) -> list[tuple[str, str]]:
    return [(row["label"], row["count"]) for row in rows(browser)]


def test_the_ranking_is_that_of_the_window_that_is_picked(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    start = late()
    publish(stream, each_minute(stream, 1, 30, start))
    browser.get(dashboard.url)
    wait_for_round(browser, 30)
    since_start = ranking(browser)
    assert since_start == [("tea", "2,900"), ("milk", "2,250"), ("cake", "200")]
    pick(browser, "last 5 minutes")
    wait_for(browser, lambda: ranking(browser) == [("milk", "▲1,500"), ("tea", "150"), ("cake", "≥26")])
    began = iso_timestamp(start + 25 * MINUTE)
    assert text(browser, "window-note").startswith(
        f"Rounds 26 to 30, since {began[:10]} {began[11:19]} UTC. Noise sd "
    )
    assert "1 label was not shown when it began: counted at least so often, as far as is known. ▲" in text(
        browser, "window-note"
    )
    milk, tea, cake = rows(browser)
    assert cake["interval"] == f"at least, since {began[11:16]}"
    assert (milk["places"], tea["places"], cake["places"]) == ("", "2–3", "2–3"), "their intervals overlap"
    search = browser.find_element(By.ID, "search")
    search.send_keys("cake")
    wait_for(browser, lambda: ranking(browser) == [("cake", "≥26")])
    assert text(browser, "matches").startswith("1 of 3 released labels match")
    search.send_keys(Keys.ESCAPE)
    low, high = (int(end.replace(",", "")) for end in milk["interval"].split(" – "))
    assert low < 1_500 < high < 1_600
    assert browser.current_url.endswith("/?window=5m")
    assert text(browser, "count-title") == "In window"
    publish(stream, each_minute(stream, 31, 32, start))
    wait_for(
        browser,
        lambda: (
            ranking(browser)[:2] == [("milk", "▲1,500"), ("tea", "150")]
            and "28 to 32" in text(browser, "window-note")
        ),
    )
    pick(browser, "last hour")
    wait_for_text(
        browser,
        "window-note",
        "Rounds 1 to 32: the epoch is younger than this window. Noise sd 15.9.",
    )
    pick(browser, "since the start")
    wait_for(browser, lambda: ranking(browser)[0] == ("tea", "2,960"))
    assert browser.execute_script(MOVES) == ["", "", ""]
    assert browser.current_url.endswith("/")


def test_after_an_answer_that_took_minutes_the_next_question_follows_soon(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    start = late()
    publish(stream, each_minute(stream, 1, 30, start))
    browser.get(f"{dashboard.url}/?window=5m")
    wait_for(browser, lambda: "Rounds 26 to 30" in text(browser, "window-note"))
    of_page(browser, "windows", "page.request.took = 1e9")
    publish(stream, each_minute(stream, 31, 32, start))
    wait_for(browser, lambda: "Rounds 28 to 32" in text(browser, "window-note"))


def test_an_address_may_name_the_window_and_the_past_has_windows_too(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    publish(stream, each_minute(stream, 1, 30, late()))
    browser.get(f"{dashboard.url}/?window=10m")
    wait_for(browser, lambda: "Rounds 21 to 30" in text(browser, "window-note"))
    assert Select(browser.find_element(By.ID, "window")).first_selected_option.text == "last 10 minutes"
    browser.execute_script(
        "const it = document.getElementById('slider'); it.value = 24; it.dispatchEvent(new Event('input'))"
    )
    wait_for(browser, lambda: "Rounds 15 to 24" in text(browser, "window-note"))
    wait_for(browser, lambda: ranking(browser) == [("tea", "300"), ("milk", "100")])
    assert browser.execute_script(MOVES) == ["", ""]


def test_a_window_ends_now_so_a_silence_empties_it(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    publish(stream, each_minute(stream, 1, 30))
    browser.get(f"{dashboard.url}/?window=5m&label=tea")
    wait_for_text(
        browser,
        "window-note",
        "Nothing was released in the last 5 minutes: no event came, or the worker stands still. "
        "The last release is that 2026-01-31 12:30:00 UTC.",
    )
    wait_for(browser, lambda: ranking(browser) == [("tea", "–")])
    browser.execute_script(
        "const it = document.getElementById('slider'); it.value = 24; it.dispatchEvent(new Event('input'))"
    )
    wait_for(browser, lambda: "Rounds 20 to 24" in text(browser, "window-note"))
    browser.find_element(By.ID, "live").click()
    wait_for(browser, lambda: text(browser, "window-note").startswith("Nothing was released"))
    now = int(time.time() * 1_000)
    publish(stream, each_minute(stream, 31, 31, now - 31 * MINUTE))
    wait_for(browser, lambda: ("tea", "30") in ranking(browser))
    assert text(browser, "window-note").startswith("Rounds 31 to 31, since 2026-01-31 12:30:00 UTC.")
    browser.get("about:blank")
    publish(stream, each_minute(stream, 32, 32, now - 36 * MINUTE))
    browser.get(f"{dashboard.url}/?window=2m")
    wait_for(browser, lambda: text(browser, "window-note").startswith("Nothing was released"))
    wait_for_text(browser, "empty", "Nothing was released lately.")


def test_an_address_that_names_no_window_is_passed_over(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    write(stream, release(1, {"a": 300}))
    browser.get(f"{dashboard.url}/?window=<img src=x onerror=window.hacked=1>")
    wait_for_round(browser, 1)
    assert ranking(browser) == [("a", "300")]
    assert browser.execute_script("return window.hacked") is None
    assert Select(browser.find_element(By.ID, "window")).first_selected_option.text == "since the start"
