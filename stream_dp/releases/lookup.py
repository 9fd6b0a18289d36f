"""Finding a release in the topic: by round, by time, the newest, or where a subscription begins."""

import logging
from datetime import UTC, datetime

from stream_dp.config.connections import Kafka
from stream_dp.releases.topic import BadPosition, ReleasesTopic, read_position
from stream_dp.releases.whole import WholeReleases
from stream_dp.releases.whole_release import WholeRelease

logger = logging.getLogger(__name__)


def release_at(kafka: Kafka, topic: str, at: int | datetime, epoch: int | None = None) -> WholeRelease | None:
    """The newest whole release at or before a round, or the newest one whose record is not from after a moment.

    A round that was released gives its own release; where it was not, the answer's `round` is an earlier one.  None if
    the topic holds nothing as old as that.
    A round is one of the newest epoch or of `epoch`; of a moment, `epoch` means its newest release by then.
    Raises `LogRefused` for a topic that is not there, or KafkaError.
    """
    releases = ReleasesTopic(kafka, topic)
    try:
        return find_release(releases, at, epoch)
    finally:
        releases.close()


def find_release(
    releases: ReleasesTopic, at: int | datetime, epoch: int | None = None
) -> WholeRelease | None:
    """The release that `release_at` means, in a topic that is open."""
    if not isinstance(at, int):
        return _newest_at(releases, at, epoch)
    place = _epoch_or_newest(releases, epoch), at
    found = release_near(releases, place)
    if found is None or (found.epoch, found.round) != place:
        found = newest_before(releases, releases.offset_past(place), place)
    return found if found is not None and found.epoch == place[0] else None


def history_begins(releases: ReleasesTopic) -> str:
    """Where a topic's history begins, as a sentence for those who asked for something older."""
    oldest = next(releases.parts_from(releases.first), None)
    if oldest is None:
        return "the topic holds no release"
    return f"its history begins with round {oldest.round:,} of epoch {oldest.epoch}"


def release_near(releases: ReleasesTopic, place: tuple[int, int]) -> WholeRelease | None:
    """The first whole release at or past an (epoch, round), found by few reads always; None if there is none.

    Where a worker has sent something again, it may be a later one.
    """
    merged = WholeReleases((place[0], place[1] - 1))
    wholes = map(merged.add, releases.parts_from(releases.offset_near(place)))
    return next((whole for whole in wholes if whole is not None), None)


def newest_release(releases: ReleasesTopic, epoch: int | None = None) -> WholeRelease | None:
    """The newest whole release, of this epoch if one is named, that a topic held when it was last looked at."""
    return _newest_at(releases, None, epoch)


def _newest_at(releases: ReleasesTopic, moment: datetime | None, epoch: int | None) -> WholeRelease | None:
    """The newest whole release of a moment (None: of now)."""
    end = releases.end if moment is None else releases.offset_after(_milliseconds(moment))
    if epoch is not None:
        end = min(end, releases.offset_of((epoch + 1, 0)))
    newest = newest_before(releases, end)
    return newest if newest is not None and epoch in (None, newest.epoch) else None


def newest_before(
    releases: ReleasesTopic, end: int, up_to: tuple[int, int] | None = None
) -> WholeRelease | None:
    """The newest whole release before an offset; `up_to`: leave out all that are past this (epoch, round)."""
    widened = 1
    while True:
        merged, last = WholeReleases(), None
        for part in releases.parts_before(end, widened):
            if up_to is None or (part.epoch, part.round) <= up_to:
                last = merged.add(part) or last
        if last is not None or widened > end - releases.first:
            return last
        widened *= 16  # there are many foreign records, or hardly any releases: look at all in the end


def beginning(
    releases: ReleasesTopic, start: str | int | datetime, epoch: int | None, position: str | None
) -> tuple[tuple[int, int], int]:
    """The (epoch, round) after which to begin, and the offset from which to read."""
    if position is not None:
        return _after(releases, position)
    if isinstance(start, int):
        place = _epoch_or_newest(releases, epoch), start
    elif start == "earliest":
        place = epoch or 0, 1
    else:
        newest = _newest_at(releases, None if isinstance(start, str) else start, epoch)
        place = (epoch or 0, 1) if newest is None else (newest.epoch, newest.round)
    begin = releases.offset_of(place) if place[0] else releases.first
    if start not in ("earliest", "latest") and begin == releases.first > 0:
        _say_if_not_kept(releases, place)
    return (place[0], place[1] - 1), begin


def _say_if_not_kept(releases: ReleasesTopic, place: tuple[int, int]) -> None:
    """Warn a subscriber who asks for releases from before what is left in the topic."""
    oldest = next(releases.parts_from(releases.first), None)
    if oldest is not None and (oldest.epoch, oldest.round) > place:
        logger.warning("what was asked for is no longer kept: %s", history_begins(releases))


def _after(releases: ReleasesTopic, position: str) -> tuple[tuple[int, int], int]:
    """Where to go on after a position, if the topic is still the one that it came from."""
    place, nonce = read_position(position)
    begin = releases.offset_of(place)
    known = next(releases.parts_from(begin), None)
    if known is None:
        made_anew = releases.end == 0 or releases.first < releases.end  # else everything is forgotten by now
    else:
        made_anew = known.epoch == place[0] and known.nonce != nonce
    if made_anew:
        raise BadPosition(
            f"the topic does not hold the releases that the position {position!r} came from: it was re-created or "
            'truncated; begin again with start="earliest"'
        )
    if begin == releases.first > 0:
        _say_if_not_kept(releases, (place[0], place[1] + 1))
    return place, begin


def _epoch_or_newest(releases: ReleasesTopic, epoch: int | None) -> int:
    if epoch is not None:
        return epoch
    newest = _newest_at(releases, None, None)
    return 1 if newest is None else newest.epoch


def _milliseconds(moment: datetime) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)
