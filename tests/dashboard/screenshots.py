"""The pictures of the page in the documents.

    make screenshots

writes them into docs/pictures, from releases that are the same in every run.  Only times differ.
"""

import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import track

from stream_dp.config.settings import Settings
from stream_dp.dev.servers import embedded
from tests.dashboard.chromium import chromium, prefer, screenshot, size
from tests.dashboard.page import of_page, text, wait_for, wait_for_round
from tests.dashboard.running import running
from tests.dashboard.shop import RELEASES, ROUNDS_APART, an_hour
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


def main(folder: Path = FOLDER) -> None:
    """Start everything, take the pictures, and stop it all."""
    console = Console()
    with tempfile.TemporaryDirectory() as name, embedded(Path(name) / "servers") as servers:
        place = Path(name)
        stream = Stream(Settings(stream="shop", kafka=servers.kafka), place)
        stream.create_topics()
        stream.write("shop.releases", an_hour("shop", time.time_ns() // 1_000_000))
        with running(servers.kafka, "shop", place) as dashboard, chromium(place / "profile") as browser:
            dashboard.wait_until_round(LAST)
            for picture, (query, width, height, scheme, shown) in track(
                PICTURES.items(), "Pictures", console=console
            ):
                prefer(browser, scheme)
                size(browser, width, height, scale=1)
                browser.get(f"{dashboard.url}/{query}")
                wait_for_round(browser, shown)
                wait_for(browser, lambda: of_page(browser, "curves", _POINTS) > 10)
                if shown == LAST:
                    wait_for(browser, lambda: text(browser, "rising") != "")
                browser.execute_script("return document.fonts.ready")
                screenshot(browser, folder / f"{picture}.png")
    console.print(f"{len(PICTURES)} pictures are in {folder}.")


if __name__ == "__main__":
    main()
