"""How much counts changed between released rounds of one epoch: the noise that both rounds share cancels.

With weights a(r), the sum of a(r) noisy(u, r) has the variance sum of a(r) a(s) Cov(r, s), and the covariances follow
from the mechanism and the horizon (noise_shapes.py).  So a window of w rounds, noisy(u, l) - noisy(u, l - w), has far
less noise than the difference of two independent counts, and the less the shorter it is.

Labels that are kept were shown because their noise was high, and they forget it as rounds go by.  At the older end of a
window that noise is higher on average, so the window of a label that was shown shortly before is too low.  The interval
allows for it: it takes off the mean that the noise has at each end, as the interval of a count does (intervals.py).  Of
a label of which nobody can say since when it is shown, the interval holds both ends of what is possible.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from stream_dp.releases.estimates.intervals import noise_since
from stream_dp.releases.estimates.noise_shapes import noise_shape
from stream_dp.releases.estimates.showings import Showing
from stream_dp.releases.release import Release

_ROUNDED = {"blt": 1 / 12, "honaker": 1 / 12}
"""The variance that rounding adds to each count of a mechanism whose draws are no whole numbers."""


def sd_of_combination(release: Release, weights: Mapping[int, float]) -> float:
    """The standard deviation of the noise in the sum of weight times count over rounds, the last of them `release`'s.

    Raises ValueError for a mechanism that is not known.
    """
    shape = noise_shape(release.mechanism, release.horizon)
    rounding = _ROUNDED.get(release.mechanism, 0.0)
    rounds, factors = np.array(list(weights)), np.array(list(weights.values()))
    earlier, later = np.minimum(rounds[:, None], rounds), np.maximum(rounds[:, None], rounds)
    unit = max(0.0, release.sd**2 - rounding) / float(shape.sds(np.array([release.round]))[0]) ** 2
    shared = unit * float(factors @ shape.covariances(earlier, later) @ factors)
    return float(np.sqrt(max(0.0, shared) + rounding * float(factors @ factors)))


def window_sd(release: Release, since: int) -> float:
    """The standard deviation of the noise in a window from round `since` (0: the epoch's beginning) to a release."""
    if since == 0:
        return release.sd
    return 0.0 if since == release.round else sd_of_combination(release, {since: -1.0, release.round: 1.0})


def window_intervals(
    release: Release, older: Release, shown: Sequence[Showing], counts: NDArray[np.int64], confidence: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The ends of the intervals of windows `counts` from `older` to `release`, for labels with these showings."""
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * window_sd(release, older.round)
    plain = counts.astype(np.float64)
    if release.shown != "kept":
        return plain - reach, plain + reach
    first = np.array([each.first for each in shown], bool)
    latest = [each if each.first else replace(each, round=older.round, noise=None) for each in shown]
    lift = noise_since(latest, release)[0] * release.sd - noise_since(latest, older)[0] * older.sd
    middle = plain - lift
    return (
        np.where(first, middle, np.minimum(plain, middle)) - reach,
        np.where(first, middle, np.maximum(plain, middle)) + reach,
    )
