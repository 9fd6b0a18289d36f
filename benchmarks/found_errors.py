"""How far off counts are if tests find labels, beside counts of labels that every round looks for.

Root mean square error of all labels that are shown, in the first half of a log and at its end, at the same guarantee.
Noise has the law of the true counters and fixed seeds.  A table of docs/accuracy.md.
"""

from collections.abc import Iterator, Sequence
from math import nan

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.found_intervals import paths, tested
from benchmarks.intervals import LOGS, runs
from benchmarks.public_logs import Hits, public_logs
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.discovery import DiscoveryMechanism
from stream_dp.counters.registry import Mechanism

_EPSILONS = (1.0, 2.0, 4.0)
_LABELS, _ROUNDS, _RUNS = 300, 500, 5

Errors = Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]
"""Of some labels: the errors of their counts in the first half of a log, and at its end."""


def main(console: Console, logs: Sequence[str] = LOGS) -> None:
    """Print the errors by either rule, and how they compare."""
    table = Table(title="Root mean square error of shown counts: every round / tests")
    for name in ("log", "epsilon", "first half", "ratio", "at the end", "ratio"):
        table.add_column(name, justify="right")
    for name, log in public_logs(*logs).items():
        for epsilon in _EPSILONS:
            kept, _ = calibrate(epsilon, 1e-6, log.horizon, log.items_per_event, "blt", shown="kept")
            cells = []
            for old, new in zip(
                _rms(_of_kept(log, kept)), _rms(_of_found(log, tested(log, epsilon))), strict=True
            ):
                cells += [f"{old:.1f} / {new:.1f}", f"{new / old:.2f}"]
            table.add_row(name, f"{epsilon:g}", *cells)
    console.print(table)


def _rms(errors: Errors) -> list[float]:
    """In the first half, and at the end."""
    return [
        float(np.sqrt(np.mean(each**2))) if len(each) else nan
        for each in map(np.concatenate, zip(*errors, strict=True))
    ]


def _of_kept(log: Hits, mechanism: Mechanism) -> Errors:
    labels = 0
    for some in runs(log, mechanism):
        off = (some.noisy - some.true).astype(float)
        shown = some.first[:, np.newaxis] <= np.arange(1, off.shape[1] + 1)
        half = off.shape[1] // 2
        yield off[:, :half][shown[:, :half]], off[:, -1][shown[:, -1]]
        labels += len(some.first)
        if labels >= _RUNS * _LABELS:
            return


def _of_found(log: Hits, mechanism: DiscoveryMechanism) -> Errors:
    for seed in range(_RUNS):
        early, last = [np.empty(0)], np.empty(0)
        for path in paths(log, mechanism, _LABELS, _ROUNDS, np.random.default_rng(seed)):
            last = (path.counts - path.true).astype(float)
            if path.round <= log.last // 2:
                early.append(last)
        yield np.concatenate(early), last


if __name__ == "__main__":
    main(Console(width=140))
