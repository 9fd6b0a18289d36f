"""Counts that are nearer to the truth than the released ones, on average, from all releases of an epoch together.

Neighbouring rounds share some of their noise and differ in the rest, and how much is known exactly: from the nodes of
the tree, or from the poles.  A Kalman filter (Kalman 1960) for each label follows the hidden numbers that its noise is
made of (`NoiseState`), its true count, and the rate at which that grows.  In so many rounds as the epoch has lasted,
the rate is taken to change by twice its own size, so that the filter goes along with labels that speed up or slow
down.  The count varies around its rate as that of independent events does.  A label begins with the noise that labels
have when they are first shown (first_showing.py), and with the rate at which it would have grown evenly until then.

Where labels are found at tests, the counter that a label entered at its test began with zeros there.  The noise of the
test stays in its count for good, with the law that is known of it (found_labels.py): one more hidden number, which
nothing changes.  So what a test has lifted is taken off, and more of it if the label then grows more slowly than its
count makes one expect.

What comes out leans towards an even growth: after a sudden jump it is late for a while.  The released counts have no
such lean, and their intervals do not hold around smoothed counts.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.noise_shape import NoiseState
from stream_dp.releases.estimates.found_labels import noise_of_test, test_record
from stream_dp.releases.estimates.intervals import noise_since
from stream_dp.releases.estimates.noise_shapes import noise_state
from stream_dp.releases.whole_release import WholeRelease

_RATE_AT_FIRST = 0.5
_RATE_CHANGE = 2.0
_ROUNDING = 1 / 12


class Smoothed(NamedTuple):
    """A release, and a smoothed count for each of its labels, in its order: float64 of shape (labels,)."""

    release: WholeRelease
    counts: NDArray[np.float64]

    @property
    def histogram(self) -> dict[str, float]:
        """The smoothed count of each released label."""
        return dict(zip(self.release.labels, self.counts.tolist(), strict=True))


class Smoother:
    """Feed it whole releases in order, as a subscription gives them; it returns smoothed counts after each.

    A release costs a few thousand floating point operations a label.
    """

    def __init__(self) -> None:
        self._nonce = ""
        self._filter: _Filter | None = None
        self._rows: dict[str, int] = {}

    def add(self, release: WholeRelease) -> Smoothed:
        """Raises ValueError where labels are not kept: of those that come and go only high counts are seen."""
        if release.shown != "kept":
            raise ValueError(
                'counts can be smoothed where labels are kept (shown = "kept"); this epoch shows a label only in the '
                "rounds in which it reaches its threshold"
            )
        if self._filter is None or release.nonce != self._nonce:
            self._nonce, self._rows = release.nonce, {}
            self._filter = _Filter(noise_state(release.mechanism, release.horizon))
        counts = np.array(release.counts, np.float64)
        new = [place for place, label in enumerate(release.labels) if label not in self._rows]
        known = [place for place, label in enumerate(release.labels) if label in self._rows]
        self._filter.predict(release.round, release.sd, release.draw_sd)
        self._filter.update(
            np.array([self._rows[release.labels[place]] for place in known], int), counts[known]
        )
        for noise in _noise_at_first(release, new):
            self._filter.begin(counts[noise.places], noise)
            names = [release.labels[place] for place in noise.places]
            self._rows.update(zip(names, range(len(self._rows), len(self._rows) + len(names)), strict=True))
        rows = np.array([self._rows[label] for label in release.labels], int)
        return Smoothed(release, self._filter.counts(rows))


class _NoiseAtFirst(NamedTuple):
    """What is known of the noise of new labels, in these places of a release, whose counters are of this age.

    `means` and `sds` are of the counter's noise, `test_means` and `test_sds` of what a test has added; all of shape
    (labels,).
    """

    places: list[int]
    age: int
    means: NDArray[np.float64]
    sds: NDArray[np.float64]
    test_means: NDArray[np.float64]
    test_sds: NDArray[np.float64]


def _noise_at_first(release: WholeRelease, new: list[int]) -> Iterator[_NoiseAtFirst]:
    """Of labels in these places, which the release shows first: those of one age at a time."""
    shown = [release.showings[release.labels[place]] for place in new]
    if release.found is None:
        means, sds = noise_since(shown, release)
        none = np.zeros(len(new))
        if new:
            yield _NoiseAtFirst(new, release.round, release.sd * means, release.sd * sds, none, none)
        return
    found, all_sds = np.array(release.found, int)[new], np.array(release.label_sds)[new]
    for test in sorted({*found.tolist()}):
        own = np.flatnonzero(found == test)
        record = test_record(release, test)
        counts = [
            shown[each].count if shown[each].first else release.counts[new[each]] for each in own.tolist()
        ]
        of_test = noise_of_test(np.array(counts, np.float64), record.sd, release.at_least or 1)
        sds = np.sqrt(np.maximum(0.0, all_sds[own] ** 2 - record.sd**2))
        places, age = [new[each] for each in own.tolist()], release.round - record.round
        yield _NoiseAtFirst(places, age, np.zeros(len(own)), sds, *of_test)


class _Filter:
    """One Kalman filter a label, all in step: the noise's numbers, the true count, its rate a round, a test's noise."""

    def __init__(self, noise: NoiseState) -> None:
        self._noise = noise
        self._size = len(noise.weights)
        self._seen = np.array([*noise.weights, 1.0, 0.0, 1.0])  # what the released count is made of
        self._round, self._scale = 0, 0.0
        width = len(self._seen)
        self._mean = np.empty((0, width))
        self._covariance = np.empty((0, width, width))

    def counts(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.maximum(0.0, self._mean[rows, self._size])

    def predict(self, round_number: int, sd: float, draw_sd: float | None) -> None:
        """Go to a later round, whose noise has this standard deviation; or whose draws have, if that is given."""
        unit = self._noise.step(0, round_number).fresh
        self._scale = sd**2 / float(self._noise.weights @ unit @ self._noise.weights)
        if draw_sd is not None:
            self._scale = draw_sd**2
        size, rounds = self._size, round_number - self._round
        step = self._noise.step(self._round, round_number)
        self._round = round_number
        if not len(self._mean):
            return
        move = np.eye(size + 3)
        move[:size, :size] = step.kept
        move[size, size + 1] = rounds
        self._mean = self._mean @ move.T
        self._covariance = move @ self._covariance @ move.T
        self._covariance[:, :size, :size] += step.fresh * self._scale
        rate = np.maximum(self._mean[:, size], 1.0) / round_number
        change = (_RATE_CHANGE * rate) ** 2 / round_number
        self._covariance[:, size, size] += change * rounds**3 / 3 + rate * rounds
        self._covariance[:, size, size + 1] += change * rounds**2 / 2
        self._covariance[:, size + 1, size] += change * rounds**2 / 2
        self._covariance[:, size + 1, size + 1] += change * rounds

    def update(self, rows: NDArray[np.int64], released: NDArray[np.float64]) -> None:
        """Learn from the released counts of the labels in `rows`."""
        if not len(rows):
            return
        covariance = self._covariance[rows]
        shared = covariance @ self._seen
        variance = shared @ self._seen + _ROUNDING
        surprise = (released - self._mean[rows] @ self._seen) / variance
        self._mean[rows] += shared * surprise[:, None]
        self._covariance[rows] = covariance - shared[:, :, None] * (shared / variance[:, None])[:, None, :]

    def begin(self, released: NDArray[np.float64], noise: _NoiseAtFirst) -> None:
        """Add labels that are seen for the first time, whose noise is this."""
        weights, first = self._noise.weights, self._scale * self._noise.step(0, noise.age).fresh
        spread = first @ weights
        parts = spread / max(float(spread @ weights), 1e-300)  # what each number has of the noise, on average
        true, size = released - noise.means - noise.test_means, self._size
        rate = np.maximum(true, 1.0) / self._round
        mean = np.column_stack([noise.means[:, None] * parts, true, true / self._round, noise.test_means])
        follows = np.array([*parts, -1.0, -1.0 / self._round, 0.0])  # how all move with the noise
        covariance = noise.sds[:, None, None] ** 2 * np.outer(follows, follows)
        of_test = np.array([*(0 * parts), -1.0, -1.0 / self._round, 1.0])
        covariance += noise.test_sds[:, None, None] ** 2 * np.outer(of_test, of_test)
        covariance[:, :size, :size] += first - np.outer(parts, spread)
        covariance[:, size + 1, size + 1] += (_RATE_AT_FIRST * rate) ** 2
        self._mean = np.concatenate([self._mean, mean])
        self._covariance = np.concatenate([self._covariance, covariance])
