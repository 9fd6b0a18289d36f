"""The window behind one release, found in the topic by few reads."""

from datetime import UTC, datetime, timedelta

from stream_dp.releases.lookup import find_release, release_near
from stream_dp.releases.topic import ReleasesTopic
from stream_dp.releases.whole import WholeReleases
from stream_dp.releases.whole_release import WholeRelease
from stream_dp.releases.windows import (
    FALSE_DISCOVERIES,
    Span,
    Window,
    begins_epoch,
    may_be_between,
    window_between,
    with_moves,
)

_START = datetime(1970, 1, 1, tzinfo=UTC)

LONGEST_SILENCE = 0.1
"""After a silence of this share of the window nobody can tell what fell: perhaps the worker stands still."""


def find_window(
    releases: ReleasesTopic,
    release: WholeRelease,
    span: Span,
    false_discoveries: float | None = FALSE_DISCOVERIES,
    now: int = 0,
) -> Window:
    """The window of this span that ends with a release of the topic, and what rises and falls in it, if that is asked.

    If `release` is the newest one, a window by time may end `now` instead, in milliseconds since 1970: while nothing is
    released, it empties, and soon nobody can tell what rises and falls.
    Windows of one release after the other are had at less cost from `windows.Windows`.  Raises KafkaError.
    """
    older, complete = _older(releases, release, span, now)
    window = window_between(
        release, older, complete, lambda of, number: release_near(releases, (of.epoch, number))
    )
    if false_discoveries is None:
        return window
    if span.milliseconds and now - span.clock(release) > LONGEST_SILENCE * span.milliseconds:
        return window
    oldest, both_complete = _older(releases, release, span.twice(), now)
    return with_moves(window, oldest, false_discoveries) if both_complete else window


def _older(
    releases: ReleasesTopic, release: WholeRelease, span: Span, now: int
) -> tuple[WholeRelease | None, bool]:
    """Where the window begins, as `windows.Windows` finds it, and whether it reaches as far back as was asked for."""
    begins = span.begins(release, now)
    if span.milliseconds and span.clock(release) <= begins:
        return release, True
    found = None
    if span.milliseconds:
        found = find_release(releases, _START + timedelta(milliseconds=max(0, begins)))
    elif begins > 0:
        found = find_release(releases, begins, release.epoch)
    if found is not None:
        return (found, True) if may_be_between(found, release, span) else (None, False)
    oldest = _oldest(releases)
    if oldest is None or begins_epoch(oldest) or not may_be_between(oldest, release, span):
        return None, False
    return oldest, False


def _oldest(releases: ReleasesTopic) -> WholeRelease | None:
    """The first whole release that the topic still holds."""
    merged = WholeReleases()
    wholes = map(merged.add, releases.parts_from(releases.first))
    return next((whole for whole in wholes if whole is not None), None)
