"""How much counts changed between released rounds of one epoch: the noise that both rounds share cancels.

With weights a(r), the sum of a(r) noisy(u, r) has the variance sum of a(r) a(s) Cov(r, s), and the covariances follow
from the mechanism and the horizon (`NoiseShape`).  So a window of w rounds, noisy(u, l) - noisy(u, l - w), has far
less noise than the difference of two independent counts, and the less the shorter it is.

Labels that are kept were shown because their noise was high, and they forget it as rounds go by.  At the older end of a
window that noise is higher on average, so the window of a label that was shown shortly before is too low.  The interval
allows for it: it takes off the mean that the noise has at each end, as the interval of a count does (intervals.py).  Of
a label of which nobody can say since when it is shown, the interval holds both ends of what is possible.

A label moves when two windows that follow one another differ, N(l) - 2 N(m) + N(e), by more than noise and chance
explain.  Chance: events that come at a steady rate do not come equally often in two windows.  If they come
independently of each other (Poisson), the difference of two windows has the variance of their sum, which is estimated
by its noisy value.  Noise and events of different labels are independent and nearly normal, so the rule of Benjamini
and Hochberg
(1995) bounds the expected share of labels that are named although their rate did not change, or changed the other way
(Benjamini and Yekutieli 2005).  If no rate changed, that share is the probability that any label is named at all.  It
holds for one release and the labels in it, not for all releases together, and events that come in bursts break it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from stream_dp.releases.estimates.found_labels import combination_sds
from stream_dp.releases.estimates.intervals import noise_since
from stream_dp.releases.estimates.noise_shapes import noise_shape, running_kind
from stream_dp.releases.estimates.showings import Showing
from stream_dp.releases.release import Release


def sd_of_combination(release: Release, weights: Mapping[int, float], sd: float | None = None) -> float:
    """The standard deviation of the noise in the sum of weight times count over rounds, the last of them `release`'s.

    `sd`: that of the count in the release, if it is not a label's.  Raises ValueError for an unknown mechanism.
    """
    shape = noise_shape(release.mechanism, release.horizon)
    rounding = running_kind(release.mechanism).rounding
    rounds, factors = np.array(list(weights)), np.array(list(weights.values()))
    earlier, later = np.minimum(rounds[:, None], rounds), np.maximum(rounds[:, None], rounds)
    unit = (
        max(0.0, (release.sd if sd is None else sd) ** 2 - rounding)
        / float(shape.sds(np.array([release.round]))[0]) ** 2
    )
    shared = unit * float(factors @ shape.covariances(earlier, later) @ factors)
    return float(np.sqrt(max(0.0, shared) + rounding * float(factors @ factors)))


def _sds_found(release: Release, labels: Sequence[str], weights: Mapping[int, float]) -> NDArray[np.float64]:
    """What `combination_sds` gives for labels of a release."""
    tests = dict(zip(release.labels, release.found or [], strict=True))
    return combination_sds(release, [tests[label] for label in labels], weights)


def window_sd(release: Release, since: int, labels: Sequence[str] = ()) -> float:
    """The standard deviation of the noise in a window from round `since` (0: the epoch's beginning) to a release.

    Where labels are found at tests, that of the label among `labels` whose window has the most.
    """
    if since == 0:
        return release.sd
    if release.found is not None:
        weights = {since: -1.0, release.round: 1.0} if since != release.round else {since: 0.0}
        return float(_sds_found(release, labels, weights).max(initial=0.0))
    return 0.0 if since == release.round else sd_of_combination(release, {since: -1.0, release.round: 1.0})


def window_intervals(
    release: Release,
    older: Release,
    labels: Sequence[str],
    shown: Sequence[Showing],
    counts: NDArray[np.int64],
    confidence: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The ends of the intervals of windows `counts` from `older` to `release`, for labels with these showings.

    The noise of the test that found a label is in both counts, so a window has none of it.
    """
    deviations = NormalDist().inv_cdf((1 + confidence) / 2)
    plain = counts.astype(np.float64)
    if release.found is not None:
        of_labels = deviations * _sds_found(release, labels, {older.round: -1.0, release.round: 1.0})
        return plain - of_labels, plain + of_labels
    reach = deviations * window_sd(release, older.round)
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


def sd_across(older: Release, then: float, now: float) -> float:
    """The most that the standard deviation of a difference of totals can be, from one epoch into the next.

    `then` and `now` are the deviations of the totals, that of `older` first.  Both hold the noise of the epochs before.
    The last count of the older epoch and its count in `older` share some noise too, which is not taken off: where the
    older epoch ended nobody need know.
    """
    return float(np.sqrt(max(0.0, now**2 - then**2) + 2 * older.sd**2))


def intervals_across(
    older: Release, labels: Sequence[str], counts: NDArray[np.int64], sd: float, confidence: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The ends of the intervals of windows that begin with `older` and end in the next epoch.

    Nobody need know since when the older epoch shows the labels: they hold both ends of what is possible.
    """
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * sd
    plain = counts.astype(np.float64)
    if older.shown != "kept" or older.found is not None:
        return plain - reach, plain + reach
    place = {label: place for place, label in enumerate(older.labels)}
    shown = [
        Showing(older.round, older.counts[found], older.sd, older.tau, 1, False, older.is_known(found))
        for found in (place[label] for label in labels)
    ]
    return plain - reach, plain + noise_since(shown, older)[0] * older.sd + reach


@dataclass(frozen=True)
class Changes:
    """How much larger one window's count is than that of the window before it, for labels in a given order.

    `low` and `high` are the 95% interval of the change, `signs` 1 for each label that rose, -1 for each that fell and 0
    where noise and chance may explain the change; all of shape (labels,).
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    signs: NDArray[np.int64]


def chance(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
    """The variance of the difference of two windows if events come independently, from the windows' noisy counts."""
    return np.maximum(0.0, first + second)


def changes_between(
    ends: Sequence[Release],
    labels: Sequence[str],
    shown: Sequence[Showing],
    windows: tuple[NDArray[np.int64], NDArray[np.int64]],
    false_discoveries: float,
) -> Changes:
    """What is known of the change from one window to the next.

    `ends`: the releases where the first window begins, where the two meet, and where the second one ends.  `windows`:
    the counts of the first and the second window, for labels with these showings; each of shape (labels,).
    At most the share `false_discoveries` of the labels that rise or fall is wrong, on average.
    """
    oldest, middle, newest = ends
    weights = {oldest.round: 1.0, middle.round: -2.0, newest.round: 1.0}
    at_tests = newest.found is not None
    sd = _sds_found(newest, labels, weights) if at_tests else sd_of_combination(newest, weights)
    changes = (windows[1] - windows[0]).astype(np.float64)
    lift = np.zeros(len(changes))
    if newest.shown == "kept" and newest.found is None:
        latest = [each if each.first else replace(each, round=oldest.round, noise=None) for each in shown]
        for release, weight in zip(ends, (1.0, -2.0, 1.0), strict=True):
            lift += weight * release.sd * noise_since(latest, release)[0]
    # If it matters whether noise had lifted the label, the weaker of both readings counts.
    spread = np.sqrt(sd**2 + chance(*windows))
    plain, aware = changes / spread, (changes - lift) / spread
    scores = np.where(plain * aware > 0, np.minimum(np.abs(plain), np.abs(aware)), 0.0)
    chances = 2 * ndtr(-scores)
    order = np.argsort(chances)
    passed = np.flatnonzero(
        chances[order] <= false_discoveries * np.arange(1, len(chances) + 1) / max(1, len(chances))
    )
    named = order[: passed[-1] + 1] if len(passed) else order[:0]
    signs = np.zeros(len(changes), np.int64)
    signs[named] = np.sign(changes[named])
    reach = NormalDist().inv_cdf(0.975) * sd
    return Changes(
        np.minimum(changes, changes - lift) - reach, np.maximum(changes, changes - lift) + reach, signs
    )
