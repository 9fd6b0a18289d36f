"""Since when each label has been shown, as far as a reader of releases in order can know.  Loads nothing large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stream_dp.releases.estimates.first_showing import Noise
    from stream_dp.releases.release import Release


@dataclass(slots=True)
class Showing:
    """The first release that was seen to hold a label; `count`, `sd` and `tau` are those of it.

    `first` says whether the label was first shown there: whoever begins to read later cannot know since when a label
    is shown.  Every `step`-th round is released.  `known`: the label was known before the epoch, which shows it from
    its first round on without a test.  `noise` is computed when it is first asked for.
    """

    round: int
    count: int
    sd: float
    tau: int | None
    step: int
    first: bool
    known: bool = False
    noise: Noise | None = None


class Showings:
    """Feed it whole releases in order; it remembers one `Showing` a label and epoch."""

    def __init__(self) -> None:
        self._nonce = ""
        self._last = 0
        self._showings: dict[str, Showing] = {}

    def follow(self, release: Release) -> dict[str, Showing]:
        """The showings of the epoch up to this release, which has to be whole; empty if labels are not kept."""
        if release.nonce != self._nonce:
            self._nonce, self._last, self._showings = release.nonce, 0, {}
        if release.shown == "kept" and len(release.labels) > len(self._showings):
            step = max(1, release.round - release.previous)
            told = release.sd, release.tau, step
            for place, (label, count) in enumerate(zip(release.labels, release.counts, strict=False)):
                if label not in self._showings:
                    known = release.is_known(place)
                    seen = (1, True) if known else (release.round, release.previous == self._last)
                    self._showings[label] = Showing(seen[0], count, *told, seen[1], known)
        self._last = release.round
        return self._showings
