"""How often the intervals of kept labels hold, and how much nearer smoothed counts are.  Tables of docs/intervals.md.

Three public logs, every event a round and every round released, epsilon as given, delta 1e-6.  The noise has the law of
the true counters and fixed seeds, so the tables come out the same every time.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import nan

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.noisy_paths import Paths, shown_paths
from benchmarks.public_logs import Hits, public_logs
from stream_dp.counters import MECHANISMS
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.registry import Mechanism
from stream_dp.releases.estimates.showings import Showings
from stream_dp.releases.smoothing import Smoother
from stream_dp.releases.whole import WholeReleases
from stream_dp.releases.whole_release import WholeRelease

LOGS = ("invoices", "flights", "planes")
EPSILONS = (0.5, 1.0, 2.0, 4.0)
AFTER = (0, 100, 1_000, 10_000)
_CANDIDATES = 300  # labels that may be shown, spread evenly
_MOST_RUNS = 5
_ENOUGH = 150  # labels
_ROUNDS = 2_000


def main(console: Console, logs: Sequence[str] = LOGS) -> None:
    """Print how often 95% intervals hold and how far smoothed counts are off, on these logs."""
    held = _table("True counts inside the interval, in %", *(f"{after:,} rounds after" for after in AFTER))
    off = _table("Root mean square error", "released", "smoothed", "times nearer")
    for name, log in public_logs(*logs).items():
        for mechanism_name in MECHANISMS if name == "invoices" else ("binary", "blt"):
            for epsilon in EPSILONS:
                settings = (epsilon, 1e-6, log.horizon, log.items_per_event)
                mechanism, _ = calibrate(*settings, mechanism_name, shown="kept")
                said = name, mechanism_name, f"{epsilon:g}"
                number, cells = coverage(log, mechanism, epsilon)
                held.add_row(*said, str(number), *cells)
                labels, raw, smoothed = smoothing(log, mechanism, epsilon)
                ratio = raw / smoothed if labels else nan
                off.add_row(*said, str(labels), f"{raw:.1f}", f"{smoothed:.1f}", f"{ratio:.2f}")
    console.print(
        held, "Each cell: count +- 1.96 sd / the interval / that of a subscriber who came then.", off
    )


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title)
    for name in ("log", "mechanism", "epsilon", "labels", *columns):
        table.add_column(name, justify="right")
    return table


def candidates(log: Hits, mechanism: Mechanism) -> list[NDArray[np.int64]]:
    """Labels that may be shown at all, at most so many, evenly chosen."""
    numbers = np.arange(1, log.last + 1)
    least = float((mechanism.taus(numbers) - 5 * mechanism.sds(numbers)).min())
    some = [rounds for rounds in log.rounds if len(rounds) >= max(1, least)]
    return some[:: max(1, len(some) // _CANDIDATES)]


def coverage(log: Hits, mechanism: Mechanism, epsilon: float) -> tuple[int, list[str]]:
    """How many labels were looked at, and a cell for each of `AFTER`."""
    held: dict[int, list[tuple[bool, bool, bool]]] = defaultdict(list)
    labels = 0
    for paths in runs(log, mechanism):
        if labels >= _ENOUGH:
            break
        labels += len(paths.first)
        for row in range(len(paths.first)):
            for after, true, plain, aware, late in checked(mechanism, paths, row, epsilon):
                held[after].append((_inside(true, plain), _inside(true, aware), _inside(true, late)))
    cells = []
    for after in AFTER:
        shares = 100 * np.mean(held[after], axis=0) if held[after] else [np.nan] * 3
        cells.append(" / ".join(f"{share:.0f}" for share in shares))
    return labels, cells


def smoothing(log: Hits, mechanism: Mechanism, epsilon: float) -> tuple[int, float, float]:
    """How many labels, and the errors of released and smoothed counts over them and `_ROUNDS` rounds."""
    found: list[Paths] = []
    for paths in runs(log, mechanism):
        found.append(paths)
        if sum(len(each.first) for each in found) >= _ENOUGH // 2:
            break
    together = Paths(*(np.concatenate(each) for each in zip(*found, strict=True)))
    if not len(together.first):
        return 0, nan, nan
    return len(together.first), *errors(mechanism, together, epsilon, max(1, log.last // _ROUNDS))


def runs(log: Hits, mechanism: Mechanism) -> Iterator[Paths]:
    """The labels that several runs show, some at a time, in an order that mixes them."""
    some = candidates(log, mechanism)
    some = [some[place] for place in np.random.default_rng(1).permutation(len(some))]
    for seed in range(1, _MOST_RUNS + 1):
        yield from shown_paths(mechanism, some, log.last, seed)


def errors(mechanism: Mechanism, paths: Paths, epsilon: float, every: int) -> tuple[float, float]:
    """Root mean square error of released and of smoothed counts, over all shown labels and every so many rounds."""
    smoother, wholes = Smoother(), WholeReleases()
    released: list[NDArray[np.float64]] = []
    smoothed: list[NDArray[np.float64]] = []
    for number in range(every, paths.true.shape[1] + 1, every):
        rows = np.flatnonzero(paths.first <= number)
        labels = {"labels": [str(row) for row in rows], "counts": paths.noisy[rows, number - 1].tolist()}
        empty = release_of(mechanism, number, epsilon, None)
        whole = wholes.add(replace(empty, previous=number - every, **labels))
        assert whole is not None
        true = paths.true[rows, number - 1]
        released.append(paths.noisy[rows, number - 1] - true)
        smoothed.append(smoother.add(whole).counts - true)
    raw, near = (float(np.sqrt(np.mean(np.concatenate(each) ** 2))) for each in (released, smoothed))
    return raw, near


Interval = tuple[float, float]


def checked(
    mechanism: Mechanism, paths: Paths, row: int, epsilon: float
) -> Iterator[tuple[int, int, Interval, Interval, Interval]]:
    """Rounds after the first showing, true count, and three intervals: plain, of who saw it, of who came then."""
    showings = Showings()
    first = int(paths.first[row])
    release_of(mechanism, first - 1, epsilon, None).follow(showings)
    for after in AFTER:
        number = first + after
        if number > paths.true.shape[1]:
            return
        count = int(paths.noisy[row, number - 1])
        release = release_of(mechanism, number, epsilon, count)
        late = release_of(mechanism, number, epsilon, count).interval("label")
        release.follow(showings)
        reach = 1.96 * release.sd
        true = int(paths.true[row, number - 1])
        yield after, true, (count - reach, count + reach), release.interval("label"), late


def release_of(mechanism: Mechanism, number: int, epsilon: float, count: int | None) -> WholeRelease:
    """The release of a round that shows one label, or none."""
    rounds = max(1, number)
    return WholeRelease(
        v=1,
        stream="public",
        epoch=1,
        nonce="00" * 16,
        round=number,
        horizon=mechanism.horizon,
        ts="2026-01-31T12:00:00.000Z",
        unit="event",
        mechanism=mechanism.name,
        epsilon=epsilon,
        delta=1e-6,
        rho=mechanism.rho,
        tag="00" * 16,
        items_per_event=mechanism.items_per_event,
        sd=mechanism.sd(rounds),
        tau=mechanism.tau(rounds),
        shown="kept",
        previous=number - 1,
        part=1,
        parts=1,
        labels=[] if count is None else ["label"],
        counts=[] if count is None else [count],
    )


def _inside(true: int, bounds: Interval) -> bool:
    return bounds[0] <= true <= bounds[1]
