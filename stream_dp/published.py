"""What the releases topic holds, read by those who may write to it: anything but a release there is refused."""

from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from stream_dp import log
from stream_dp.records import Release, decode_release
from stream_dp.settings import Settings


class Published(NamedTuple):
    """One record of the releases topic."""

    offset: int
    release: Release
    value: bytes


def published(
    settings: Settings, start: int, topic: str | None = None, partition: int = 0
) -> Iterator[Published]:
    """The releases from offset `start` on, as far as the topic goes now; raises `LogRefused`.

    `topic`: another than the releases topic.
    """
    topic = topic or settings.releases
    offsets = log.offsets(settings.kafka_address, topic, partition)
    if offsets.end < start:
        raise log.LogRefused(
            f"the topic {topic!r} has lost releases that were sent: it was truncated or re-created; "
            "restore it, or open a new epoch, which is charged, with --new-epoch"
        )
    first = max(offsets.first, start)
    for record in log.read(settings.kafka_address, topic, first, offsets.end, partition):
        value = record.value or b""
        try:
            yield Published(record.offset, decode_release(value), value)
        except (msgspec.DecodeError, UnicodeError):
            raise log.LogRefused(
                f"the topic {topic!r} holds a record at offset {record.offset} that is no release: "
                "only the worker may write there"
            ) from None


def value_digest(value: bytes) -> bytes:
    """Tells whether two releases are the same, byte for byte."""
    return blake2b(value, digest_size=16).digest()
