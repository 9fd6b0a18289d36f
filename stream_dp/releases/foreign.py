"""Records of a releases topic that are not releases of its stream: skipped, counted and reported.

Only the worker should be able to write there.  Where somebody else can, what they write must not stop anything.
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import msgspec

from stream_dp.releases.release import Release

logger = logging.getLogger(__name__)

AnyRelease = TypeVar("AnyRelease", bound=Release)
_passed_over: Counter[str] = Counter()  # by stream, in this process


class Place(NamedTuple):
    """Where a record stands."""

    topic: str
    partition: int
    offset: int


def release_or_none(
    decode: Callable[[bytes], AnyRelease], stream: str, place: Place, value: bytes | None
) -> AnyRelease | None:
    """The release in a record's value; None, with a warning, for a record that is no release of `stream`."""
    try:
        release = decode(value or b"")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        release = None
    if release is not None and release.stream == stream:
        return release
    report(stream, place)
    return None


def report(stream: str, place: Place) -> None:
    """Count a record that is passed over, and warn of the first and whenever their number has doubled."""
    _passed_over[stream] += 1
    number = _passed_over[stream]
    if number & (number - 1) == 0:
        logger.warning(
            "the topic %r holds a record at offset %d of partition %d that is not a release of stream %r, and it is "
            "passed over (%d so far): let only the stream's worker write there",
            place.topic,
            place.offset,
            place.partition,
            stream,
            number,
        )


def passed_over(stream: str) -> int:
    """How often this process has passed over a record of this stream's releases."""
    return _passed_over[stream]
