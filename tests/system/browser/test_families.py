"""Families of labels: each is ranked for itself, in the table, the chart and what is saved."""

from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from tests.dashboard.page import of_page, rows, text, wait_for, wait_for_round
from tests.dashboard.running import Running
from tests.example_releases import carrying_on, release
from tests.system.browser.published import write
from tests.system.streams import Stream

COUNTS = {"dest:ORD": 900, "carrier:UA": 800, "dest:ATL": 780, "carrier:B6": 300, "route:JFK-LAX": 250}


def ranking(browser: Chrome) -> list[tuple[str, str, str]]:
    return [(row["rank"], row["places"], row["label"]) for row in rows(browser)]


def test_a_family_is_ranked_for_itself(dashboard: Running, stream: Stream, browser: Chrome) -> None:
    write(stream, carrying_on(release(64, COUNTS)))
    browser.get(dashboard.url)
    wait_for_round(browser, 64)
    family = Select(browser.find_element(By.ID, "family"))
    assert [each.text for each in family.options] == ["all labels", "carrier", "dest", "route"]
    assert [(rank, label) for rank, _, label in ranking(browser)][2:4] == [
        ("3", "dest:ATL"),
        ("4", "carrier:B6"),
    ]
    family.select_by_visible_text("carrier")
    expected = [("1", "", "carrier:UA"), ("2", "", "carrier:B6")]
    wait_for(browser, lambda: ranking(browser) == expected)
    assert of_page(browser, "pins", "page.chosen()") == ["carrier:UA", "carrier:B6"]
    saved = of_page(browser, "save", "page.content().rows")
    assert [(row["rank"], row["label"], row["total"]) for row in saved] == [
        (1, "carrier:UA", 1_800),
        (2, "carrier:B6", 1_300),
    ]
    assert browser.current_url.endswith("/?family=carrier")
    browser.refresh()
    wait_for(browser, lambda: ranking(browser) == expected)
    search = browser.find_element(By.ID, "search")
    search.send_keys("b6")
    wait_for(browser, lambda: ranking(browser) == [("2", "", "carrier:B6")])
    assert text(browser, "matches").startswith("1 of 2 released labels match")


def test_labels_without_a_family_offer_none(dashboard: Running, stream: Stream, browser: Chrome) -> None:
    write(stream, release(64, COUNTS | {"tea": 700}))
    browser.get(dashboard.url)
    wait_for_round(browser, 64)
    wait_for(browser, lambda: len(rows(browser)) == 6)
    assert not browser.find_element(By.ID, "families").is_displayed()
