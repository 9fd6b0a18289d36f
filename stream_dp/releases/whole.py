"""Putting the parts of a release together: the one place where that is done."""

from itertools import chain
from typing import Any

from msgspec.structs import replace

from stream_dp.releases.estimates.showings import Showings
from stream_dp.releases.whole_release import WholeRelease

_COLUMNS = "labels", "counts", "since", "totals", "found"


class WholeReleases:
    """Puts the parts of each release together and drops what comes again, as it may after a worker's crash."""

    def __init__(self, after: tuple[int, int] = (0, 0)) -> None:
        """`after` is an (epoch, round): releases up to it are dropped too."""
        self._last = after
        self._collecting = after
        self._parts: dict[int, WholeRelease] = {}
        self._showings = Showings()

    def add(self, part: WholeRelease) -> WholeRelease | None:
        """The whole release, as one part, if this part was the last one missing."""
        place = part.epoch, part.round
        if place <= self._last:
            return None
        whole = part if part.part == part.parts == 1 else self._collected(place, part)
        if whole is not None:
            self._last = place
            whole.follow(self._showings)
        return whole

    def _collected(self, place: tuple[int, int], part: WholeRelease) -> WholeRelease | None:
        if place != self._collecting:
            self._collecting, self._parts = place, {}
        self._parts[part.part] = part
        if len(self._parts) < part.parts:
            return None
        ordered = [self._parts[number] for number in sorted(self._parts)]
        joined = {name: _joined([getattr(each, name) for each in ordered]) for name in _COLUMNS}
        return replace(part, part=1, parts=1, **joined)


def _joined(columns: list[list[Any] | None]) -> list[Any] | None:
    """One after the other; None if the releases have none."""
    found = [column for column in columns if column is not None]
    return list(chain.from_iterable(found)) if len(found) == len(columns) else None
