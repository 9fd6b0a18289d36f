"""Which library draws the page's chart: its weight, how long a new picture takes, and what screen readers get of it.

    python -m benchmarks charts

Packages come from npm, at the versions below.  Each draws eight curves of 128 points with ribbons, 50 times with new
numbers, in a page whose content security policy is the dashboard's.
"""

import gzip
import http.server
import shutil
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from selenium.common.exceptions import JavascriptException
from selenium.webdriver import Chrome

from stream_dp.dashboard.protection import CONTENT_SECURITY_POLICY
from tests.dashboard.chromium import chromium, complaints

PACKAGES = {"uplot": "1.6.32", "@observablehq/plot": "0.6.17", "d3": "7.9.2", "echarts": "6.1.0"}
LIBRARIES = {
    "uPlot": ("uplot/dist/uPlot.iife.min.js",),
    "Observable Plot": ("d3/dist/d3.min.js", "plot/dist/plot.umd.min.js"),
    "ECharts": ("echarts/dist/echarts.min.js",),
}
CURVES, POINTS, PICTURES = 8, 128, 50

_DRAW = (
    """
const place = document.createElement("div");
place.style.width = "800px"; place.style.height = "300px";
const many = (number, of) => Array.from({length: number}, (_, place) => of(place));
const numbers = turn => many(CURVES, c => many(POINTS, x => c * 50 + x * 3 + (turn * 7 + x) % 11));
const x = many(POINTS, place => place);
const WAYS = {
  "uPlot": () => {
    const series = [{}], bands = [];
    for (let c = 0; c < CURVES; c++) {
      series.push({stroke: "blue"}, {}, {});
      bands.push({series: [3 * c + 2, 3 * c + 3], fill: "#00f3"});
    }
    const data = turn => [x, ...numbers(turn).flatMap(y => [y, y.map(v => v + 9), y.map(v => v - 9)])];
    const plot = new uPlot({width: 800, height: 300, series, bands}, data(0), place);
    return turn => { plot.setData(data(turn)); };
  },
  "Observable Plot": () => turn => {
    const marks = numbers(turn).flatMap(y => [
      Plot.areaY(y, {x: (_, i) => i, y1: v => v - 9, y2: v => v + 9, fill: "blue", fillOpacity: 0.2}),
      Plot.lineY(y, {x: (_, i) => i, y: v => v, stroke: "blue"})]);
    place.replaceChildren(Plot.plot({width: 800, height: 300, marks, ariaLabel: "counts"}));
  },
  "ECharts": () => {
    const chart = echarts.init(place);
    return turn => chart.setOption({animation: false, aria: {enabled: true}, xAxis: {type: "value"}, yAxis: {},
      series: numbers(turn).flatMap((y, c) => [
        {type: "line", data: y.map((v, i) => [i, v - 9]), stack: "b" + c, symbol: "none"},
        {type: "line", data: y.map((v, i) => [i, 18]), stack: "b" + c, symbol: "none", areaStyle: {}},
        {type: "line", data: y.map((v, i) => [i, v]), symbol: "none"}])});
  },
};
const [library, done] = arguments;
document.body.append(place);
const draw = WAYS[library](), times = [];
let turn = 0;
(async () => {
  while (turn < PICTURES) {
    const began = performance.now();
    draw(++turn);
    await new Promise(drawn => queueMicrotask(() => queueMicrotask(drawn)));
    place.getBoundingClientRect();
    times.push(performance.now() - began);
    await new Promise(requestAnimationFrame);
  }
  done([times, place.querySelectorAll("canvas").length, place.querySelectorAll("svg [aria-label]").length]);
})();
""".replace("CURVES", str(CURVES))
    .replace("POINTS", str(POINTS))
    .replace("PICTURES", str(PICTURES))
)


class _Pages(http.server.SimpleHTTPRequestHandler):
    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        return


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Pages, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _fetch(folder: Path) -> None:
    for package, version in PACKAGES.items():
        told = subprocess.run(
            ["npm", "pack", "--silent", f"{package}@{version}"], cwd=folder, check=True, capture_output=True
        )
        file = folder / told.stdout.decode().split()[-1]
        with tarfile.open(file) as packed:
            packed.extractall(folder / "open", filter="data")
        (folder / "open/package").rename(folder / package.rpartition("/")[2])


def _drawn(browser: Chrome, library: str) -> tuple[str, str]:
    """How long a picture takes, and what it is; a dash for a library that the policy keeps from drawing."""
    try:
        times, canvases, named = browser.execute_async_script(_DRAW, library)
    except JavascriptException as refusal:
        return "–", f"nothing: {str(refusal.msg).partition(':')[2].strip()[:40]}"
    drawn = "canvas: named by us" if canvases else f"SVG, {named} parts named"
    return f"{median(times):.1f} ms", drawn


def main(console: Console) -> None:
    """Print the weight and the speed of each, and what the policy keeps it from."""
    if not all(shutil.which(name) for name in ("npm", "chromium", "chromedriver")):
        console.print("charts: needs npm and Chromium (Debian: apt-get install npm chromium chromium-driver)")
        return
    table = Table(
        "library", "compressed", "a new picture, median", "drawn as", "policy broken", title="Charts"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _fetch(folder)
        with _served(folder) as url, chromium(folder / "profile") as browser:
            for library, files in LIBRARIES.items():
                scripts = "".join(f'<script src="/{each}"></script>' for each in files)
                (folder / "page.html").write_text(f"<!doctype html><title>{library}</title><body>{scripts}")
                browser.get(f"{url}/page.html")
                weight = sum(len(gzip.compress((folder / each).read_bytes(), 6)) for each in files)
                speed, drawn = _drawn(browser, library)
                broken = sum("Content Security" in each["message"] for each in complaints(browser))
                table.add_row(library, f"{weight / 1000:.0f} kB", speed, drawn, f"{broken} times")
    console.print(table)


if __name__ == "__main__":
    main(Console(width=110))
