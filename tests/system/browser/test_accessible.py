"""axe-core finds nothing to complain of, in both themes, on a desktop and on a phone, now and in the past."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from stream_dp.cli.statement_page import NOT_PROTECTED, Charged, SetBudget, Statement, html
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.privacy.wording import for_viewers
from tests.dashboard.chromium import prefer, size
from tests.dashboard.page import of_page, rows, text, wait_for, wait_for_round
from tests.dashboard.running import Running
from tests.dashboard.vendored import AXE
from tests.example_releases import release
from tests.system.browser.test_windows import MINUTE, each_minute, publish
from tests.system.streams import Stream

STATEMENT = Statement(
    stream="shop",
    source="shop.events",
    written="2026-11-03",
    program="0.1",
    epoch=1,
    opened="2026-11-01",
    closed=None,
    unit="event",
    epsilon=2.0,
    delta=1e-6,
    odds="88:12",
    protected=for_viewers("event", 2.0, 1e-6),
    not_protected=[*NOT_PROTECTED["event"]],
    counted="The first 16 items of an event count.",
    at_least=10,
    never_shown="No label of fewer than 10 events is ever shown.",
    mechanism="blt",
    rounds="A round ends after each event.",
    horizon=65_535,
    unmetered=False,
    budget=(6.0, 1e-5),
    set_by=[SetBudget("2026-11-01", "the privacy board", 6.0, 1e-5)],
    spent=(2.0, 1e-6),
    more_like_the_last=2,
    charges=[Charged("2026-11-01", "epoch 1", 0.1, 1e-6, 2.0, 1e-6)],
    settings_digest="00" * 32,
    key_check="00" * 8,
    known_labels=None,
)

_RUN = """
const done = arguments[0];
axe.run(document).then(
  ({ violations, passes }) => done([passes.length, violations.map(({ id, nodes }) => [id, nodes.map(n => n.html)])]),
  problem => done([0, [[String(problem), []]]]));
"""


def complaints_of_axe(browser: Chrome) -> tuple[int, list[Any]]:
    """How many of its rules the page keeps, and what breaks the others."""
    if not browser.execute_script("return typeof axe === 'object'"):
        browser.execute_script((AXE / "axe.min.js").read_text())
    passed, violations = browser.execute_async_script(_RUN)
    return passed, violations


@pytest.fixture
def page(dashboard: Running, stream: Stream, browser: Chrome) -> Chrome:
    publish(stream, each_minute(stream, 1, 30, int(time.time() * 1000) - 30 * MINUTE))
    browser.get(dashboard.url)
    wait_for_round(browser, 30)
    wait_for(browser, lambda: "milk" in text(browser, "rising"))
    return browser


def test_axe_finds_no_violation(page: Chrome) -> None:
    for scheme in ("light", "dark"):
        prefer(page, scheme)
        for width in (1280, 360):
            size(page, width, 900)
            passed, violations = complaints_of_axe(page)
            assert violations == [], (scheme, width)
            assert passed > 30
    page.find_element(By.CSS_SELECTOR, "#save summary").click()
    of_page(page, "past", "page.lookBack('round=20')")
    wait_for_round(page, 20)
    assert complaints_of_axe(page)[1] == []


def test_axe_finds_no_violation_whatever_is_picked(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    """Windows, rates, shares, two labels that are compared, a family, an empty search, results, and an open menu."""
    families = {"dest:ATL": 900, "dest:LAX": 880, "carrier:UA": 870, "carrier:B6": 400}
    start, every = int(time.time() * 1000) - 30 * MINUTE, []
    for each in each_minute(stream, 1, 30, start):
        counts = dict(zip(each.labels, each.counts, strict=True)) | families
        made = release(each.round, counts, stream.settings.stream)
        every.append(
            replace(made, ts=each.ts, previous=each.round - 1, units=3_000, over_cap=1_300, units_sd=40.0)
        )
    publish(stream, every)
    results = f"{stream.settings.stream}.results"
    log.create_topics(stream.settings.kafka, results)
    done = {
        "status": "done",
        "job": "histogram",
        "labels": ["tea"],
        "counts": [900],
        "low": [860],
        "high": [940],
    }
    stream.write(results, [Record(0, 0, b"1", json.dumps(done).encode())])
    browser.get(f"{dashboard.url}/?label=dest%3AATL&label=dest%3ALAX")
    wait_for_round(browser, 30)
    wait_for(browser, lambda: browser.find_element(By.ID, "results").is_displayed())
    wait_for(browser, lambda: "Nobody can tell whether" in browser.find_element(By.CLASS_NAME, "chart").text)
    assert complaints_of_axe(browser)[1] == []
    for address in ("window=5m", "window=5m&as=hour", "as=share", "family=dest&sort=label"):
        browser.get(f"{dashboard.url}/?{address}")
        wait_for_round(browser, 30)
        wait_for(browser, lambda: len(rows(browser)) >= 2)
        assert complaints_of_axe(browser)[1] == [], address
    browser.find_element(By.ID, "search").send_keys("nothing has this name")
    wait_for(browser, lambda: rows(browser) == [])
    assert complaints_of_axe(browser)[1] == []
    browser.find_element(By.CSS_SELECTOR, "#save summary").click()
    assert complaints_of_axe(browser)[1] == []


def test_axe_finds_no_violation_in_a_statement(browser: Chrome, tmp_path: Path) -> None:
    """With all of its tables, in the browser's two widths; it has no other theme."""
    file = tmp_path / "statement.html"
    file.write_text(html(STATEMENT))
    browser.get(file.as_uri())
    for width in (1280, 360):
        size(browser, width, 900)
        passed, violations = complaints_of_axe(browser)
        assert violations == [], width
        assert passed > 10


def test_axe_would_have_found_a_button_without_a_name(page: Chrome) -> None:
    page.execute_script("document.getElementById('pause').textContent = ''")
    assert [rule for rule, _ in complaints_of_axe(page)[1]] == ["button-name"]


def test_everybody_is_told_what_is_protected_and_where_to_read_more(page: Chrome) -> None:
    """The sentence is the name of a link, as a screen reader tells it, and the page behind it is sound too."""
    tree = page.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    links = [
        node["name"]["value"] for node in tree if not node["ignored"] and node["role"]["value"] == "link"
    ]
    sentence = for_viewers("event", 2.0, 1e-6)
    assert sentence in links
    page.find_element(By.LINK_TEXT, sentence).click()
    wait_for(page, lambda: page.find_element(By.TAG_NAME, "h1").text == "What is protected")
    assert complaints_of_axe(page)[1] == []
    page.find_element(By.LINK_TEXT, "Back to the numbers").click()
    wait_for_round(page, 30)
