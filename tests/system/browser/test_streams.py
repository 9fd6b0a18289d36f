"""One dashboard of several streams: the index, and the way to each page and back, on every screen and by keyboard."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By

from stream_dp.config.settings import Settings
from stream_dp.privacy.wording import for_viewers
from tests.apache_kafka.server import free_ports
from tests.dashboard.chromium import prefer, size
from tests.dashboard.page import pin_button, text, wait_for, wait_for_round, wait_for_text
from tests.dashboard.running import Running, running
from tests.example_releases import release
from tests.system.browser.published import many, write
from tests.system.browser.test_accessible import complaints_of_axe
from tests.system.browser.test_embed import folder, frame_of, site  # noqa: F401  # a fixture
from tests.system.streams import Stream

SENTENCE = for_viewers("event", 2.0, 1e-6)
_CARDS = """
return [...document.querySelectorAll("#streams > li")].map(each => ({
  name: each.querySelector("h2").textContent,
  badge: each.querySelector(".badge").textContent,
  facts: [...each.querySelectorAll("dd")].map(found => found.textContent),
  largest: each.querySelector(".largest").textContent,
  trend: each.querySelector(".trend svg").getAttribute("aria-label"),
  line: each.querySelector(".trend path").getAttribute("d"),
  sentence: each.querySelector(".protects").textContent,
}))
"""
_TOO_WIDE = """
const wide = document.documentElement.scrollWidth > innerWidth;
const cut = [...document.querySelectorAll("#streams h2, #streams dd, #streams .badge, #streams .protects")]
  .filter(each => each.scrollWidth > each.clientWidth + 1).map(each => each.textContent);
return wide ? ["the page", ...cut] : cut;
"""


class Two:
    """Streams `drinks` and `places` of one broker, and the dashboard that shows both."""

    def __init__(self, drinks: Stream, places: Stream, dashboard: Running) -> None:
        self.drinks, self.places, self.dashboard = drinks, places, dashboard
        self.names = [drinks.settings.stream, places.settings.stream]

    def page(self, stream: Stream) -> str:
        return f"{self.dashboard.url}/streams/{stream.settings.stream}/"


@pytest.fixture
def ports() -> tuple[int, int]:
    return free_ports()


@pytest.fixture
def two(kafka: str, topic_prefix: str, tmp_path: Path, ports: tuple[int, int]) -> Iterator[Two]:
    made = []
    for name in ("drinks", "places"):
        (tmp_path / name).mkdir()
        made.append(Stream(Settings(stream=f"{topic_prefix}.{name}", kafka=kafka), tmp_path / name))
        made[-1].create_topics()
    drinks, places = made
    more = ["--stream", places.settings.stream, "--embed-in", f"http://127.0.0.1:{ports[0]}"]
    with running(kafka, drinks.settings.stream, tmp_path, more=more) as dashboard:
        dashboard.wait_until("/readyz", 200)
        yield Two(drinks, places, dashboard)


def cards(browser: Chrome) -> list[dict[str, object]]:
    found: list[dict[str, object]] = browser.execute_script(_CARDS)
    return found


def open_index(two: Two, browser: Chrome) -> None:
    """The index, with releases of both streams on it."""
    write(two.drinks, release(7, {"tea": 900, "milk": 800, "chai": 700, "cake": 600}))
    write(two.places, release(12, many(30)))
    browser.get(two.dashboard.url)
    released = ("Live", "Idle")  # whoever is slow to look finds releases that are a minute old
    wait_for(browser, lambda: [each["badge"] in released for each in cards(browser)] == [True, True])


def test_the_index_shows_how_each_stream_is(two: Two, browser: Chrome) -> None:
    browser.get(two.dashboard.url)
    wait_for(browser, lambda: [each["badge"] for each in cards(browser)] == ["Waiting", "Waiting"])
    open_index(two, browser)
    drinks, places = cards(browser)
    assert [drinks["name"], places["name"]] == two.names
    assert drinks["facts"][1:] == ["4", "7"]  # type: ignore[index]  # labels released, and the round
    assert places["facts"][1:] == ["30", "12"]  # type: ignore[index]
    assert drinks["largest"] == "Most frequent: tea, milk, chai"
    assert drinks["trend"] == "Most frequent label, from 900 to 900"
    assert str(drinks["line"]).startswith("M100.0 2.0")
    assert drinks["sentence"] == places["sentence"] == SENTENCE
    write(two.drinks, release(8, {"tea": 900}))
    wait_for(browser, lambda: [card["facts"][1:] for card in cards(browser)][:1] == [["1", "8"]])  # type: ignore[index]
    assert browser.title == "Streams · stream-dp"


def test_a_label_is_text_and_nothing_else(two: Two, browser: Chrome) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    write(two.drinks, release(7, {hostile: 900}))
    browser.get(two.dashboard.url)
    wait_for(
        browser, lambda: [card["largest"] for card in cards(browser)][:1] == [f"Most frequent: {hostile}"]
    )
    assert browser.find_elements(By.CSS_SELECTOR, "#streams img") == []


def test_the_way_to_a_page_and_back_by_keyboard_alone(two: Two, browser: Chrome) -> None:
    open_index(two, browser)
    focused = "return document.activeElement.textContent"
    page = browser.find_element(By.TAG_NAME, "body")
    reached = []
    for _ in range(5):
        page.send_keys(Keys.TAB)
        page = browser.switch_to.active_element
        reached.append(browser.execute_script(focused))
    assert reached == ["Theme: system", two.names[0], SENTENCE, two.names[1], SENTENCE]
    page.send_keys(Keys.SHIFT + Keys.TAB)
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    wait_for_round(browser, 12)
    assert browser.current_url == two.page(two.places)
    assert text(browser, "stream") == two.names[1]
    back = browser.find_element(By.LINK_TEXT, "All streams")
    back.send_keys(Keys.ENTER)
    wait_for(browser, lambda: [each["name"] for each in cards(browser)] == two.names)
    assert urlsplit(browser.current_url).path == "/"


def test_a_page_below_the_index_restores_what_a_link_says_and_keeps_its_own_pins(
    two: Two, browser: Chrome
) -> None:
    write(two.drinks, *(release(number, {"tea": 900 + number, "milk": 800}) for number in range(1, 8)))
    write(two.places, release(12, {"tea": 900, "Oslo": 800}))
    browser.get(f"{two.page(two.drinks)}?label=milk&round=3")
    wait_for_round(browser, 3)
    assert pin_button(browser, "milk").get_attribute("aria-pressed") == "true"
    wait_for_text(browser, "badge", "History")
    pin_button(browser, "tea").click()
    browser.get(two.page(two.places))
    wait_for_round(browser, 12)
    assert pin_button(browser, "tea").get_attribute("aria-pressed") == "false"
    browser.get(two.page(two.drinks))
    wait_for_round(browser, 7)
    assert pin_button(browser, "tea").get_attribute("aria-pressed") == "true"
    assert "label=milk&label=tea" in browser.current_url


def test_it_is_whole_on_every_screen_in_both_themes_and_aloud(two: Two, browser: Chrome) -> None:
    open_index(two, browser)
    for scheme in ("light", "dark"):
        prefer(browser, scheme)
        for width in (320, 390, 1_280, 1_920, 2_560):
            size(browser, width, 900)
            assert browser.execute_script(_TOO_WIDE) == [], (scheme, width)
            passed, violations = complaints_of_axe(browser)
            assert violations == [], (scheme, width)
            assert passed > 20
    tree = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    told = {(node["role"]["value"], node["name"]["value"]) for node in tree if not node["ignored"]}
    assert {("heading", "Streams"), ("list", "Streams"), ("link", SENTENCE)} <= told
    for name in two.names:
        assert {("heading", name), ("link", name)} <= told


def test_a_server_that_is_gone_is_told_and_found_again(two: Two, browser: Chrome) -> None:
    open_index(two, browser)
    two.dashboard.stop()
    wait_for(browser, lambda: text(browser, "notice-text").startswith("The server does not answer."))
    assert len(cards(browser)) == 2
    two.dashboard.start()
    wait_for(browser, lambda: not browser.find_element(By.ID, "notice").is_displayed())
    browser.get_log("browser")  # type: ignore[no-untyped-call]  # Chromium says itself that nobody answered


def test_a_chart_of_one_of_several_is_shown_on_another_site(
    two: Two,
    folder: Path,  # noqa: F811
    ports: tuple[int, int],
    browser: Chrome,
) -> None:
    write(two.places, msgspec.structs.replace(release(12, {"tea": 900, "milk": 800}), horizon=100))
    with site(folder, ports[0], two.dashboard.url) as url:
        page = folder / "index.html"
        page.write_text(
            page.read_text().replace("<stream-dp-chart", f'<stream-dp-chart stream="{two.names[1]}"')
        )
        browser.get(url)
        wait_for(browser, lambda: frame_of(browser) is not None)
        browser.switch_to.frame(frame_of(browser))
        wait_for(browser, lambda: len(browser.find_elements(By.ID, "round")) == 1)
        wait_for_round(browser, 12)
        assert text(browser, "stream") == two.names[1]
        assert not browser.find_element(By.CLASS_NAME, "all").is_displayed()
        browser.switch_to.default_content()
        browser.get("about:blank")
