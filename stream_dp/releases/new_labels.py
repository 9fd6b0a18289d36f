"""What is known of labels that the beginning of a window does not hold: how often they occurred in it at least.

A label that a test found was counted in every round after that test, so the window from there on is known; what came
before it is not.  Where every round looks for new labels, one that was not shown had a count below the threshold then.
So it can have had so many events before the window, and noise beside them, and all others came within it.  An epoch
that began within the window has all of its counts there.
"""

from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream_dp.releases.estimates.differences import window_intervals

if TYPE_CHECKING:
    from stream_dp.releases.whole_release import WholeRelease

FirstSince = Callable[["WholeRelease", int], "WholeRelease | None"]
"""The first release at or past a round, of the epoch of another one that is not older; None if it cannot be read."""

Floats = NDArray[np.float64]
_CONFIDENCE = 0.95


class NewLabel(msgspec.Struct, frozen=True):
    """A label that a window does not hold at its beginning: its count is of what is known to have come within it.

    That came after round `since_round` of the window's last epoch, 0 for its beginning, at the time `since`, if known.
    """

    label: str
    since_round: int
    since: str | None


class Known(msgspec.Struct):
    """Columns about new labels: at least so often they occurred, with the ends of a 95% interval."""

    new: list[NewLabel]
    counts: NDArray[np.int64]
    low: Floats
    high: Floats


NOTHING = Known([], np.empty(0, np.int64), np.empty(0), np.empty(0))


def known_of_new(
    release: "WholeRelease", older: "WholeRelease", labels: Sequence[str], first_since: FirstSince
) -> Known:
    """What is known of labels of a release that are not in `older`, where the window begins."""
    low, high = release.intervals(_CONFIDENCE)
    wanted = {*labels}
    places = np.array([place for place, label in enumerate(release.labels) if label in wanted], np.int64)
    names = [release.labels[place] for place in places.tolist()]
    counts, low, high = np.array(release.counts, np.int64)[places], low[places], high[places]
    if older.nonce != release.nonce:  # what came in the epoch before is not known at all
        return Known([NewLabel(name, 0, None) for name in names], counts, low, np.full(len(names), np.inf))
    new = [NewLabel(name, older.round, older.ts) for name in names]
    known = Known(new, counts, low, high)
    if release.found is None:
        most = (older.tau or 0) - 1
        reach = NormalDist().inv_cdf((1 + _CONFIDENCE) / 2) * older.sd
        known.counts, known.low = counts - most, low - most - reach
    else:
        tests = np.array(release.found, np.int64)[places]
        for test in np.unique(tests).tolist():
            _since_test(release, np.flatnonzero(tests == test), test, known, first_since)
    known.counts, known.low = np.maximum(known.counts, 0), np.maximum(known.low, 0.0)
    return known


def _since_test(
    release: "WholeRelease", here: NDArray[np.int64], test: int, known: Known, first_since: FirstSince
) -> None:
    """Fill in the labels that one test found: the window from the first release that shows them."""
    names = [known.new[place].label for place in here.tolist()]
    first = first_since(release, (release.tests or {})[str(test)].round) or release
    before = first.histogram
    if not before.keys() >= {*names}:  # that is no longer kept
        first, before = release, release.histogram
    counts = known.counts[here] - np.array([before[name] for name in names], np.int64)
    low = counts.astype(np.float64)
    if first.round != release.round:
        low, _ = window_intervals(release, first, names, [], counts, _CONFIDENCE)
    known.counts[here], known.low[here] = counts, low
    for place in here.tolist():
        known.new[place] = NewLabel(known.new[place].label, first.round, first.ts)
