"""Lost releases, written again byte for byte from the noise key and the events topic.

By the rule that costs nothing, as long as the log is the one that was counted.  So everything that is left is compared
first, and nothing is written beyond what a release that is left, or the last checkpoint, shows to come from this log.
"""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from redis import Redis

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import EpochRefused
from stream_dp.epochs.journal import EpochJournal
from stream_dp.kafka import log
from stream_dp.kafka.clients import kept_clients
from stream_dp.operations.watch import Watch
from stream_dp.pipeline.pipeline import ReleasedPart
from stream_dp.releases.lookup import newest_release
from stream_dp.releases.topic import ReleasesTopic
from stream_dp.sinks.framing import LARGEST_BATCH, Framing, rounds_per_batch
from stream_dp.sinks.sending import InFlight, packed, producer, stop_producer
from stream_dp.store.checkpoints import CheckpointStore
from stream_dp.verification.block_start import BlockStart
from stream_dp.verification.rebuild import compared
from stream_dp.verification.recorded import (
    Progress,
    RecordedEpoch,
    checkpoint_of,
    epoch_entries,
    last_released,
    published_parts,
    recorded_epoch,
    start_of_epoch,
)
from stream_dp.verification.verify import Outcome
from stream_dp.workers.stream_topics import prepare_releases_topic

_RECORDS_AT_ONCE = 500


@dataclass(frozen=True)
class Missing:
    """What a topic lacks of an epoch: these rounds, in order, of which it may hold the first parts of the first.

    They can be computed from `start` on.
    """

    recorded: RecordedEpoch
    rounds: list[int]
    parts_there: int = 0
    start: BlockStart | None = None


@kept_clients()
def republish(
    settings: Settings,
    redis: Redis,
    to: str | None = None,
    number: int | None = None,
    trust_log: bool = False,
    dry_run: bool = False,
    progress: Progress = lambda done, of: None,
    whole: bool = False,
) -> list[Missing]:
    """Write into the topic `to` (default: the releases topic) what it lacks of epoch `number` (default: of all).

    Of windows, only the last two blocks of the releases topic are looked at, and what comes after them, where that can
    be computed from the log of three; with `whole`, or into another topic, all of an epoch is.

    Whoever writes the releases topic is fenced off first.  `trust_log`: write also what nothing shows to come from this
    log.  `dry_run`: write nothing.  Returns what was, or would be, written.

    Raises `EpochRefused`, with nothing written, where what is left does not follow from the log, nothing is left to
    show that it would, or the topic holds later releases already; and `LogRefused` or `NoKey`.
    """
    topic = to or settings.releases
    if not dry_run:
        prepare_releases_topic(settings)
        if topic != settings.releases:
            if settings.create_topics:
                log.create_topics(settings.kafka_address, topic)
            log.check_topic(settings.kafka_address, topic, LARGEST_BATCH)
    there = log.topics(settings.kafka_address)
    numbers = (
        [opened.epoch.number for opened in EpochJournal(settings).opened] if number is None else [number]
    )
    lacking = [
        _missing(
            settings, redis, recorded_epoch(settings, redis, each), topic, there, trust_log, progress, whole
        )
        for each in numbers
    ]
    lacking = [each for each in lacking if each.rounds]
    if lacking and topic in there:
        _require_order(settings, topic, lacking[0])
    if lacking and not dry_run:
        store = CheckpointStore(redis, settings.stream) if topic == settings.releases else None
        if store is not None:
            store.take_over()
        asyncio.run(_write(settings, topic, lacking, store, progress))
    return lacking


def _missing(
    settings: Settings,
    redis: Redis,
    recorded: RecordedEpoch,
    topic: str,
    there: set[str],
    trust_log: bool,
    progress: Progress,
    whole: bool,
) -> Missing:
    """What `topic` lacks of an epoch, after a comparison of all that is left of it anywhere."""
    epoch, checkpoint = recorded.epoch, checkpoint_of(settings, redis, recorded)
    in_place = topic == settings.releases and topic in there
    start = start_of_epoch(settings, recorded) if in_place and not whole else None
    shown = checkpoint.position.released if checkpoint is not None else 0
    last_part = _LastRound()

    def compared_with(with_topic: str, released: int) -> Outcome:
        held = published_parts(settings, recorded, start, with_topic) if with_topic in there else ()
        parts = last_part.of(part for _, part in held)
        outcome = compared(settings, recorded, parts, checkpoint, released, start, progress)
        if not outcome.certificate.sound:
            raise EpochRefused(
                f"nothing was written: epoch {epoch.number}, compared with the topic {with_topic!r}: "
                f"{outcome.certificate.verdict.sentence}"
            )
        return outcome

    left = compared_with(settings.releases, last_released(recorded, checkpoint))
    if checkpoint is None and recorded.closed is None and not left.last:
        raise EpochRefused(
            f"it is not known how far epoch {epoch.number} was released: Redis has no state of it, and the topic "
            f"{settings.releases!r} none of its releases; run `stream-dp rebuild`, which says more"
        )
    unproved = [each for each in left.missing if each > max(left.last, shown)]
    if unproved and not trust_log:
        raise EpochRefused(
            f"no release of epoch {epoch.number} from round {unproved[0]} on is left, nor a checkpoint, that would "
            "show that the events topic is the log that was counted: give --trust-log if you know that it is, or "
            "name another epoch with --epoch; nothing was written"
        )
    until = max([left.last, *left.missing[-1:]])
    found = left if topic == settings.releases else compared_with(topic, until)
    lacking = [each for each in found.missing if each <= until]
    if lacking and (lacking[0] < found.last or not last_part.is_begun):
        raise EpochRefused(_out_of_order(settings, topic, epoch.number, lacking[0], found.last))
    return Missing(recorded, lacking, last_part.parts if lacking[:1] == [found.last] else 0, start)


class _LastRound:
    """Watches which parts of the last round pass by."""

    def __init__(self) -> None:
        self._round, self._parts = 0, set[int]()

    def of(self, parts: Iterator[ReleasedPart]) -> Iterator[ReleasedPart]:
        self._round, self._parts = 0, set()
        for part in parts:
            if part.round > self._round:
                self._round, self._parts = part.round, set()
            if part.round == self._round:
                self._parts.add(part.part)
            yield part

    @property
    def parts(self) -> int:
        """How many parts have passed by."""
        return len(self._parts)

    @property
    def is_begun(self) -> bool:
        """Whether they are the first ones."""
        return self._parts == {*range(1, len(self._parts) + 1)}


def _require_order(settings: Settings, topic: str, first: Missing) -> None:
    """Raise `EpochRefused` where the topic holds a later epoch than the first one that is to be written."""
    number = first.recorded.epoch.number
    with closing(ReleasesTopic(settings.kafka_address, topic, stream=settings.stream)) as releases:
        newest = newest_release(releases)
    if newest is not None and newest.epoch > number:
        raise EpochRefused(
            _out_of_order(settings, topic, number, first.rounds[0], newest.round, newest.epoch)
        )


def _out_of_order(
    settings: Settings, topic: str, number: int, missing: int, last: int, epoch: int | None = None
) -> str:
    return (
        f"the topic {topic!r} holds round {last} of epoch {epoch or number} already, and Kafka puts nothing before it, "
        f"such as round {missing} of epoch {number}: name another topic with --to, for example "
        f"--to {settings.stream}.restored, and the whole epoch is written there; nothing was written"
    )


async def _write(
    settings: Settings, topic: str, lacking: list[Missing], store: CheckpointStore | None, progress: Progress
) -> None:
    """Write the releases with the times and in the batches of a worker.  Raises `Fenced` where one was started."""
    key = settings.stream.encode()
    sender = producer(settings.kafka_address, settings.compression)
    watch = Watch(settings.stream, settings.data_source)
    in_flight = InFlight(sender, topic, settings.kafka, watch, settings.batch_rounds)
    try:
        await sender.start()
        for missing in lacking:
            for parts in _batches(settings, missing, progress):
                if store is not None:
                    await asyncio.to_thread(store.check_hold)
                await in_flight.send(packed(sender, key, parts))
        await in_flight.settle()
    finally:
        await in_flight.drop()
        await stop_producer(sender)


def _batches(settings: Settings, missing: Missing, progress: Progress) -> Iterator[list[ReleasedPart]]:
    """The releases that are missing, computed again, in batches that end where those of a worker with a backlog do."""
    recorded, first, last = missing.recorded, missing.rounds[0], missing.rounds[-1]
    pipeline = recorded.pipeline(missing.start)
    rounds = rounds_per_batch(recorded.epoch.privacy["rounds"], settings.batch_rounds)
    framing = Framing(rounds, len(settings.stream))
    entries = epoch_entries(settings, recorded, progress, missing.start)
    while pipeline.round < last and (batch := list(islice(entries, _RECORDS_AT_ONCE))):
        parts = [
            part
            for part in pipeline.process(batch).releases
            if first <= part.round <= last and (part.round > first or part.part > missing.parts_there)
        ]
        yield from framing.cut(parts, pipeline.round)
    if framing.is_open:
        yield framing.rest()
