"""The pictures of the page in the documents.

    make screenshots

writes them into docs/pictures, from releases that are the same in every run.  Only times differ.
"""

import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import track
from selenium.webdriver import Chrome

from stream_dp.config.settings import Settings
from stream_dp.dev.servers import embedded
from tests.dashboard.chromium import chromium, prefer, screenshot, size
from tests.dashboard.page import of_page, text, wait_for, wait_for_round
from tests.dashboard.running import Running, running
from tests.dashboard.shop import RELEASES, ROUNDS_APART, an_hour
from tests.example_releases import release
from tests.system.browser.published import write
from tests.system.streams import Stream

_POINTS = "Number(document.getElementById('plot').getAttribute('aria-valuemax'))"
FOLDER = Path(__file__).parents[2] / "docs/pictures"
LAST = RELEASES * ROUNDS_APART
PICTURES = {
    "page": ("", 1280, 900, "light", LAST),
    "page-dark": ("?window=5m", 1280, 900, "dark", LAST),
    "page-wide": ("?label=matcha&label=chai&label=lemonade", 1920, 1000, "light", LAST),
    "page-phone": ("", 390, 844, "light", LAST),
    "page-past": ("?round=12000&label=matcha", 1280, 900, "light", 12_000),
}
"""By name: what the address asks for, the width and height of the screen, the theme, and the round on show."""

SEVERAL = ("--stream", "flights", "--stream", "news")


FLIGHTS = {"New York – Chicago": 14_210, "New York – Los Angeles": 11_050, "Newark – Boston": 9_870}


def main(folder: Path = FOLDER) -> None:
    """Start everything, take the pictures, and stop it all."""
    console = Console()
    with tempfile.TemporaryDirectory() as name, embedded(Path(name) / "servers") as servers:
        place = Path(name)
        with chromium(place / "profile") as browser:
            _publish(servers.kafka, place)
            with running(servers.kafka, "shop", place, more=SEVERAL) as dashboard:
                _take_index(browser, dashboard, folder / "page-streams.png")
            with running(servers.kafka, "shop", place) as dashboard:
                dashboard.wait_until_round(LAST)
                for picture in track(PICTURES, "Pictures", console=console):
                    _take(browser, dashboard, picture, folder / f"{picture}.png")
    console.print(f"{len(PICTURES) + 1} pictures are in {folder}.")


def _publish(kafka: str, place: Path) -> None:
    """An hour of a shop, and one release of flights; the stream of news has none."""
    shop, flights = (Stream(Settings(stream=name, kafka=kafka), place) for name in ("shop", "flights"))
    for each in (shop, flights):
        each.create_topics()
    shop.write("shop.releases", an_hour("shop", time.time_ns() // 1_000_000))
    write(flights, release(1_200, FLIGHTS))


def _take_index(browser: Chrome, dashboard: Running, file: Path) -> None:
    prefer(browser, "light")
    size(browser, 1280, 400, scale=1)
    browser.get(dashboard.url)
    released = "return document.querySelectorAll('#streams .protects:not([hidden])').length"
    wait_for(browser, lambda: browser.execute_script(released) == 2)
    screenshot(browser, file)


def _take(browser: Chrome, dashboard: Running, picture: str, file: Path) -> None:
    query, width, height, scheme, shown = PICTURES[picture]
    prefer(browser, scheme)
    size(browser, width, height, scale=1)
    browser.get(f"{dashboard.url}/{query}")
    wait_for_round(browser, shown)
    wait_for(browser, lambda: of_page(browser, "curves", _POINTS) > 10)
    if shown == LAST:
        wait_for(browser, lambda: text(browser, "rising") != "")
    browser.execute_script("return document.fonts.ready")
    screenshot(browser, file)


if __name__ == "__main__":
    main()
