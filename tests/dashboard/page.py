"""What the dashboard's page shows in a browser, and what it has to show of a release."""

from collections.abc import Callable
from typing import Any

from selenium.webdriver import Chrome

from stream_dp.releases.estimates.intervals import whole_intervals
from stream_dp.releases.release import Release
from tests.system.waiting import wait_until

_ROWS = """
return [...document.querySelectorAll("#rows tr")].map(row => ({
  label: row.querySelector("bdi").textContent,
  rank: row.querySelector(".place").textContent,
  places: row.querySelector(".rank small").textContent,
  count: row.querySelector(".count").textContent,
  interval: row.querySelector(".interval").textContent,
  pinned: row.querySelector("button").getAttribute("aria-pressed"),
  fresh: !row.querySelector(".tag").hidden,
}))
"""


def text(browser: Chrome, name: str) -> str:
    found = browser.execute_script("return document.getElementById(arguments[0]).textContent", name)
    assert isinstance(found, str)
    return found


def rows(browser: Chrome) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = browser.execute_script(_ROWS)
    return found


def of_page(browser: Chrome, module: str, expression: str) -> Any:
    """The value of an expression over `page`, which is a module of the page's script, once that is loaded."""
    address = f"new URL('{module}.js', location.origin + location.pathname)"
    return browser.execute_script(f"return import({address}).then(page => {expression})")


def wait_for(browser: Chrome, condition: Callable[[], bool]) -> None:
    wait_until(condition, lambda: str(browser.execute_script("return document.body.innerText")))


def wait_for_text(browser: Chrome, name: str, expected: str) -> None:
    """Return when an element says exactly this: what a page says of its connection may be another thing in between."""
    wait_for(browser, lambda: text(browser, name) == expected)


def wait_until_drawn(browser: Chrome) -> None:
    """Return when the page has had the time to draw what it has heard: two of its animation frames."""
    browser.execute_async_script(
        "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()))"
    )


def stop_the_clock(browser: Chrome) -> None:
    """For the page no time passes any more, so that what it marks for some seconds stays marked."""
    browser.execute_script("const now = Date.now(); window.clock = Date.now; Date.now = () => now")


def start_the_clock(browser: Chrome) -> None:
    """Time passes again."""
    browser.execute_script("Date.now = window.clock")


def wait_for_round(browser: Chrome, number: int) -> None:
    """Return when the facts and the table are those of this round."""
    table = "return document.getElementById('table').dataset.round"
    wait_for(
        browser,
        lambda: (text(browser, "round"), browser.execute_script(table)) == (f"{number:,}", str(number)),
    )


def expected_rows(shown: Release) -> list[tuple[str, str, str, str]]:
    """What the rows have to say about a release: label, rank, count and interval."""
    found = []
    bounds = whole_intervals(shown)
    rows = sorted(zip(shown.labels, shown.counts, *bounds, strict=True), key=lambda row: (-row[1], row[0]))
    for rank, (label, count, low, high) in enumerate(rows, start=1):
        found.append((label, f"{rank:,}", f"{count:,}", f"{low:,} – {high:,}"))
    return found


def shown_rows(browser: Chrome) -> list[tuple[str, str, str, str]]:
    return [(row["label"], row["rank"], row["count"], row["interval"]) for row in rows(browser)]


def pin_button(browser: Chrome, label: str) -> Any:
    found = browser.execute_script(
        "return [...document.querySelectorAll('#rows tr')].find("
        "row => row.querySelector('bdi').textContent === arguments[0])?.querySelector('button')",
        label,
    )
    assert found is not None, label
    return found
