"""What the releases topic holds, read by those who may write to it."""

from collections.abc import Iterator
from contextlib import closing
from hashlib import blake2b
from typing import NamedTuple

from stream_dp.config.settings import Settings
from stream_dp.epochs.journal import EpochOpened
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.releases.foreign import Place as RecordPlace
from stream_dp.releases.foreign import release_or_none
from stream_dp.releases.lookup import newest_before
from stream_dp.releases.release import Release, decode_release
from stream_dp.releases.topic import Place, ReleasesTopic
from stream_dp.store.checkpoints import Checkpoint


class Published(NamedTuple):
    """One release of the releases topic."""

    offset: int
    release: Release
    value: bytes


def published(settings: Settings, start: int = 0, topic: str | None = None) -> Iterator[Published]:
    """The stream's releases from offset `start` on, as far as the topic goes now; all else there is passed over.

    `topic`: another than the releases topic.
    """
    topic = topic or settings.releases
    held = log.offsets(settings.kafka_address, topic)
    for record in log.read(settings.kafka_address, topic, max(held.first, start), held.end):
        release = _decoded(settings, topic, record)
        if release is not None:
            yield Published(record.offset, release, record.value or b"")


def start_of(settings: Settings, place: Place, expected: int) -> int:
    """The offset from which on the releases at or past `place`, an (epoch, round), stand.

    That is `expected`, where it was noted when the releases before it were written, unless the topic was made anew
    since: then they are searched for.
    """
    return _start_of(settings, place, expected, log.offsets(settings.kafka_address, settings.releases))


def _start_of(settings: Settings, place: Place, expected: int, held: log.Offsets) -> int:
    topic, kafka = settings.releases, settings.kafka_address
    if expected <= held.first:
        return held.first
    if expected <= held.end:
        for record in log.read(kafka, topic, expected - 1, expected):
            before = _decoded(settings, topic, record)
            if before is not None and (before.epoch, before.round) < place:
                return expected
    with closing(ReleasesTopic(kafka, topic, stream=settings.stream)) as releases:
        return releases.offset_of(place)


def published_of(settings: Settings, opened: EpochOpened, topic: str | None = None) -> Iterator[Published]:
    """The releases of an epoch, in the order of their topic."""
    epoch, elsewhere = opened.epoch, topic not in (None, settings.releases)
    start = 0 if elsewhere else start_of(settings, (epoch.number, 0), opened.releases_offset)
    return (each for each in published(settings, start, topic) if each.release.nonce == epoch.nonce.hex())


def begin_after(settings: Settings, checkpoint: Checkpoint) -> int:
    """Where the releases after a checkpoint begin, or would begin.

    Raises `LogRefused` where the topic was made anew since, or cut off, and does not hold the ones before it.
    """
    epoch, expected = checkpoint.epoch, checkpoint.releases_offset
    topic, kafka = settings.releases, settings.kafka_address
    held = log.offsets(kafka, topic)
    begin = _start_of(settings, (epoch.number, checkpoint.state.round + 1), expected, held)
    if expected > held.end or topic in checkpoint.made_anew:
        with closing(ReleasesTopic(kafka, topic, stream=settings.stream)) as releases:
            last = newest_before(releases, begin)
        released = checkpoint.position.released
        if released and (last is None or last.nonce != epoch.nonce.hex() or last.round < released):
            raise log.LogRefused(
                f"the topic {topic!r} has lost releases that were sent: it was truncated or re-created; write them "
                "again with `stream-dp republish`, or restore the topic, or open a new epoch, which is charged, with "
                "--new-epoch"
            )
    return begin


def anything_published(settings: Settings) -> bool:
    """Whether the releases topic holds a release of the stream, or may have forgotten one."""
    held = log.offsets(settings.kafka_address, settings.releases)
    return held.first > 0 or (held.end > 0 and any(True for _ in published(settings)))


def value_digest(value: bytes) -> bytes:
    """Tells whether two releases are the same, byte for byte."""
    return blake2b(value, digest_size=16).digest()


def _decoded(settings: Settings, topic: str, record: Record) -> Release | None:
    place = RecordPlace(topic, 0, record.offset)
    return release_or_none(decode_release, settings.stream, place, record.value)
