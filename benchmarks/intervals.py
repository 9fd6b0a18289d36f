"""How often the intervals of kept labels hold, and how much nearer smoothed counts are.  Tables of docs/accuracy.md.

Three public logs, every event a round and every round released, epsilon as given, delta 1e-6.  The noise has the law of
the true counters and fixed seeds, so the tables come out the same every time.
"""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.noisy_paths import Paths, shown_paths
from benchmarks.public_logs import Hits, public_logs
from stream_dp.calibration import calibrate
from stream_dp.counters import Mechanism
from stream_dp.estimates.showings import Showings
from stream_dp.releases_topic import WholeRelease

EPSILONS = (0.5, 1.0, 2.0, 4.0)
AFTER = (0, 100, 1_000, 10_000)
_LABELS = 150  # of those shown, spread evenly
_CANDIDATES = 450


def main(console: Console) -> None:
    """Print the coverage of 95% intervals."""
    table = Table(
        title="True counts inside the 95% interval, in %: count +- 1.96 sd / interval / late subscriber"
    )
    for name in ("log", "mechanism", "epsilon", "labels", *(f"{after:,} rounds after" for after in AFTER)):
        table.add_column(name, justify="right")
    for name, log in public_logs().items():
        mechanisms = ("binary", "honaker", "smooth", "blt") if name == "invoices" else ("binary", "blt")
        for mechanism_name in mechanisms:
            for epsilon in EPSILONS:
                settings = (epsilon, 1e-6, log.horizon, log.items_per_event)
                mechanism, _ = calibrate(*settings, mechanism_name, shown="kept")
                found = coverage(log, mechanism, epsilon)
                labels, cells = found
                table.add_row(name, mechanism_name, f"{epsilon:g}", str(labels), *cells)
    console.print(table)


def candidates(log: Hits, mechanism: Mechanism) -> list[np.ndarray]:
    """Labels that may be shown at all, at most so many, evenly chosen."""
    numbers = np.arange(1, log.last + 1)
    least = float((mechanism.taus(numbers) - 5 * mechanism.sds(numbers)).min())
    some = [rounds for rounds in log.rounds if len(rounds) >= max(1, least)]
    return some[:: max(1, len(some) // _CANDIDATES)]


def coverage(log: Hits, mechanism: Mechanism, epsilon: float) -> tuple[int, list[str]]:
    """How many labels were looked at, and a cell for each of `AFTER`."""
    held: dict[int, list[tuple[bool, bool, bool]]] = defaultdict(list)
    labels = 0
    for paths in shown_paths(mechanism, candidates(log, mechanism), log.last):
        for row in range(len(paths.first)):
            labels += 1
            for after, true, plain, aware, late in checked(mechanism, paths, row, epsilon):
                held[after].append((_inside(true, plain), _inside(true, aware), _inside(true, late)))
    cells = []
    for after in AFTER:
        shares = 100 * np.mean(held[after], axis=0) if held[after] else [np.nan] * 3
        cells.append(" / ".join(f"{share:.0f}" for share in shares))
    return labels, cells


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
