"""Twenty questions of those who open the page, and where the page itself answers each."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from stream_dp.config.times import iso_timestamp
from stream_dp.releases.release import Release
from tests.dashboard.page import of_page, wait_for, wait_for_round
from tests.dashboard.running import Running
from tests.example_releases import release
from tests.system.browser.test_windows import MINUTE, late, publish
from tests.system.streams import Stream

ROUNDS = 30


def flights(stream: Stream) -> list[Release]:
    """A release a minute: two carriers, of which one takes off at the end, and three destinations."""
    found, start = [], late()
    for number in range(1, ROUNDS + 1):
        counts = {
            "carrier:UA": 2_000 + 30 * number,
            "carrier:AA": 500 + 10 * number + 290 * max(0, number - 25),
            "dest:ORD": 900 + 9 * number,
            "dest:ATL": 890 + 9 * number,
            "dest:LAX": 300 + 2 * number,
        }
        largest = dict(sorted(counts.items(), key=lambda each: -each[1]))
        made = release(number, largest, stream.settings.stream)
        ts = iso_timestamp(start + MINUTE * number)
        cells = {"units": 10_000, "over_cap": 4_500, "units_sd": 60.0}
        found.append(msgspec.structs.replace(made, ts=ts, previous=number - 1, **cells))
    return found


def choose(name: str, words: str) -> Callable[[Chrome], None]:
    """Pick these words from a list of the page."""
    return lambda page: Select(page.find_element(By.ID, name)).select_by_visible_text(words)


def pin(*labels: str) -> Callable[[Chrome], None]:
    def press(page: Chrome) -> None:
        for label in labels:
            page.find_element(By.CSS_SELECTOR, f'#rows button[aria-label="Pin {label}"]').click()

    return press


def look_back(page: Chrome) -> None:
    slider = page.find_element(By.ID, "slider")
    for _ in range(10):
        slider.send_keys(Keys.ARROW_LEFT)


def search(words: str) -> Callable[[Chrome], None]:
    return lambda page: page.find_element(By.ID, "search").send_keys(words)


def row(number: int, column: str) -> str:
    return f"#rows tr:nth-child({number}) .{column}"


@dataclass(frozen=True)
class Question:
    """`then`: what the reader does first.  `place`: the part of the page that answers, in these words."""

    asked: str
    place: str
    answer: str
    then: Callable[[Chrome], None] | None = None


MANAGER = [
    Question("What is counted here?", "#counted", "Counts the first 3 items of each event"),
    Question("Which label is largest?", row(1, "name"), "carrier:UA"),
    Question("How many an hour?", row(1, "count"), "6,000", choose("measure", "per hour")),
    Question("How much of all is that?", row(1, "count"), "29.0%", choose("measure", "share of all")),
    Question("What happened lately?", row(1, "count"), "1,500", choose("window", "last 5 minutes")),
    Question("What is rising?", "#rising", "carrier:AA rose, +1,450", choose("window", "last 5 minutes")),
    Question("What is falling?", "#movers-note", "How counts changed between the last 5 minutes"),
    Question("Is the page of now?", "#badge", "Live"),
]
ANALYST = [
    Question("How sure is a count?", row(1, "interval"), "2,868 – 2,932"),
    Question("Is one label above another?", "#chart-note", "is above", pin("carrier:UA", "carrier:AA")),
    Question("And these two?", "#chart-note", "Nobody can tell whether", pin("dest:ORD", "dest:ATL")),
    Question("Which ranks are open?", row(3, "rank small"), "3–4"),
    Question("Which carrier leads?", row(2, "name"), "carrier:AA", choose("family", "carrier")),
    Question("How was it ten rounds ago?", row(1, "count"), "2,600", look_back),
    Question("Is dest:LAX there?", "#matches", "1 of 5 released labels match", search("LAX")),
    Question("Is a missing label a zero?", ".hints", "A missing label is not a zero."),
]
OFFICER = [
    Question("Who is protected?", "#protects", "Someone with many events is not hidden as a person"),
    Question("What is promised?", "#guarantee", "by at most a factor of e^2 (about 7.4)"),
    Question("How much is cut off?", "#counted", "45% (43% to 47%) of the events have more"),
    Question("How long does it last?", "#of-horizon", "of 65,535"),
]
QUESTIONS = [*MANAGER, *ANALYST, *OFFICER]


def said(page: Chrome, place: str) -> str:
    """What the reader sees there."""
    script = "return [...document.querySelectorAll(arguments[0])].map(each => each.innerText).join(' ')"
    return " ".join(str(page.execute_script(script, place)).split())


def test_every_question_is_answered_by_the_page_itself(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    assert len(QUESTIONS) == 20
    publish(stream, flights(stream))
    is_untouched = False
    for question in QUESTIONS:
        if not is_untouched:
            browser.execute_script("if (location.protocol === 'http:') localStorage.clear()")
            browser.get(dashboard.url)
            wait_for_round(browser, ROUNDS)
        is_untouched = question.then is None
        if question.then is not None:
            wait_for(browser, lambda: bool(of_page(browser, "state", "page.steps.rounds.length")))
            question.then(browser)

        def answered(question: Question = question) -> bool:
            return question.answer in said(browser, question.place)

        try:
            wait_for(browser, answered)
        except AssertionError:
            pytest.fail(f"{question.asked} {said(browser, question.place)!r} instead of {question.answer!r}")
