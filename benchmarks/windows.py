"""How much noise a window that never ends has, beside the least that any counter can have: counters/window.py.

Between the two stand counters that nobody has to use: poles fitted to windows alone, and the best of all blocks, whose
factors do not repeat from round to round.  Those are a convex problem: minimise, over positive definite X = C'C with a
diagonal of at most 1, the largest over places i of q' X^-1 q + r' X^-1 r, where q is 1 on the rounds up to i, and r on
the others.  Any weights of the places give a lower bound, which shows how near the end is.
"""

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.optimize import minimize

from benchmarks.public_logs import Hits, public_logs
from stream_dp.counters.blt_parameters import from_parameters, parameters_of
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.protocol import EpochParameters
from stream_dp.counters.window import WindowMechanism, least_sd, window_sds
from stream_dp.counters.window_poles import best_window_gaps, largest_window_sd
from stream_dp.engine.window_histogram import WindowHistogram
from stream_dp.privacy.keyed_noise import KEY_BYTES, NONCE_BYTES, KeyedNoise

_LARGEST_DENSE = 240
_WINDOW = 1_440
_NORMAL_95 = 1.96
Matrix = NDArray[np.float64]


def main(console: Console) -> None:
    table = Table(
        "W", "sd", "limit", "ratio", "windows alone", "any block", "at least", title="rho = 1, one item"
    )
    for window in (12, 60, 240, 1440):
        block = WindowMechanism.of(EpochParameters(window, 1, 1e-6), 1.0).block
        sd, limit = float(np.sqrt(np.max(window_sds(block)) ** 2 - 1 / 4)), least_sd(window)
        dense = best_block(window) if window <= _LARGEST_DENSE else None
        ratios = ["-", "-"] if dense is None else [f"{each / limit:.3f}" for each in dense]
        alone = f"{_windows_alone(window) / limit:.3f}"
        table.add_row(str(window), f"{sd:.3f}", f"{limit:.3f}", f"{sd / limit:.3f}", alone, *ratios)
    console.print(table)
    mechanism, _ = calibrate(1, 1e-6, 60, 4, "window")
    rounds = np.arange(61, 121)
    console.print(
        f"epsilon 1, delta 1e-6, 4 items, W = 60: sd {np.max(mechanism.sds(rounds)):.1f}, "
        f"tau {int(np.max(mechanism.taus(rounds)))}"
    )
    for epsilon in (2.0, 4.0):
        labels, inside = held(public_logs("flights")["flights"], epsilon)
        console.print(
            f"flights, windows of {_WINDOW:,}, epsilon {epsilon:g}: {inside:.1%} of {labels:,} true counts are in "
            "count +- 1.96 sd"
        )


def held(log: Hits, epsilon: float, keys: int = 2) -> tuple[int, float]:
    """How many windows of labels in four blocks there are, and which share of count +- 1.96 sd holds the true count."""
    mechanism, _ = calibrate(epsilon, 1e-6, _WINDOW, log.items_per_event, "window")
    assert isinstance(mechanism, WindowMechanism)
    last, step, noise = 4 * _WINDOW, _WINDOW // 20, list[float]()
    events: list[list[str]] = [[] for _ in range(last)]
    for label, hits in enumerate(log.rounds):
        for hit in hits[hits <= last].tolist():
            events[hit - 1].append(str(label))
    for key in range(keys):
        histogram = WindowHistogram(
            mechanism, KeyedNoise(bytes([key]) * KEY_BYTES, "bench", bytes(NONCE_BYTES))
        )
        for begin in range(0, last, step):
            for _ in histogram.blocks(events[begin : begin + step]):
                pass
            shown = histogram.last_release().snapshots()[-1]
            if shown.round <= 2 * _WINDOW:
                continue
            sd = float(mechanism.sds(np.array([shown.round]))[0])
            for label, count in zip(shown.labels, shown.counts, strict=True):
                hits = log.rounds[int(label)]
                true = np.count_nonzero((hits <= shown.round) & (hits > shown.round - _WINDOW))
                noise.append((count - true) / sd)
    return len(noise), float(np.mean(np.abs(noise) <= _NORMAL_95))


def _windows_alone(window: int) -> float:
    """The sd of the same number of poles, fitted to the largest sd of a window and to nothing else."""

    def sd(parameters: Matrix) -> float:
        with np.errstate(all="ignore"):
            value = largest_window_sd(from_parameters(parameters), window)
        return value if np.isfinite(value) else 1e3

    found = parameters_of(np.concatenate([*zip(*best_window_gaps(window), strict=True)]))
    for _ in range(3):
        found = minimize(sd, found, method="Nelder-Mead", options={"maxfev": 3000, "adaptive": True}).x
    return sd(found)


def best_block(window: int, steps: int = 200) -> tuple[float, float]:
    """The least sd that the windows of a block with any factors can have, and a bound that none is below."""
    first = np.tril(np.ones((window, window)))
    rest = first[-1] - first
    weights, scale = np.full(window, 1 / window), np.ones(window)
    least, bound = np.inf, 0.0
    for _ in range(steps):
        gram, scale, of_weights = _best_gram((first.T * weights) @ first + (rest.T * weights) @ rest, scale)
        inverse = np.linalg.inv(gram)
        variances = sum(np.einsum("ia,ab,ib->i", rows, inverse, rows) for rows in (first, rest)) / 2
        least = min(least, float(np.sqrt(variances.max() * np.diag(gram).max())))
        bound = max(bound, float(np.sqrt(of_weights / 2)))
        weights *= variances / variances.max()
        weights /= weights.sum()
    return least, bound


def _best_gram(wanted: Matrix, scale: Matrix) -> tuple[Matrix, Matrix, float]:
    """The X of diagonal 1 with the least trace of `wanted` X^-1, by its fixed point; where that ends, to begin there.

    Last, a bound that no such trace is below: for any D it is twice the trace of the root less that of D.

    With D a diagonal matrix, X = D^-1/2 (D^1/2 wanted D^1/2)^1/2 D^-1/2, and its diagonal is 1 where D is that of the
    root (Denisov, McMahan, Rush, Smith and Thakurta 2022, theorem 3.2).
    """
    for _ in range(30):
        root = np.sqrt(scale)
        of_root = _square_root(root[:, np.newaxis] * wanted * root)
        gram, before, scale = of_root / root[:, np.newaxis] / root, scale, np.diag(of_root).copy()
        bound = 2 * scale.sum() - before.sum()
    return gram, scale, float(bound)


def _square_root(matrix: Matrix) -> Matrix:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T)


if __name__ == "__main__":
    main(Console(width=110))
