"""Intervals for the true counts that stand behind a release.

Where labels are kept, the interval of a label knows when the label was first shown: at that round its noise has the law
of first_showing.py, which is forgotten as rounds go by, until count - 1.96 sd .. count + 1.96 sd is left.  Of a label
that was on show before somebody began to read, nobody can say since when: its interval has the lower end of one that
was first shown then, with the count tau, and the upper end of one whose showing is forgotten, so it is wider.
Where labels are found at tests, the noise of its own test is in the count of each label: see found_labels.py.
Where labels are not kept, each was shown because this very count reached tau: its lower end is that of such a count
(batch/intervals.py).  For known labels, which are never tested, and in windows without end it is
count - 1.96 sd .. count + 1.96 sd.
"""

from collections.abc import Mapping, Sequence
from math import ceil, floor
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from stream_dp.batch.intervals import lower_ends
from stream_dp.counters.noise_shape import NoiseShape
from stream_dp.releases.estimates.first_showing import Noise, noise_when_shown
from stream_dp.releases.estimates.found_labels import noise_quantiles
from stream_dp.releases.estimates.noise_shapes import noise_shape
from stream_dp.releases.estimates.showings import Showing, Showings
from stream_dp.releases.release import Release

_PLAIN = Noise(0.0, 1.0)


def intervals(
    release: Release, showings: Mapping[str, Showing], confidence: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The lower and the upper end for each label of a whole release, in its order; counts, not rounded.

    `showings` are those of the labels, from `Showings.follow`.  Raises ValueError for a confidence
    outside (0, 1), and for a release that has not one count a label.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence is between 0 and 1, not {confidence}")
    if len(release.labels) != len(release.counts):
        raise ValueError("the release has not one count a label")
    deviations = NormalDist().inv_cdf((1 + confidence) / 2)
    counts = np.array(release.counts, np.float64)
    plain = deviations * release.sd
    low, high = counts - plain, counts + plain
    if not len(counts):
        return low, high
    if release.found is not None:
        shown = [showings[label] for label in release.labels]
        levels = (1 - confidence) / 2, (1 + confidence) / 2
        smallest, largest = noise_quantiles(release, shown, levels)
        return counts - largest, counts - smallest
    if release.shown == "each-round" and release.tau is not None and release.sd > 0:
        known = np.array(release.since or release.epoch) < release.epoch
        lifted = lower_ends(counts.astype(np.int64), release.sd, "normal", release.tau, (1 - confidence) / 2)
        return np.where(known, low, lifted), high
    if _shape(release) is None:
        return low, high
    shown = [showings[label] for label in release.labels]
    means, sds = noise_since(shown, release)
    middle, reach = counts - means * release.sd, deviations * sds * release.sd
    first = np.array([each.first for each in shown])
    return (
        np.where(first, middle - reach, np.minimum(low, middle - reach)),
        np.where(first, middle + reach, high),
    )


def noise_since(
    shown: Sequence[Showing], release: Release
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation, in units of `sd`, of the noise that labels with these showings have in a release."""
    shape = _shape(release)
    if shape is None or not shown:
        return np.zeros(len(shown)), np.ones(len(shown))
    means, sds = np.array([_noise(each, shape) for each in shown]).T
    rounds = np.array([each.round for each in shown])
    memory = shape.correlations(rounds, np.array([release.round])) ** 2
    return memory * means, np.sqrt(memory**2 * sds**2 + 1 - memory**2)


def interval(
    release: Release, showings: Mapping[str, Showing], label: str, confidence: float = 0.95
) -> tuple[float, float]:
    """The interval of one label.  Raises KeyError for a label that was not released, and ValueError as `intervals`."""
    low, high = intervals(release, showings, confidence)
    place = dict(zip(release.labels, range(len(low)), strict=False))[label]
    return float(low[place]), float(high[place])


def intervals_of(release: Release) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The 95% intervals of a release, which knows its showings if a subscription gave it.

    Of one that stands alone nobody knows since when its labels are shown.
    """
    known = getattr(release, "showings", None)
    return intervals(release, Showings().follow(release) if known is None else known)


def whole_intervals(release: Release) -> tuple[list[int], list[int]]:
    """The intervals as people see them: rounded outwards to whole numbers, and cut at zero."""
    low, high = intervals_of(release)
    return [max(0, floor(end)) for end in low.tolist()], [max(0, ceil(end)) for end in high.tolist()]


def rank_ranges(
    low: NDArray[np.float64], high: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The best and the worst rank that each label may have among these, whose intervals are given: 1 is the largest.

    Intervals that overlap leave the order open.
    """
    size = len(low)
    return 1 + size - np.sort(low).searchsorted(high, "right"), size - np.sort(high).searchsorted(low, "left")


def _shape(release: Release) -> NoiseShape | None:
    """None where labels are not kept, or the release is none that a counter makes."""
    horizon = release.horizon or 0
    sound = release.sd > 0 and 0 < release.round <= horizon < 2**25
    if release.shown != "kept" or not sound:
        return None
    try:
        return noise_shape(release.mechanism, horizon)
    except ValueError:
        return None


def _noise(showing: Showing, shape: NoiseShape) -> Noise:
    """What the label's noise was when it was first shown, computed once."""
    if showing.noise is None:
        tau = showing.tau or 0
        count = showing.count if showing.first else tau
        law = (shape, showing.round, showing.sd, tau, count, showing.step)
        showing.noise = _PLAIN if showing.known else noise_when_shown(*law)
    return showing.noise
