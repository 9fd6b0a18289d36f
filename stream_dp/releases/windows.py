"""What happened lately: the counts of the last hour, or of the last thousand rounds, from two releases.

Where an epoch carries on the totals of the one before, a window may begin there.  Releases are all that is read, so
windows cost no privacy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream_dp.config.times import SECONDS, milliseconds, parse_time
from stream_dp.errors import Refused
from stream_dp.frames import Framed
from stream_dp.privacy.share import Share, share_between, share_over_cap
from stream_dp.releases.estimates.differences import (
    changes_between,
    intervals_across,
    sd_across,
    sd_of_combination,
    window_intervals,
    window_sd,
)
from stream_dp.releases.estimates.showings import Showing
from stream_dp.releases.new_labels import NOTHING, FirstSince, Known, NewLabel, known_of_new
from stream_dp.releases.totals import totals_of

if TYPE_CHECKING:
    from stream_dp.releases.whole_release import WholeRelease

FALSE_DISCOVERIES = 0.05
"""The share of labels named as rising or falling that may be wrong, on average; if none moved, the probability that any
is named."""

_SPAN = re.compile(r"([1-9][0-9]{0,8})([smhd]?)")


@dataclass(frozen=True)
class Span:
    """How far a window reaches back: so many rounds, or so many milliseconds.  One of the two is 0."""

    rounds: int = 0
    milliseconds: int = 0

    @classmethod
    def of(cls, span: str | int | timedelta) -> Span:
        """From "90s", "5m", "1h", "7d", a timedelta, or a number of rounds such as 1000 or "1000".

        Raises ValueError for anything else.
        """
        if isinstance(span, timedelta) and span >= timedelta(milliseconds=1):
            return cls(milliseconds=span // timedelta(milliseconds=1))
        found = _SPAN.fullmatch(str(span)) if isinstance(span, str | int) else None
        if found is None:
            raise ValueError(
                f"a window is a time such as 90s, 5m, 1h or 7d, or a number of rounds, not {span!r}"
            )
        number, unit = int(found[1]), found[2]
        return cls(milliseconds=number * SECONDS[unit] * 1000) if unit else cls(rounds=number)

    def __str__(self) -> str:
        """The span as people write it, in the largest unit that fits: 5m, and not 300s."""
        seconds, rest = divmod(self.milliseconds, 1000)
        if self.rounds or rest:
            return f"{self.rounds}" if self.rounds else f"{self.milliseconds}ms"
        unit = next(unit for unit in reversed(SECONDS) if seconds % SECONDS[unit] == 0)
        return f"{seconds // SECONDS[unit]}{unit}"

    def twice(self) -> Span:
        """Two such windows, one after the other."""
        return Span(2 * self.rounds, 2 * self.milliseconds)

    def begins(self, release: WholeRelease, now: int = 0) -> int:
        """Where a window begins that ends with this release: a round, or milliseconds since 1970.

        By time it ends `now`, in milliseconds too, if that is later.
        """
        if self.rounds:
            return release.round - self.rounds
        return max(now, self.clock(release)) - self.milliseconds

    def clock(self, release: WholeRelease) -> int:
        """What is compared with that."""
        return release.round if self.rounds else milliseconds(parse_time(release.ts))


class Move(msgspec.Struct, frozen=True):
    """How much a label's count rose (or fell, if negative) since the window before, with its 95% interval."""

    label: str
    change: int
    low: float
    high: float


@dataclass(frozen=True)
class Window(Framed):
    """How often each label occurred since an older release, with noise; largest count first.

    `counts`, `low` and `high`, the 95% interval, are of shape (labels,), and `sd` is that of the noise in every count
    of a label that is not new.
    `since` is the older release, None where the window begins with the epoch.  It is `release` itself if nothing was
    released within the window: then there is nothing in it.  `complete`: the window reaches as far back as was asked
    for.  Labels that were not shown at its beginning are `new`: how often they occurred before is not
    known, so their counts are what is known to have come within the window, at least (new_labels.py).
    `moves`: the labels whose count differs from that in the window before by more than noise and chance explain.
    Empty: there is none.  None: nobody can tell, because there is no such window in the same epoch.
    `units`: how many events (users, users' days) were counted in the window, `over_cap` how many of them have more
    items than are counted, and `units_sd` is that of the noise in both.  None if releases do not say, if the window is
    of two epochs, or if it begins within one that protects users: they are counted when they come first, so what is
    counted lately has nothing to do with who came lately.
    """

    release: WholeRelease
    since: WholeRelease | None
    complete: bool
    labels: list[str]
    counts: NDArray[np.int64]
    sd: float
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    new: list[NewLabel]
    moves: list[Move] | None = None
    units: int | None = None
    over_cap: int | None = None
    units_sd: float | None = None

    @property
    def over_cap_share(self) -> Share | None:
        """Which share of the window's units has more items than are counted; None as `units`, or if nobody can tell."""
        return share_over_cap(self.over_cap, self.units, self.units_sd)

    def share(self, label: str) -> Share | None:
        """Which share of the window's units holds a label among their first items, with its 95% interval.

        None as `units`, or if nobody can tell, as of a label that is `new`.  Raises KeyError for a label that is not
        in the window.
        """
        if label not in self.histogram:
            raise KeyError(label)
        place = self.labels.index(label)
        if any(each.label == label for each in self.new):
            return None
        return share_between(float(self.low[place]), float(self.high[place]), self.units, self.units_sd)

    @property
    def histogram(self) -> dict[str, int]:
        """The noisy count of each label in the window, largest first."""
        return dict(zip(self.labels, self.counts.tolist(), strict=True))

    def _columns(self) -> dict[str, Any]:
        """Largest count first; the counts of labels that are `new` are lower bounds."""
        new = {each.label for each in self.new}
        return {
            "label": self.labels,
            "count": self.counts,
            "low": self.low,
            "high": self.high,
            "new": [label in new for label in self.labels],
        }

    def _caption(self) -> str:
        """Which rounds it counts, for a notebook."""
        first = 1 if self.since is None else self.since.round + 1
        return f"{self.release.stream}, rounds {first:,} to {self.release.round:,}, until {self.release.ts}."

    @property
    def rising(self) -> list[str]:
        """The labels that rose since the window before."""
        return [each.label for each in self.moves or () if each.change > 0]

    @property
    def falling(self) -> list[str]:
        """The labels that fell since the window before."""
        return [each.label for each in self.moves or () if each.change < 0]


def may_be_between(older: WholeRelease, release: WholeRelease, span: Span) -> bool:
    """Whether a window may begin with one release and end with the other: both of one epoch, the older one first.

    One by time may also begin in the epoch before, if the newer one carries its totals on.
    """
    if older.nonce == release.nonce:
        return older.round < release.round
    return bool(span.milliseconds) and _carries_on(release, older)


def _carries_on(release: WholeRelease, older: WholeRelease) -> bool:
    return release.totals is not None and older.epoch == release.epoch - 1


def begins_epoch(release: WholeRelease) -> bool:
    """Is no release of its epoch before this one?  Those of old epochs do not say which one was."""
    return release.previous == 0


def window_between(
    release: WholeRelease,
    older: WholeRelease | None,
    complete: bool = True,
    first_since: FirstSince = lambda release, number: None,
) -> Window:
    """The counts from `older`, an earlier release, or from the epoch's beginning, to `release`.

    `first_since` finds the releases that showed new labels first; without it nothing is known of what a test found
    within the window.

    Raises ValueError where the two are of different epochs, unless the newer one carries on the totals of the older.
    """
    if release.window_rounds is not None:
        raise Refused(
            f"the releases of {release.stream!r} count the last {release.window_rounds:,} rounds already: a window of "
            "windows means nothing"
        )
    if older is None:
        counts = np.array(release.counts, np.int64)
        columns = list(release.labels), counts, release.sd, *release.intervals()
        window = Window(release, None, complete, *columns, [], **_cells(release))
        return _ranked(window, NOTHING)
    if (older.nonce, older.round) == (release.nonce, release.round):
        nothing = np.array([], np.int64), 0.0, np.array([]), np.array([])
        return Window(release, release, complete, [], *nothing, [])
    cells: dict[str, Any] = {}
    if older.nonce == release.nonce and older.round < release.round:
        labels, counts, sd, ends = _within(release, older)
        cells = _cells(release, older)
    elif older.nonce != release.nonce and _carries_on(release, older):
        labels, counts, sd, ends = _across(release, older)
    else:
        raise ValueError("a window is between two releases of one epoch, the older one first")
    others = {*release.labels}.difference(labels)
    new = known_of_new(release, older, [*others], first_since)
    return _ranked(Window(release, older, complete, labels, counts, sd, *ends, [], **cells), new)


def _cells(release: WholeRelease, older: WholeRelease | None = None) -> dict[str, Any]:
    """How many units were counted between two releases of one epoch, or from its beginning, if releases say so.

    Their noise comes as that of labels does, so much of it cancels.
    """
    cells = {name: getattr(release, name) for name in ("units", "over_cap", "units_sd")}
    if older is None or release.units_sd is None:
        return cells
    if older.units is None or older.over_cap is None or release.unit != "event":
        return {}
    sd = sd_of_combination(release, {older.round: -1.0, release.round: 1.0}, release.units_sd)
    since = {"units": older.units, "over_cap": older.over_cap}
    return {name: cells[name] - count for name, count in since.items()} | {"units_sd": sd}


_Columns = tuple[list[str], NDArray[np.int64], float, tuple[NDArray[np.float64], NDArray[np.float64]]]


def _within(release: WholeRelease, older: WholeRelease) -> _Columns:
    """The labels that both releases of one epoch hold, their counts between, the noise and the intervals of these."""
    before = older.histogram
    labels = [label for label in release.labels if label in before]
    now = release.histogram
    counts = np.array([now[label] - before[label] for label in labels], np.int64)
    ends = window_intervals(release, older, labels, _shown_at(release, labels, older), counts, 0.95)
    return labels, counts, window_sd(release, older.round, labels), ends


def _across(release: WholeRelease, older: WholeRelease) -> _Columns:
    """The same from a release of the epoch before: the differences of the totals."""
    before = dict(zip(older.labels, totals_of(older), strict=True))
    totals = zip(release.labels, totals_of(release), strict=True)
    known = [(label, now) for label, now in totals if label in before and now.since == before[label].since]
    labels = [label for label, _ in known]
    counts = np.array([now.count - before[label].count for label, now in known], np.int64)
    sd = sd_across(older, before[labels[0]].sd, known[0][1].sd) if known else release.sd
    return labels, counts, sd, intervals_across(older, labels, counts, sd, 0.95)


def _ranked(window: Window, known: Known) -> Window:
    """The window with its new labels, all by their counts."""
    labels = [*window.labels, *(each.label for each in known.new)]
    counts = np.append(window.counts, known.counts)
    order = np.argsort(-counts, kind="stable")
    return replace(
        window,
        labels=[labels[place] for place in order.tolist()],
        counts=counts[order],
        low=np.append(window.low, known.low)[order],
        high=np.append(window.high, known.high)[order],
        new=known.new,
    )


def _shown_at(release: WholeRelease, labels: Sequence[str], older: WholeRelease) -> list[Showing]:
    """The showings of labels that both releases hold; none where labels are not kept."""
    before = older.histogram
    known = release.showings
    return [_seen_at(known[label], older, before[label]) for label in labels] if known else []


def _seen_at(showing: Showing, older: WholeRelease, count: int) -> Showing:
    """Of a label that the reader saw later than at the older end: it was shown then, nobody can say since when."""
    if showing.round <= older.round:
        return showing
    return Showing(older.round, count, older.sd, older.tau, showing.step, first=False)


def with_moves(
    window: Window, oldest: WholeRelease | None, false_discoveries: float = FALSE_DISCOVERIES
) -> Window:
    """The window, with what rose and fell since the window before it, which begins with `oldest`.

    Only labels that were shown all the time can be named.  If the releases are of several epochs, none is.
    """
    middle, newest = window.since, window.release
    if middle is None or oldest is None or not oldest.nonce == middle.nonce == newest.nonce:
        return window
    if not oldest.round < middle.round < newest.round:
        return window
    before, then = oldest.histogram, middle.histogram
    known = [index for index, label in enumerate(window.labels) if label in before and label in then]
    labels = [window.labels[index] for index in known]
    first = np.array([then[label] - before[label] for label in labels], np.int64)
    second = window.counts[known]
    shown = _shown_at(newest, labels, oldest)
    found = changes_between((oldest, middle, newest), labels, shown, (first, second), false_discoveries)
    moved = np.flatnonzero(found.signs)
    largest_first = moved[np.argsort(-np.abs(second - first)[moved], kind="stable")]
    moves = [
        Move(
            labels[index],
            int(second[index] - first[index]),
            round(float(found.low[index]), 1),
            round(float(found.high[index]), 1),
        )
        for index in largest_first.tolist()
    ]
    return replace(window, moves=moves)
