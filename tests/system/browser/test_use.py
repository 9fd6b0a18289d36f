"""The page in the hands of people: with keyboard, ears, small screens and dark rooms, searching and pinning."""

from typing import Any

from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.dashboard.chromium import prefer, size
from tests.dashboard.page import (
    pin_button,
    rows,
    text,
    wait_for,
    wait_for_round,
)
from tests.dashboard.running import Running
from tests.example_releases import release
from tests.system.browser.published import many, write
from tests.system.streams import Stream


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
        "places": "",
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
