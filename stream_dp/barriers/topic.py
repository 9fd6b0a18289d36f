"""The topic `<stream>.barriers`, seen from outside the hot loop."""

import logging
from collections.abc import Iterator, Sequence

import msgspec
from kafka.errors import InvalidConfigurationError

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch_numbers import may_follow
from stream_dp.events.barrier_chain import Barrier, is_at
from stream_dp.events.hidden_offsets import reveal
from stream_dp.events.rounds import TICKS
from stream_dp.kafka import log
from stream_dp.privacy.vector import at

logger = logging.getLogger(__name__)

_LONGEST_LIMIT = 3_600_000  # what Kafka 4 sets by itself

_FURTHEST = "message.timestamp.after.max.ms"
_MINUTE = "60000"
BOUNDED = {_FURTHEST: _MINUTE}
"""A barrier's record has the time at which it was due: Kafka refuses those of a clock that is a minute ahead of its
own."""


def needs_barriers(settings: Settings, partitions: int) -> bool:
    """Whether an epoch over so many partitions needs barriers.

    They end its rounds, or say in which order the events of several partitions come.
    """
    return settings.rounds == TICKS or partitions > 1


def prepare_barriers(settings: Settings) -> None:
    """Make the barriers topic where it may be made; warns of one that takes what a wrong clock writes.

    Raises `LogRefused` unless it keeps its records forever.
    """
    if settings.create_topics:
        try:
            log.create_topics(settings.kafka_address, settings.barriers, configs=log.LOG | BOUNDED)
        except InvalidConfigurationError:  # Kafka before 3.6 knows no such limit
            log.create_topics(settings.kafka_address, settings.barriers)
    for warning in check_barriers_topic(settings):
        logger.warning(warning)


def check_barriers_topic(settings: Settings) -> list[str]:
    """Raise `LogRefused` unless the barriers topic keeps its records forever; returns warnings."""
    kafka, topic = settings.kafka_address, settings.barriers
    for forgetful in log.check_topic(kafka, topic):
        raise log.LogRefused(
            f"{forgetful}, and a forgotten barrier stops the stream: set retention.ms and retention.bytes to -1"
        )
    described = log.describe(kafka, topic, _FURTHEST)
    told = described.settings.get(_FURTHEST) if described is not None else None
    if told is None or int(told) <= _LONGEST_LIMIT:
        return []
    return [
        f"the topic {topic!r} has {_FURTHEST}={told} and accepts barriers from a clock that is far ahead: run "
        f"kafka-configs.sh --bootstrap-server {kafka} --alter --entity-type topics --entity-name {topic} "
        f"--add-config {_FURTHEST}={_MINUTE}"
    ]


def read_barriers(settings: Settings, start: int, end: int) -> Iterator[tuple[int, bytes | None]]:
    """The records of the barriers topic from `start` to before `end`, each with its offset."""
    for record in log.read(settings.kafka_address, settings.barriers, start, end):
        yield record.offset, record.value


class _Entry(msgspec.Struct, frozen=True):
    """What this reads of an entry of `<stream>.epochs`; `journal.py` reads all of it."""

    type: str
    epoch: "_Opened | None" = None
    hidden: bytes | None = None
    number: int = 0


class _Opened(msgspec.Struct, frozen=True):
    number: int
    nonce: bytes = b""
    after_barrier: Barrier | None = None


def beginning_of(nonce: bytes) -> str:
    """What the hidden offsets are about from which the epoch of this nonce counts."""
    return f"beginning of {nonce.hex()}"


def barrier_before_last_epoch(settings: Settings, key: bytes, end: int) -> Barrier | None:
    """Where the barriers of the epoch begin that was opened last, by the epochs topic up to its offset `end`.

    `key` is that of `barrier_key`.  None if there is no epoch, or one whose rounds do not end by ticks.
    """
    last, hidden, closed = _Opened(0), None, set[int]()
    first = log.offsets(settings.kafka_address, settings.epochs).first
    for record in log.read(settings.kafka_address, settings.epochs, first, end):
        try:
            entry = msgspec.json.decode(record.value or b"", type=_Entry)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue  # the worker reports what does not belong there
        if entry.epoch is not None and may_follow(entry.epoch.number, last.number, closed):
            last, hidden = entry.epoch, entry.hidden
        elif entry.type == "epoch-closed" and entry.number == last.number:
            closed.add(entry.number)
    if hidden is None:
        return last.after_barrier
    place = reveal(hidden, key, beginning_of(last.nonce))
    return None if place is None else place.barrier


def check_barrier(settings: Settings, barrier: Barrier) -> None:
    """Raise `LogRefused` unless `barrier`, which was counted, is still where it was, or its chain may begin there."""
    held = log.offsets(settings.kafka_address, settings.barriers)
    place = barrier.next_offset - 1
    if barrier.number == 0:
        found = held.first <= barrier.next_offset <= held.end
    else:
        again = list(read_barriers(settings, place, place + 1)) if place in held else []
        found = any(is_at(barrier, offset, value) for offset, value in again)
    if not found:
        raise other_barriers(settings, barrier)


def other_barriers(settings: Settings, barrier: Barrier) -> log.LogRefused:
    """What to say where `barrier`, which was counted, is not there any more."""
    return log.LogRefused(
        f"the topic {settings.barriers!r} is not the one that was counted: barrier {barrier.number}, before offset "
        f"{barrier.next_offset}, is missing or has changed; the topic was truncated or re-created; restore it, or open "
        "a new epoch, which is charged, with --new-epoch"
    )


def check_ends(settings: Settings, ends: Sequence[int], counted: Sequence[int]) -> None:
    """Raise `LogRefused` where a partition of the events topic ends before the offset up to which it was counted."""
    for number, before in enumerate(counted):
        end = at(ends, number)
        if end < before:
            where = f"partition {number} of " if len(counted) > 1 else ""
            raise log.LogRefused(
                f"{where}the topic {settings.events!r} ends at offset {end}, before offset {before}, up to which it "
                "was counted: it was truncated or re-created; restore it, or open a new epoch, which is charged, with "
                "--new-epoch"
            )
