"""What is known of the noise of labels that were found at tests.

The law.  A label with n events was measured as y = n + N, with noise of standard deviation s, and was found because y
reached tau.  Given that, the noise has the law of a normal value that is at least tau - 1/2 - n: for a true count x,

    F(y; x)  =  1 - Phibar((y - x) / s) / Phibar((tau - 1/2 - x) / s).

All x with a / 2 <= F(y; x) <= 1 - a / 2 make an interval of confidence 1 - a, which is read here as a law of the noise
u = (y - x) / s: its distribution function is 1 - Phibar(u) / Phibar(u - w), w = (y - tau + 1/2) / s, up to the largest
value that leaves the label as many events as it must have had.  The noise of later rounds is independent of it, and
normal: the interval of a count is that of the sum.  The noise of the test stays for good, so the interval does not
forget it; it becomes small beside that of later rounds.

A window between two later rounds has none of it, and no bias: y is in both counts.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from stream_dp.releases.estimates.noise_shapes import noise_shape
from stream_dp.releases.estimates.showings import Showing
from stream_dp.releases.release import Release, TestRecord

_ROUNDING = 1 / 12
_FURTHEST = 8.0  # standard deviations of a test's noise: beyond lies nothing that counts
_CELLS = 96
_MOST_STEPS, _NEAR = 60, 1e-10
_EXCESSES = np.concatenate([[1e-3], np.linspace(0, 2, 12)[1:], np.linspace(2.5, 8, 8)])
"""Values of w between which the rest is interpolated; beyond the last one the test tells nothing.  0 has no law."""

Floats = NDArray[np.float64]


def combination_sds(release: Release, found: Sequence[int], weights: Mapping[int, float]) -> Floats:
    """The standard deviation of the noise in a sum of weight times count over rounds, for labels found at these tests.

    None of the rounds comes before a label's test.
    """
    shape = noise_shape(release.mechanism, release.horizon or 0)
    rounds, factors = np.array(list(weights)), np.array(list(weights.values()))
    by_test = {}
    for test in {*found}:
        record = test_record(release, test)
        ages = rounds - record.round
        later = ages > 0
        ages, rest = ages[later], factors[later]
        earlier_age, later_age = np.minimum(ages[:, None], ages), np.maximum(ages[:, None], ages)
        of_rounds = (release.draw_sd or 0.0) ** 2 * float(
            rest @ shape.covariances(earlier_age, later_age) @ rest
        )
        of_test = factors.sum() ** 2 * (record.sd**2 + (_ROUNDING if test else 0.0))
        by_test[test] = np.sqrt(max(0.0, of_rounds) + of_test + _ROUNDING * float(rest @ rest))
    return np.array([by_test[test] for test in found], np.float64)


def noise_quantiles(
    release: Release, shown: Sequence[Showing], levels: tuple[float, float]
) -> tuple[Floats, Floats]:
    """Two quantiles of the noise of all counts of a release whose labels have these showings.

    Of a label of which nobody knows with which count it was found, the lower quantile is that of one whose noise is
    forgotten, and the upper one that of one which was found with the least count.
    """
    found = release.found or []
    low, high = np.zeros(len(found)), np.zeros(len(found))
    sds = np.array(release.label_sds)
    tests = np.array(found, np.int64)
    for test in {*found}:
        here = np.flatnonzero(tests == test)
        if not test:
            plain = _normal_quantiles(levels)
            low[here], high[here] = plain[0] * sds[here], plain[1] * sds[here]
            continue
        record = test_record(release, test)
        later = np.sqrt(max(0.0, float(sds[here[0]]) ** 2 - record.sd**2))
        excess = np.array([_excess(shown[place], record) for place in here.tolist()])
        least = (record.tau - 0.5 - (release.at_least or 1)) / record.sd
        below, above = _lifted(round(least, 6), round(float(later) / record.sd, 6), levels)
        known = np.array([shown[place].first for place in here.tolist()])
        forgotten = _normal_quantiles(levels)[0] * float(sds[here[0]])
        low[here] = np.where(known, record.sd * np.interp(excess, _EXCESSES, below), forgotten)
        high[here] = record.sd * np.interp(excess, _EXCESSES, above)
    return low, high


def noise_of_test(counts: Floats, sd: float, least: int) -> tuple[Floats, Floats]:
    """Mean and standard deviation of the noise of a test in what it measured of labels of at least `least` events.

    By Bayes' rule, where all true counts x have the prior 1 / x: of labels that are twice as large there are half as
    many.  What was measured is therefore too high on average, and more so of small counts.
    """
    if not sd:
        return np.zeros(len(counts)), np.zeros(len(counts))
    noise = np.linspace(-_FURTHEST, _FURTHEST, _CELLS) * sd
    true = counts[:, None] - noise
    masses = np.where(true >= least, np.exp(-((noise / sd) ** 2) / 2) / np.maximum(true, least), 1e-300)
    masses /= masses.sum(axis=1, keepdims=True)
    means = masses @ noise
    return means, np.sqrt(np.sum(masses * (noise - means[:, None]) ** 2, axis=1))


def test_record(release: Release, test: int) -> TestRecord:
    """The test of this number; a label that was known before the epoch counts from its first round on, without one.

    Raises ValueError where the release does not tell it.
    """
    if not test:
        return TestRecord(0, 0, 0.0)
    try:
        return (release.tests or {})[str(test)]
    except KeyError:
        raise ValueError(f"the release does not tell what test {test} was") from None


def _excess(showing: Showing, record: TestRecord) -> float:
    """w of a label: how far above the threshold it was measured, or 0 where nobody knows."""
    count = showing.count if showing.first else record.tau
    return max(_EXCESSES[0], (count - record.tau + 0.5) / record.sd)


@lru_cache(maxsize=64)
def _laws(least: float) -> tuple[Floats, Floats]:
    """The laws of u for each of `_EXCESSES`, in cells: their middles and masses, each of shape (excesses, cells)."""
    ends = np.minimum(_FURTHEST, least + _EXCESSES)
    edges = np.linspace(-_FURTHEST, ends, _CELLS + 1, axis=1)
    masses = np.diff(1 - ndtr(-edges) / ndtr(_EXCESSES[:, None] - edges))
    return (edges[:, 1:] + edges[:, :-1]) / 2, masses / masses.sum(axis=1, keepdims=True)


@lru_cache(maxsize=512)
def _lifted(least: float, later: float, levels: tuple[float, float]) -> tuple[Floats, Floats]:
    """Quantiles of u plus `later` times a normal value, for each of `_EXCESSES`.

    Newton's steps, where chances are measured by the normal values that have them, which is almost a straight line; a
    step that leaves what is left of the line is one to its middle instead.
    """
    cells, masses = _laws(least)
    width = (cells[:, 1] - cells[:, 0])[:, None]
    spread = np.sqrt(later**2 + width**2 / 12)  # a cell's own mass is spread over it
    wanted = np.array([_normal_quantiles(levels)]).T
    low = np.full((len(levels), len(_EXCESSES)), -_FURTHEST * (1 + later))
    high, found = -low, wanted * np.sqrt(later**2 + 1)
    for _ in range(_MOST_STEPS):
        from_cells = (found[..., None] - cells) / spread
        below = np.clip(np.sum(masses * ndtr(from_cells), axis=-1), 1e-300, 1 - 1e-16)
        density = np.sum(masses * np.exp(-(from_cells**2) / 2) / spread, axis=-1)
        reached = ndtri(below)
        low, high = np.where(reached < wanted, found, low), np.where(reached < wanted, high, found)
        step = (wanted - reached) * np.exp(-(reached**2) / 2) / np.maximum(density, 1e-300)
        nearer = np.where((low <= found + step) & (found + step <= high), found + step, (low + high) / 2)
        moved, found = np.abs(nearer - found).max(), nearer
        if moved < _NEAR * (1 + later):
            break
    return found[0], found[1]


@lru_cache(maxsize=8)
def _normal_quantiles(levels: tuple[float, float]) -> tuple[float, float]:
    return NormalDist().inv_cdf(levels[0]), NormalDist().inv_cdf(levels[1])
