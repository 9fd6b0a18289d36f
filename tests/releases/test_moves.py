"""Which labels rose or fell from one window to the next, by more than noise and chance explain."""

import io
from collections.abc import Iterator

import numpy as np
import pytest
from msgspec.structs import replace
from rich.console import Console

from benchmarks.intervals import release_of
from benchmarks.noisy_paths import shown_paths
from stream_dp.cli.window_view import picture
from stream_dp.releases.estimates import differences
from stream_dp.releases.estimates.showings import Showings
from stream_dp.releases.window_readers import Windows
from stream_dp.releases.windows import FALSE_DISCOVERIES, Span, Window, window_between, with_moves
from tests.releases.estimates.labels import EPSILON, mechanism
from tests.releases.test_windows import Readers, stream


def movers(name: str, seed: int, width: int = 1_000) -> Iterator[tuple[Window, dict[str, int]]]:
    """Windows over labels of which most do not change; with what each of them really gained since the one before."""
    counter = mechanism(name)
    steady = [np.arange(1 + first, 4_001, 10) for first in range(60)]
    sudden = [np.sort(np.r_[np.arange(1, 4_001, 10), np.arange(3_005, 4_001, 10)]) for _ in range(6)]
    gone = [np.arange(1, 3_001, 10) for _ in range(6)]
    for paths in shown_paths(counter, steady + sudden + gone, 4_000, seed):
        ends = []
        showings = Showings()
        release_of(counter, 1, EPSILON, None).follow(showings)
        for number in (4_000 - 2 * width, 4_000 - width, 4_000):
            rows = np.flatnonzero(paths.first <= number)
            labels = {"labels": [str(row) for row in rows], "counts": paths.noisy[rows, number - 1].tolist()}
            ends.append(replace(release_of(counter, number, EPSILON, None), **labels))
            ends[-1].follow(showings)
        true = {
            str(row): int(counts[3_999] - 2 * counts[3_999 - width] + counts[3_999 - 2 * width])
            for row, counts in enumerate(paths.true)
        }
        yield with_moves(window_between(ends[2], ends[1]), ends[0]), true


def wrong_and_found(name: str) -> tuple[float, float]:
    """The mean share of named labels that did not move that way, and the share of movers that are named."""
    wrong, found = [], []
    for seed in range(8):
        for window, true in movers(name, seed):
            named = [(label, 1) for label in window.rising] + [(label, -1) for label in window.falling]
            right = [np.sign(true[label]) == sign for label, sign in named]
            wrong.append(1 - np.mean(right) if right else 0.0)
            found.append(sum(right) / max(1, sum(change != 0 for change in true.values())))
    return float(np.mean(wrong)), float(np.mean(found))


def test_few_of_the_labels_that_are_named_did_not_move() -> None:
    wrong, found = wrong_and_found("blt")
    assert wrong < FALSE_DISCOVERIES
    assert found > 0.9


def pages_that_name_any() -> float:
    """Of a thousand pages on which no rate changed, the share that names a label as rising or falling."""
    counter = mechanism("blt")
    ends = [release_of(counter, number, EPSILON, None) for number in (2_000, 3_000, 4_000)]
    ends = [replace(each, shown="each-round") for each in ends]
    sd = differences.sd_of_combination(ends[2], {2_000: 1.0, 3_000: -2.0, 4_000: 1.0})
    random = np.random.default_rng(7)
    rates = np.geomspace(1, 100_000, 40)
    named = 0
    for _ in range(1_000):
        events = random.poisson(rates, (2, 40))
        first, second = np.rint(events + random.normal(0, sd / np.sqrt(2), (2, 40))).astype(np.int64)
        found = differences.changes_between(ends, [], [], (first, second), FALSE_DISCOVERIES)
        named += bool(found.signs.any())
    return named / 1_000


def test_few_pages_raise_a_false_alarm_over_events_that_come_at_steady_rates() -> None:
    assert pages_that_name_any() < 0.05 + 3 * np.sqrt(0.05 / 1_000)


def test_a_page_that_forgets_chance_raises_false_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "chance", lambda *_: 0.0)
    assert pages_that_name_any() > 0.5


def test_noise_that_is_taken_for_smaller_names_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    sd = differences.sd_of_combination
    monkeypatch.setattr(differences, "sd_of_combination", lambda *those: sd(*those) / 4)
    assert wrong_and_found("blt")[0] > 1.5 * FALSE_DISCOVERIES


def test_a_window_names_no_mover_before_there_are_two() -> None:
    releases = stream(range(1, 41), {"tea": (1, 3), "milk": (1, 1)})
    for each in releases[25:]:  # milk takes off
        each.counts[:] = [
            count + 60 * (each.round - 25) * (label == "milk") for label, count in each.histogram.items()
        ]
    readers = Readers(releases)
    with Windows(readers.again, Span(rounds=10), 0.1) as found:
        windows = [found.window(release) for release in releases]
    assert all(window.moves is None for window in windows[:20]), "nobody can tell yet"
    assert windows[22].moves == []
    assert windows[34].rising == ["milk"]
    [milk] = windows[34].moves or []
    assert milk.low < milk.change == 600 < milk.high
    assert not any(window.falling for window in windows)
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(picture(windows[34], 80, 5))
    assert "milk       ▲" in console.export_text()
    with pytest.raises(ValueError, match="between 0 and 1"):
        Windows(readers.again, Span(rounds=10), 1.0)
    assert with_moves(windows[5], releases[0]) is windows[5]
    assert with_moves(windows[34], windows[34].since) is windows[34]
