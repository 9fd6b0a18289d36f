"""The page under load: many releases leave it small, and what comes too fast is left out."""

import time

from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from tests.dashboard.chromium import heap_bytes
from tests.dashboard.page import (
    expected_rows,
    of_page,
    shown_rows,
    text,
    wait_for,
    wait_for_round,
)
from tests.dashboard.running import Running
from tests.example_releases import release
from tests.system.browser.published import many, write
from tests.system.streams import Stream
from tests.system.waiting import wait_until

_MANY_RELEASES = """
const [first, last, done] = arguments;
const of_page = name => import(new URL(`${name}.js`, location.origin + location.pathname));
Promise.all([of_page("connection"), of_page("state")]).then(([{ hear }, { changed, heard }]) => {
  const release = { ...heard.release }, ids = Array.from(heard.ids);
  let number = first;
  function some() {
    for (const end = Math.min(last, number + 500); number < end; number++) {
      const fresh = number % 60 ? [] : [`come and gone ${number}`];
      hear({ state: "open", age: 0, delay: 0, behind: 0, rate: 50, history: [1, 1],
             release: { ...release, round: number, sd: 10 + number % 16 }, ids,
             counts: ids.map((id, rank) => 9000 - rank + number % 7), labels: [],
             new: fresh.map(label => [label, number]) }, false);
      if (number % 25 === 0) changed(true);
    }
    if (number < last) setTimeout(some); else done();
  }
  some();
});
"""


_COUNT_FRAMES = """{
  window.frames_heard = window.best_rate = 0;
  page.source.addEventListener("update", event => {
    frames_heard++;
    best_rate = Math.max(best_rate, JSON.parse(event.data).rate ?? 0);
  });
}"""


def test_half_an_hour_of_releases_leaves_the_page_as_small_as_it_was(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    """18,000 frames of 1,000 labels, ten a second for half an hour, handed to the page as fast as it takes them."""
    write(stream, release(1, many(1_000)))
    browser.get(dashboard.url)
    wait_for_round(browser, 1)
    browser.execute_script("window.EventSource = class extends EventTarget { close() {} }")
    of_page(browser, "connection", "page.source.close()")  # it hears of the server no more
    browser.execute_async_script(_MANY_RELEASES, 1, 2_000)
    before, nodes = heap_bytes(browser), len(browser.find_elements(By.CSS_SELECTOR, "*"))
    browser.execute_async_script(_MANY_RELEASES, 2_000, 18_000)
    wait_until(  # one collection need not find all that was just let go
        lambda: heap_bytes(browser) < before + 500_000,
        lambda: f"{before:,} bytes, then {heap_bytes(browser):,}",
    )
    assert len(browser.find_elements(By.CSS_SELECTOR, "*")) <= nodes + 10
    assert nodes < 1_000
    wait_for_round(browser, 17_999)


def test_fifty_releases_a_second_of_a_thousand_labels_become_few_frames(
    dashboard: Running, stream: Stream, browser: Chrome
) -> None:
    """What comes faster than it can be seen is left out, not queued; the last release is on the page."""
    write(stream, release(1, many(1_000)))
    browser.get(dashboard.url)
    wait_for_round(browser, 1)
    of_page(browser, "connection", _COUNT_FRAMES)
    nodes = len(browser.find_elements(By.CSS_SELECTOR, "*"))
    counts = many(1_000)
    began = time.monotonic()
    for start in range(2, 77, 5):
        tenth = [release(start + each, {name: n + start for name, n in counts.items()}) for each in range(5)]
        write(stream, *tenth)
        time.sleep(0.1)
    wait_for_round(browser, 76)
    assert shown_rows(browser) == expected_rows(tenth[-1])[:25]
    assert 1 <= browser.execute_script("return frames_heard") <= 10 * (time.monotonic() - began) + 10
    assert len(browser.find_elements(By.CSS_SELECTOR, "*")) <= nodes + 10
    assert browser.execute_script("return best_rate") > 0
    wait_for(browser, lambda: text(browser, "rate") != "–")
