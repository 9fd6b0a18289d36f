"""The dashboard in a real browser at 200 releases a second of 1,000 labels: how smooth, how far behind, how large.

    python -m benchmarks dashboard
    python -m benchmarks.dashboard 3600

The second one goes on for an hour, or for as many seconds as it is told.
"""

import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import msgspec
import numpy as np
from kafka import KafkaProducer
from rich.console import Console
from rich.table import Table
from selenium.webdriver import Chrome

from stream_dp.config.times import iso_timestamp
from stream_dp.dev.servers import embedded
from stream_dp.kafka import log
from tests.dashboard.chromium import chromium, heap_bytes
from tests.dashboard.running import Running, running
from tests.example_releases import release

RELEASES_PER_SECOND, LABELS, COME_AND_GO = 200, 1_000, 50
SECONDS, WARM_UP_SECONDS = 20, 5
_HORIZON = 2**22 - 1
_PAGE_BYTES = resource.getpagesize()

_WATCH = """return (async () => {
window.seen = {frames: 0, intervals: new Uint32Array(10_000)};  // how many of so many milliseconds
const { source } = await import("/connection.js");
source.addEventListener("update", () => seen.frames++);
let last = performance.now();
(function tick(now) {
  seen.intervals[Math.min(9_999, Math.round(now - last))]++;
  last = now;
  requestAnimationFrame(tick);
})(last);
})();
"""


def main(console: Console, seconds: int = SECONDS) -> None:
    """Print what the page and its server do under a steady stream of large releases."""
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        console.print("dashboard: needs Chromium (Debian: apt-get install chromium chromium-driver)")
        return
    with tempfile.TemporaryDirectory() as name, _page(Path(name)) as (writer, dashboard, browser):
        writer.write_for(WARM_UP_SECONDS)
        browser.execute_script(_WATCH)
        heap, server, worked = heap_bytes(browser), _resident(dashboard), _cpu_seconds(dashboard)
        first, began = writer.round, time.monotonic()
        behind = writer.write_for(seconds, lambda: _round_of(browser))
        elapsed = time.monotonic() - began
        seen = browser.execute_script("return {frames: seen.frames, intervals: [...seen.intervals]}")
        worked = _cpu_seconds(dashboard) - worked
        table = Table(title=TITLE, show_header=False)
        for what, value in (
            ("first contentful paint", f"{_first_paint(browser):.0f} ms"),
            ("releases a second in the topic", f"{(writer.round - first) / elapsed:.1f}"),
            ("frames a second to the page", f"{seen['frames'] / elapsed:.1f}"),
            ("page behind the topic, median and most", f"{median(behind):.2f} s, {max(behind):.2f} s"),
            ("between two pictures, median and 99 of 100", _two(seen["intervals"])),
            ("script memory of the page, then and after", _megabytes(heap, heap_bytes(browser))),
            ("memory of the server, then and after", _megabytes(server, _resident(dashboard))),
            ("processor of the server", f"{worked / elapsed:.0%} of one core"),
        ):
            table.add_row(what, value)
    console.print(table)


TITLE = f"Dashboard: {RELEASES_PER_SECOND} releases a second of {LABELS:,} labels, one viewer"


class _Writer:
    """Writes releases at an even pace; a few labels come and go around the threshold."""

    def __init__(self, producer: KafkaProducer, topic: str) -> None:
        self.round = 0
        self._producer, self._topic = producer, topic

    def write_for(self, seconds: float, round_of: Callable[[], int] | None = None) -> list[float]:
        """Write for so long; twice a second ask which round is shown, and tell how many seconds ago it came."""
        behind: list[float] = []
        began, sent = time.monotonic(), self.round
        while (now := time.monotonic()) < began + seconds:
            while self.round - sent < (now - began) * RELEASES_PER_SECOND:
                self._write_next()
            if round_of is not None and len(behind) < 2 * (now - began):
                behind.append((self.round - round_of()) / RELEASES_PER_SECOND)
            time.sleep(0.005)
        return behind

    def _write_next(self) -> None:
        self.round += 1
        gone = LABELS - self.round % COME_AND_GO
        labels = [f"label {each}" for each in range(LABELS + 1) if each != gone]
        counts = [9_000 - each + self.round // 50 + (self.round * each) % 31 for each in range(len(labels))]
        shown = dict(zip(labels, sorted(counts, reverse=True), strict=True))
        dated = {"ts": iso_timestamp(time.time_ns() // 1_000_000), "horizon": _HORIZON}
        large = msgspec.structs.replace(release(self.round, shown, "bench"), **dated)
        self._producer.send(self._topic, msgspec.json.encode(large))


@contextmanager
def _page(folder: Path) -> Iterator[tuple[_Writer, Running, Chrome]]:
    """A page that shows the first release of an embedded broker's topic."""
    with embedded(folder / "servers") as servers:
        log.create_topics(servers.kafka, "bench.releases")
        with (
            KafkaProducer(bootstrap_servers=servers.kafka, linger_ms=5) as producer,
            running(servers.kafka, "bench", folder, as_program=True) as dashboard,
            chromium(folder / "profile") as browser,
        ):
            writer = _Writer(producer, "bench.releases")
            writer.write_for(0.1)
            dashboard.wait_until("/api/v1/release/latest", 200)
            browser.get(dashboard.url)
            while not _round_of(browser):
                time.sleep(0.05)
            yield writer, dashboard, browser


def _round_of(browser: Chrome) -> int:
    """The round that the page shows, 0 for none yet."""
    shown = browser.execute_script("return document.getElementById('round').textContent")
    return int(shown.replace(",", "")) if shown[:1].isdigit() else 0


def _first_paint(browser: Chrome) -> float:
    return float(
        browser.execute_script("return performance.getEntriesByName('first-contentful-paint')[0].startTime")
    )


def _resident(dashboard: Running) -> int:
    """Bytes of memory of the server's process."""
    return int(Path(f"/proc/{dashboard.process.pid}/statm").read_text().split()[1]) * _PAGE_BYTES


def _cpu_seconds(dashboard: Running) -> float:
    fields = Path(f"/proc/{dashboard.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100  # in ticks of 10 ms, as Linux tells it to everybody


def _two(intervals: list[int]) -> str:
    """The median and the 99th percentile of milliseconds that came so often."""
    came = np.cumsum(intervals)
    at = [int(np.searchsorted(came, share * came[-1])) for share in (0.5, 0.99)]
    return f"{at[0]} ms, {at[1]} ms"


def _megabytes(then: int, after: int) -> str:
    return f"{then / 1e6:.1f} MB, {after / 1e6:.1f} MB"


if __name__ == "__main__":
    main(Console(width=110), int(sys.argv[1]) if sys.argv[1:] else SECONDS)
