"""A process that works for shards: a member of one Kafka consumer group, which divides the shards among its members.

Kafka decides who owns which partition of the frames topic, and so which shard.  The fence in Redis makes that safe: a
member that slept finds it changed, and gives the shard up.  What a shard releases does not depend on who owns it.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from functools import partial

from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError
from redis import Redis

from stream_dp.config.connections import aiokafka_options, redis_client
from stream_dp.config.settings import Settings
from stream_dp.kafka import roles
from stream_dp.kafka.clients import kept_clients
from stream_dp.kafka.consuming import consumer
from stream_dp.operations.ports import Ports
from stream_dp.operations.retry import OUTAGES, retry_until_done
from stream_dp.operations.watch import Watch
from stream_dp.privacy.keyed_noise import check_golden_draw
from stream_dp.sinks.sending import InFlight, producer, stop_client, stop_producer
from stream_dp.store.fence import Fenced
from stream_dp.workers.group import ends_of, membership, require_shards
from stream_dp.workers.holdings import Holdings
from stream_dp.workers.owned_shard import OwnedShard
from stream_dp.workers.stream_topics import prepare_topics_of_shards
from stream_dp.workers.topic_watch import TopicWatch

logger = logging.getLogger(__name__)

_POLL_MILLISECONDS = 200
_FRAMES_AT_ONCE = 64
_REDIS_SECONDS = 30.0
_OFFSET_SECONDS = 5.0
_CONFIRM_SECONDS = 2.0


class ShardWorker:
    """Works for the shards that the group gives to this process, until it is stopped or refused."""

    def __init__(self, settings: Settings) -> None:
        """Raises `SettingsError`; nothing is connected yet."""
        require_shards(settings)
        self.settings = settings
        self._stopping = asyncio.Event()
        aiokafka_options(settings.kafka_address)
        self._redis = redis_client(settings.redis_address, socket_timeout=_REDIS_SECONDS)
        self.watch = Watch(settings.stream, settings.data_source)
        self._ports = Ports(settings, self.watch)

    def stop(self) -> None:
        """Ask `run` to checkpoint what has been sent and to return."""
        self._stopping.set()

    async def run(self) -> None:
        """Work until `stop`.  An outage of Kafka or Redis is waited out; raises a `Refused`."""
        check_golden_draw()
        with self._ports, kept_clients():
            needed = partial(roles.shard, self.settings)
            await retry_until_done(
                self._attempt, lambda: False, self._stopping, self.settings, needed, self.watch
            )

    async def _attempt(self) -> None:
        topics = TopicWatch(self.settings, "frames", "shard_releases", "epochs")
        topics.for_readers(self.settings.epochs)
        await topics.guard(self._work(topics), self.watch)

    async def _work(self, topics: TopicWatch) -> None:
        await asyncio.to_thread(prepare_topics_of_shards, self.settings)
        await asyncio.to_thread(topics.look)
        async with _Member(self.settings, self._redis, self.watch, topics) as member:
            try:
                while not self._stopping.is_set():
                    await member.step()
            finally:
                self.watch.ended()
            await member.save()


class _Member(ConsumerRebalanceListener):
    """One connection to the group; an outage ends it and the next one starts from Redis again."""

    def __init__(self, settings: Settings, redis: Redis, watch: Watch, topics: TopicWatch) -> None:
        self._settings, self._redis, self._watch, self._topics = settings, redis, watch, topics
        self._shards = Holdings[OwnedShard](settings.stream, "shard", self._give_up)
        self._confirmed = time.monotonic()
        self._consumer = consumer(
            settings.kafka_address,
            **membership(settings, "shards"),
            auto_offset_reset="earliest",  # where to go on is decided by Redis, and what fits by the frames themselves
            partition_assignment_strategy=(StickyPartitionAssignor,),
        )
        self._producer = producer(settings.kafka_address, settings.compression)

    async def __aenter__(self) -> "_Member":
        try:
            await self._producer.start()
            self._consumer.subscribe([self._settings.frames], listener=self)
            with self._watch.progress.waiting("group-assignment"):
                await self._consumer.start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, why: type[BaseException] | None = None, *_: object) -> None:
        for shard in self._shards.values():
            shard.drop()
        await stop_client(self._consumer.stop(), self._consumer._client)
        await stop_producer(self._producer, why)

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """The group is about to divide the shards anew: save all, so that whoever gets them can go on."""
        async with self._shards.lock:
            for number, shard in self._shards.let_go():
                try:
                    await self._save(shard)
                except (Fenced, *OUTAGES) as lost:
                    logger.info("shard %d goes without a checkpoint: %s", number, lost)
                    shard.drop()
                    self._shards.forget(number)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Read nothing of a shard before it is taken over."""
        places = list(assigned)
        self._consumer.pause(*places)
        self._shards.assigned(place.partition for place in places)

    async def step(self) -> None:
        """Take over what was assigned, and count the next frames.  Raises a `Refused`."""
        self._watch.beat()
        await self._shards.open_due(self._opened, self._watch.progress)
        with self._watch.progress.waiting(
            "group-assignment"
        ):  # while the group divides the shards, it gives nothing
            found = await self._consumer.getmany(timeout_ms=_POLL_MILLISECONDS, max_records=_FRAMES_AT_ONCE)
        async with self._shards.lock:
            for place, records in found.items():
                shard = self._shards.get(place.partition)
                if shard is not None:
                    frames = [(record.offset, record.value) for record in records]
                    before = shard.released
                    with self._watch.batch():
                        log_end = self._consumer.last_stable_offset(place) or 0
                        await self._shards.guarded(place.partition, shard.take(frames, log_end))
                    self._watch.facts.releases += shard.released - before
            for number, shard in self._shards.items():
                if shard.is_written:
                    await self._shards.guarded(number, self._finish(shard))
                elif shard.checkpoint_due:
                    await self._shards.guarded(number, shard.begin_checkpoint())
        await self._confirm()
        self._tell()

    async def save(self) -> None:
        """Save all shards, before this process leaves the group."""
        async with self._shards.lock:
            for number, shard in self._shards.items():
                await self._shards.guarded(number, self._save(shard))

    async def _opened(self, number: int, kept: OwnedShard | None) -> OwnedShard:
        """Take the shard over, unless it is still in memory, and read on where it stands."""
        shard = kept
        if shard is None:
            sent = InFlight(self._producer, self._settings.kafka, self._watch)
            place = self._settings, self._redis, number, sent
            shard = await asyncio.to_thread(OwnedShard, *place, self._topics.identities)
        frames = TopicPartition(self._settings.frames, number)
        self._consumer.seek(frames, shard.next_offset)
        self._consumer.resume(frames)
        logger.info("stream %s: shard %d, round %d", self._settings.stream, number, shard.round)
        return shard

    def _give_up(self, number: int, shard: OwnedShard) -> None:
        shard.drop()
        self._consumer.pause(TopicPartition(self._settings.frames, number))

    async def _save(self, shard: OwnedShard) -> None:
        await shard.begin_checkpoint()
        await self._finish(shard)

    async def _finish(self, shard: OwnedShard) -> None:
        """Wait for the shard's checkpoint, then tell Kafka how far it is, which only monitors read."""
        seconds = await shard.finish_checkpoint()
        if seconds is None:
            return
        self._watch.checkpointed(shard.round, sum(each.labels for each in self._shards.values()), seconds)
        try:
            place = TopicPartition(self._settings.frames, shard.number)
            await asyncio.wait_for(self._consumer.commit({place: shard.saved_offset}), _OFFSET_SECONDS)
        except (KafkaError, TimeoutError) as error:
            logger.info(
                "the group's offset, which only monitors read, was not committed: %s", type(error).__name__
            )

    async def _confirm(self) -> None:
        """Now and then, ask Redis who holds the shards and Kafka whether it is there."""
        if time.monotonic() - self._confirmed < _CONFIRM_SECONDS:
            return
        async with self._shards.lock:
            await self._shards.check_holds(self._watch.progress)
        numbers = 0, *(number for number, _ in self._shards.items())
        places = {number: TopicPartition(self._settings.frames, number) for number in numbers}
        ends = await ends_of(self._consumer, places.values())
        self._watch.answered(ends is not None)
        if ends is not None:
            mine = self._shards.items()
            self._watch.progress.input(
                any(
                    ends[place] > shard.next_offset for number, shard in mine if (place := places.get(number))
                )
            )
        self._confirmed = time.monotonic()

    def _tell(self) -> None:
        """Say how far the slowest shard is."""
        counting = [each.shard for each in self._shards.values() if each.shard is not None]
        if counting:
            slowest = min(counting, key=lambda shard: (shard.epoch.number, shard.round))
            if self._watch.facts.epoch != slowest.epoch.number:
                self._watch.began(slowest)
            self._watch.counted(slowest.round, sum(map(self._lag, self._shards.values())))

    def _lag(self, shard: OwnedShard) -> int:
        """How many frames are known to wait."""
        end = self._consumer.highwater(TopicPartition(self._settings.frames, shard.number))
        return max(0, (end or 0) - shard.next_offset)
