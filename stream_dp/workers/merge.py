"""The merge: whole rounds from the topic of the shards into the releases topic, as one worker would have written them.

It takes releases of the epochs in `<stream>.epochs` alone.  It needs neither Redis nor a key, and keeps no state: where
to go on stands in the releases topic.  Several may run, of which one works: they are a consumer group over the one
partition of the releases topic, which Kafka gives to one of them.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator
from functools import partial

import msgspec
from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import CommitFailedError

from stream_dp.config.connections import aiokafka_options
from stream_dp.config.settings import Settings
from stream_dp.epochs.journal import EpochJournal
from stream_dp.kafka import log, roles
from stream_dp.kafka.clients import kept_clients
from stream_dp.kafka.consuming import consumer
from stream_dp.operations.ports import Ports
from stream_dp.operations.retry import OUTAGES, retry_until_done
from stream_dp.operations.watch import Watch
from stream_dp.pipeline.pipeline import ReleasedPart
from stream_dp.releases.foreign import Place as RecordPlace
from stream_dp.releases.foreign import release_or_none, report
from stream_dp.releases.lookup import newest_release
from stream_dp.releases.merge import (
    Place,
    RoundMerger,
    ShardRelease,
    ShardsRefused,
    WholeRounds,
    decode_shard_release,
)
from stream_dp.releases.part_encoder import PartEncoder
from stream_dp.releases.release import decode_release
from stream_dp.releases.topic import ReleasesTopic
from stream_dp.releases.whole import WholeReleases
from stream_dp.releases.whole_release import WholeRelease
from stream_dp.sinks.framing import Framing, rounds_per_batch
from stream_dp.sinks.segments import Reading, Segments
from stream_dp.sinks.sending import (
    Addressed,
    InFlight,
    packed,
    producer,
    stop_client,
    stop_producer,
)
from stream_dp.workers.group import ends_of, membership, require_shards
from stream_dp.workers.stream_topics import prepare_releases_topic, prepare_topics_of_shards
from stream_dp.workers.topic_watch import TopicWatch

logger = logging.getLogger(__name__)

_POLL_MILLISECONDS, _STANDBY_MILLISECONDS = 200, 500
_OFFSET_SECONDS, _CONFIRM_SECONDS = 5.0, 2.0


class MergeWorker:
    """Writes the stream's whole rounds until it is stopped or refused."""

    def __init__(self, settings: Settings) -> None:
        """Raises `SettingsError`; nothing is connected yet."""
        require_shards(settings)
        self.settings = settings
        self._stopping = asyncio.Event()
        aiokafka_options(settings.kafka_address)
        self.watch = Watch(settings.stream, settings.data_source)
        self._ports = Ports(settings, self.watch)

    def stop(self) -> None:
        """Ask `run` to finish what it has in its hands and to return."""
        self._stopping.set()

    async def run(self) -> None:
        """Work until `stop`.  An outage of Kafka is waited out; raises a `Refused`."""
        with self._ports, kept_clients():
            needed = partial(roles.merge, self.settings)
            await retry_until_done(
                self._attempt, lambda: False, self._stopping, self.settings, needed, self.watch
            )

    async def _attempt(self) -> None:
        topics = TopicWatch(self.settings, "shard_releases", "releases", "epochs")
        topics.for_readers(self.settings.epochs)
        await topics.guard(self._work(topics), self.watch)

    async def _work(self, topics: TopicWatch) -> None:
        await asyncio.to_thread(self._prepare_topics)
        await asyncio.to_thread(topics.look)
        async with _Merging(self.settings, self.watch) as merging:
            try:
                while not self._stopping.is_set():
                    await merging.step()
            finally:
                self.watch.ended()

    def _prepare_topics(self) -> None:
        prepare_topics_of_shards(self.settings)
        prepare_releases_topic(self.settings)


class _Merging(ConsumerRebalanceListener):
    """One connection to Kafka.  `_turn` is the consumer by which the group says whose turn it is; it reads nothing."""

    def __init__(self, settings: Settings, watch: Watch) -> None:
        self._settings, self._watch = settings, watch
        self._releases = TopicPartition(settings.releases, 0)
        self._has_turn = False
        self._rounds: _Rounds | None = None  # there once this process knows where to go on
        self._working = asyncio.Lock()
        self._confirmed = 0.0
        self._places: list[TopicPartition] = []
        self._segments = Segments(0)
        self._told = 0  # rounds of `_rounds` that the metrics have counted
        self._turn = consumer(
            settings.kafka_address, **membership(settings, "merge"), auto_offset_reset="latest"
        )
        self._reader = consumer(settings.kafka_address, auto_offset_reset="earliest")
        self._producer = producer(settings.kafka_address, settings.compression)
        self._sent = InFlight(self._producer, settings.kafka, watch)

    async def __aenter__(self) -> "_Merging":
        try:
            await self._producer.start()
            await self._reader.start()
            self._turn.subscribe([self._settings.releases], listener=self)
            with self._watch.progress.waiting("group-assignment"):
                await self._turn.start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, why: type[BaseException] | None = None, *_: object) -> None:
        self._sent.drop()
        for each in (self._turn, self._reader):
            await stop_client(each.stop(), each._client)
        await stop_producer(self._producer, why)

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Somebody else may be next: let everything sent arrive before it looks."""
        async with self._working:
            self._has_turn, self._rounds = False, None
            try:
                await self._sent.settle()
            except OUTAGES as lost:
                logger.info("what was sent last is not confirmed: %s", lost)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Begin to merge, or wait in reserve."""
        places = list(assigned)
        self._turn.pause(*places)
        self._has_turn = bool(places)

    async def step(self) -> None:
        """Merge what has come.  Raises a `Refused`."""
        self._watch.beat()
        with self._watch.progress.waiting("group-assignment"):  # while the group decides whose turn it is
            await self._turn.getmany(timeout_ms=0 if self._has_turn else _STANDBY_MILLISECONDS)
        async with self._working:
            if self._has_turn:
                if self._rounds is None:
                    with self._watch.progress.waiting("start"):
                        await self._begin()
                await self._merge()
        if time.monotonic() - self._confirmed > _CONFIRM_SECONDS:
            await self._confirm()
            self._confirmed = time.monotonic()

    async def _confirm(self) -> None:
        """Ask Kafka whether it is there, and whether there is something to merge."""
        first = TopicPartition(self._settings.shard_releases, 0)
        ends = await ends_of(self._reader, {first, *self._reader.assignment()})
        self._watch.answered(ends is not None)
        if ends is not None and self._rounds is not None:
            late = self._rounds.whole.awaited()
            unread = [place for place in self._reader.assignment() if place in ends]
            more = any([ends[place] > await self._reader.position(place) for place in unread])
            self._watch.progress.input(late is not None or more, None if late is None else f"shard {late}")

    async def _begin(self) -> None:
        rounds, starts = await asyncio.to_thread(_go_on, self._settings)
        self._places = [TopicPartition(self._settings.shard_releases, shard) for shard in range(len(starts))]
        self._reader.assign(self._places)
        for place, start in zip(self._places, starts, strict=True):
            self._reader.seek(place, start)
        self._rounds, self._told = rounds, 0
        self._segments = Segments(len(starts))
        logger.info("stream %s: merging after round %d", self._settings.stream, rounds.last[1])

    async def _merge(self) -> None:
        rounds = self._rounds
        assert rounds is not None
        found = await self._reader.getmany(timeout_ms=_POLL_MILLISECONDS)
        for place, records in found.items():
            self._segments.add(place.partition, records)
        readings = [await self._reading(place, rounds) for place in self._places]
        for segment, ends in self._segments.take(readings):
            for record in segment:
                rounds.add(record.value, record.partition, record.offset)
            if not await self._send(rounds.batches(ends)):
                return
        for place in self._places:
            wait = rounds.whole.is_ahead(place.partition) or self._segments.keeps_back(place.partition)
            (self._reader.pause if wait else self._reader.resume)(place)
        self._tell(rounds)

    async def _reading(self, place: TopicPartition, rounds: "_Rounds") -> Reading:
        end, position = self._reader.last_stable_offset(place), await self._reader.position(place)
        return Reading(end, position, rounds.whole.is_ahead(place.partition))

    async def _send(self, batches: Iterator[list[ReleasedPart]]) -> bool:
        """Send what is merged; returns whether it is still this process's turn."""
        key = self._settings.stream.encode()
        while parts := await asyncio.to_thread(_next_batch, batches):
            if not await self._still_has_turn():
                return False
            batch = packed(self._producer, key, parts)
            await self._sent.send(Addressed(self._settings.releases, 0, batch))
        return True

    def _tell(self, rounds: "_Rounds") -> None:
        """Say how far the releases are."""
        newest, facts = rounds.merged_last, self._watch.facts
        if newest is not None:
            facts.epoch, facts.horizon = newest.epoch, newest.horizon or 0
            facts.epsilon, facts.delta = newest.epsilon, newest.delta
            facts.releases += rounds.merged - self._told
            self._told = rounds.merged
            self._watch.counted(newest.round, 0)

    async def _still_has_turn(self) -> bool:
        """Ask the group by a commit, which it takes from its present members only: a process may have slept."""
        try:
            end = self._sent.end(self._settings.releases, 0, 0)
            await asyncio.wait_for(self._turn.commit({self._releases: end}), _OFFSET_SECONDS)
        except CommitFailedError:
            logger.info("stream %s: another merge goes on", self._settings.stream)
            self._has_turn, self._rounds = False, None
        return self._has_turn


def _next_batch(batches: Iterator[list[ReleasedPart]]) -> list[ReleasedPart] | None:
    return next(batches, None)


class _Rounds:
    """Whole rounds in order from the parts of the shards, none left out; `last` is where the releases topic ends."""

    def __init__(
        self, settings: Settings, shards: int, newest: WholeRelease | None, epochs: EpochJournal
    ) -> None:
        self._settings = settings
        rounds = rounds_per_batch(settings.rounds, settings.batch_rounds)
        self._framing = Framing(rounds, len(settings.stream))
        self._newest = newest  # to be merged again, and compared
        self.last: Place = (newest.epoch, newest.round) if newest else (0, 0)
        self.whole = WholeRounds(shards, (newest.epoch, newest.round - 1) if newest else (0, 0))
        self._merger, self._encoder = RoundMerger(), PartEncoder()
        self._epochs = epochs
        self.merged = 0
        self.merged_last: ShardRelease | None = None

    def add(self, value: bytes | None, partition: int, offset: int) -> None:
        """Take a record of the topic of the shards; one that is no release of a shard is passed over.

        Raises `ShardsRefused`.
        """
        place = RecordPlace(self._settings.shard_releases, partition, offset)
        release = release_or_none(decode_shard_release, self._settings.stream, place, value)
        if release is not None and self._is_of_an_epoch(release):
            self.whole.add(release, partition, len(value or b""))
        elif release is not None:
            report(self._settings.stream, place)

    def _is_of_an_epoch(self, release: ShardRelease) -> bool:
        """Whether the release is one of an epoch that was opened; its shard waits for that before it releases."""
        if self._has(release):
            return True
        self._epochs.read_on()
        return self._has(release)

    def _has(self, release: ShardRelease) -> bool:
        return any(
            (each.epoch.number, each.epoch.nonce.hex()) == (release.epoch, release.nonce)
            for each in self._epochs.opened
        )

    def batches(self, ends: bool) -> Iterator[list[ReleasedPart]]:
        """The batches that have ended with the rounds that are complete and not released yet; take all of them.

        `ends`: the last one has, in any case.  Raises `ShardsRefused`.
        """
        for releases in self.whole.take():
            block, *beside = self._merger.joined(releases)
            [values] = self._encoder.encode(block, [releases[0].opening], *beside)
            newest, self._newest = self._newest, None
            if newest is not None and newest.epoch == releases[0].epoch:
                self._compare(values, newest)
            else:
                self.last = releases[0].place
                self.merged, self.merged_last = self.merged + 1, releases[0]
                parts = [ReleasedPart(releases[0].round, part, value) for part, value in enumerate(values, 1)]
                yield from self._framing.cut(parts, releases[0].round)
        if ends and self._framing.is_open:
            yield self._framing.rest()

    def _compare(self, values: Iterable[bytes], newest: WholeRelease) -> None:
        together = WholeReleases()
        wholes = [together.add(decode_release(value)) for value in values]
        again = wholes[-1]
        if again is None or msgspec.to_builtins(again) != msgspec.to_builtins(newest):
            raise ShardsRefused(
                f"the releases end with round {newest.round}, which the shards' releases do not reproduce: some of "
                "them were lost, or they or the releases were changed; nothing is sent"
            )


def _go_on(settings: Settings) -> tuple[_Rounds, list[int]]:
    """Where the releases topic ends, and from where on to read each partition of the shards' topic."""
    releases = ReleasesTopic(settings.kafka_address, settings.releases)
    try:
        newest = newest_release(releases)
    finally:
        releases.close()
    partitions = log.partitions_of(settings.kafka_address, settings.shard_releases)
    starts = []
    for partition in range(partitions):
        shard = ReleasesTopic(settings.kafka_address, settings.shard_releases, partition)
        try:
            starts.append(shard.offset_of((newest.epoch, newest.round)) if newest else shard.first)
        finally:
            shard.close()
    return _Rounds(settings, partitions, newest, EpochJournal(settings)), starts
