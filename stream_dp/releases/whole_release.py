"""A release with all its parts, as subscribers get it."""

from heapq import nsmallest
from typing import TYPE_CHECKING, Any, Self

from stream_dp.errors import needs_extra
from stream_dp.frames import Framed
from stream_dp.privacy.share import Share, share_between
from stream_dp.releases.difference import Difference, difference_of
from stream_dp.releases.estimates.showings import Showing, Showings
from stream_dp.releases.release import Release, decoder_of
from stream_dp.releases.totals import Total, totals_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from stream_dp.releases.windows import Window


class WholeRelease(Release, Framed, frozen=True, kw_only=True, dict=True):
    """A release with all its parts: `part` and `parts` are 1, `labels` and `counts` are complete.

    One that comes from a subscription knows since when its labels are shown, as far as the subscription has seen it.
    """

    @property
    def histogram(self) -> dict[str, int]:
        """The noisy count of each released label, in the order in which the labels were found; see `top`."""
        return dict(zip(self.labels, self.counts, strict=True))

    def top(self, number: int) -> dict[str, int]:
        """The `number` largest counts by label, largest first, then by label.

        >>> release.top(2)  # doctest: +SKIP
        {'tea': 812, 'milk': 640}
        """
        return dict(nsmallest(number, self.histogram.items(), key=lambda pair: (-pair[1], pair[0])))

    def largest_first(self) -> Self:
        """See `Release.largest_first`; it knows since when its labels are shown, as this one does."""
        found = super().largest_first()
        found.__dict__.update(self.__dict__)
        return found

    @property
    def position(self) -> str:
        """What `subscribe(position=...)` takes to go on after this release."""
        return f"{self.epoch}.{self.round}.{self.nonce}"

    @property
    def showings(self) -> dict[str, Showing]:
        """Since when the labels are shown, where they are kept; of a release that stands alone nobody knows."""
        if "_showings" not in self.__dict__:
            self.follow(Showings())
        found: dict[str, Showing] = self.__dict__["_showings"]
        return found

    def follow(self, showings: Showings) -> None:
        """Take this release for the one after those that `showings` has followed."""
        self.__dict__["_showings"] = showings.follow(self)

    def first_shown(self, label: str) -> int | None:
        """The round since which the epoch shows a label; None where nobody who began to read then can know it.

        Raises KeyError for a label that was not released.
        """
        showing = self.showings.get(label)
        if showing is None and label not in self.labels:
            raise KeyError(label)
        return showing.round if showing is not None and showing.first else None

    def total(self, label: str) -> Total:
        """The count of a label in all epochs that this one carries on, with its noise and since which epoch it counts.

        In an epoch that carries nothing on, it is the count of the release.  In the user unit it adds up users of each
        epoch.  Raises KeyError for a label that was not released.
        """
        if label not in self.labels:
            raise KeyError(label)
        return totals_of(self)[self.labels.index(label)]

    def interval(self, label: str, confidence: float = 0.95) -> tuple[float, float]:
        """Bounds that hold the true count with this probability, as an average over labels.

        Where labels are kept they allow for the noise that lifted the label over its threshold, and where it is not
        known since when it is shown, they are wider (estimates/intervals.py).  Elsewhere they hold for a label chosen
        before looking.  Raises KeyError for a label that was not released, whose count is not zero but unknown, and
        ValueError.
        """
        with needs_extra("an interval", "estimates"):
            from stream_dp.releases.estimates.intervals import interval

        return interval(self, self.showings, label, confidence)

    def share(self, label: str, confidence: float = 0.95) -> Share | None:
        """Which share of the counted events (users, users' days) holds a label among their first items.

        None if releases do not count them (`cap_share`), or while nobody can tell.  Raises as `interval` does.
        """
        return share_between(*self.interval(label, confidence), self.units, self.units_sd, confidence)

    def compare(self, label: str, other: str, confidence: float = 0.95) -> Difference:
        """How much larger the count of a label is than that of another one; `answer` says whether it is.

        Where it is not known since when one of them is shown, it is wider than it need be.  Raises as `interval` does.

        >>> release.compare("tea", "milk")  # doctest: +SKIP
        Difference(value=172.0, low=121.3, high=222.7)
        """
        return difference_of(self.interval(label, confidence), self.interval(other, confidence))

    def intervals(self, confidence: float = 0.95) -> "tuple[NDArray[np.float64], NDArray[np.float64]]":
        """The lower and the upper ends of the intervals of all labels, in the order of `labels`.  Raises ValueError."""
        with needs_extra("an interval", "estimates"):
            from stream_dp.releases.estimates.intervals import intervals

        return intervals(self, self.showings, confidence)

    def window(self, since: "WholeRelease | None" = None) -> "Window":
        """What happened after `since`, an earlier release of the stream: counts, their noise and 95% intervals.

        Without one, since the epoch began.  It is the difference of the two releases, so it costs no privacy.

        Raises ValueError where `since` is later or of another epoch, unless this epoch carries the totals of that one
        on, and a `Refused` where the releases count the last rounds only, and are windows already.
        """
        with needs_extra("a window", "estimates"):
            from stream_dp.releases.windows import window_between

        return window_between(self, since)

    def _columns(self, confidence: float = 0.95) -> dict[str, Any]:
        """Largest count first; `low` and `high` are the ends of each label's interval, see `intervals`.

        `best_rank` and `worst_rank` are those that the intervals leave possible.
        """
        ranked = self.largest_first()
        low, high = ranked.intervals(confidence)
        with needs_extra("a rank", "estimates"):
            from stream_dp.releases.estimates.intervals import rank_ranges
        best, worst = rank_ranges(low, high)
        columns = {"label": ranked.labels, "count": ranked.counts, "low": low, "high": high}
        return columns | {"best_rank": best, "worst_rank": worst}

    def _caption(self) -> str:
        """What its counts count, for a notebook."""
        return f"{self.stream}, round {self.round:,}, {self.ts}. {self.counts_what}"


decode_whole_release = decoder_of(WholeRelease)
"""The release in a record's value, one part of it or all.  Raises msgspec.ValidationError or msgspec.DecodeError."""
