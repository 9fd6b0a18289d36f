"""A process that reads events, or what another engine counted of them: a member of one Kafka consumer group.

The group divides the partitions among its members.

It follows the barriers, decodes, maps and bounds the events of its partitions, and writes for each barrier and
partition a frame to each shard; when the broker has them, a head.  The worker seals the round when all heads are there.

A member stays at most `ROUNDS_AHEAD` rounds before the last one that is sealed, so that what waits for a partition that
is slow or away stays small.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from functools import partial
from itertools import chain

from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import IllegalStateError, KafkaError, OffsetOutOfRangeError
from redis import Redis

from stream_dp.barriers.key import barrier_key
from stream_dp.config.connections import aiokafka_options, redis_client
from stream_dp.config.settings import Settings, SettingsError
from stream_dp.epochs.journal import EpochJournal, EpochOpened, check_key
from stream_dp.events.mapping.schema import HEADER_BYTES
from stream_dp.events.schema_book import SchemaBook
from stream_dp.kafka import log, roles
from stream_dp.kafka.clients import kept_clients
from stream_dp.kafka.consuming import batch_consumer
from stream_dp.operations.ports import Ports
from stream_dp.operations.retry import OUTAGES, retry_until_done
from stream_dp.operations.watch import Watch
from stream_dp.pipeline.partition_frames import encode
from stream_dp.pipeline.partition_intake import PartOfRound
from stream_dp.privacy.keyed_noise import check_golden_draw
from stream_dp.sinks.dead_letters import DeadLetters, prepare_dead_letters
from stream_dp.sinks.seals import HEADS_OF_MEMBERS
from stream_dp.sinks.sending import Addressed, InFlight, batches, producer, stop_client, stop_producer
from stream_dp.store.noise_key import noise_key
from stream_dp.workers import stream_topics
from stream_dp.workers.barrier_feed import BarrierFeed
from stream_dp.workers.group import ends_of, membership
from stream_dp.workers.holdings import Holdings
from stream_dp.workers.owned_partition import OwnedPartition, take_over
from stream_dp.workers.schemas import SchemaSettler, settler_of
from stream_dp.workers.topic_watch import TopicWatch

logger = logging.getLogger(__name__)

ROUNDS_AHEAD = 16
"""So many rounds a member may be before the last one that is sealed."""

_POLL_MILLISECONDS, _BARRIERS_AHEAD = 50, 1_000
_REDIS_SECONDS = 30.0
_OFFSET_SECONDS, _CONFIRM_SECONDS = 5.0, 2.0


class IntakeWorker:
    """Reads the partitions that the group gives to this process, until it is stopped or refused."""

    def __init__(self, settings: Settings) -> None:
        """Raises `SettingsError`; nothing is connected yet."""
        if not settings.is_divided:
            raise SettingsError(
                'the stream\'s worker reads all events itself: set intake = "group", for the worker too, or "counts" '
                "if another engine counts them"
            )
        self.settings = settings
        self._stopping = asyncio.Event()
        aiokafka_options(settings.kafka_address)
        self._redis = redis_client(settings.redis_address, socket_timeout=_REDIS_SECONDS)
        self.watch = Watch(settings.stream, settings.data_source)
        self._ports = Ports(settings, self.watch)
        self._letters = DeadLetters(settings, self.watch)

    def stop(self) -> None:
        """Ask `run` to save what has been sent and to return."""
        self._stopping.set()

    async def run(self) -> None:
        """Work until `stop`.  An outage of Kafka or Redis is waited out; raises a `Refused`."""
        check_golden_draw()
        with self._ports, kept_clients():
            async with self._letters:
                needed = partial(roles.intake, self.settings)
                await retry_until_done(
                    self._attempt, lambda: False, self._stopping, self.settings, needed, self.watch
                )

    async def _attempt(self) -> None:
        mapping = self.settings.mapping
        counts = self.settings.intake == "counts"
        schemas = ("schemas",) if mapping is not None and mapping.names_schemas and not counts else ()
        ours = "barriers", "epochs", "frames", "heads", *schemas, "dead_letters"
        topics = TopicWatch(self.settings, "counts" if counts else "events", *ours)
        topics.may_grow(self.settings.read_by_members)
        topics.for_readers(self.settings.epochs)
        try:
            await topics.guard(self._work(topics), self.watch)
        except OffsetOutOfRangeError as lost:
            [place] = lost.args[0]
            raise log.LogRefused(
                f"the topic {place.topic!r} no longer holds the next record of partition {place.partition}: it was "
                "truncated or re-created; restore it, or open a new epoch, which is charged, with --new-epoch"
            ) from None

    async def _work(self, topics: TopicWatch) -> None:
        await asyncio.to_thread(self._prepare_topics)
        await asyncio.to_thread(topics.look)
        beside = self._letters, self.watch, topics, self._stopping
        async with _Member(self.settings, self._redis, *beside) as member:
            try:
                while not self._stopping.is_set():
                    await member.step()
            finally:
                self.watch.ended()
            await member.save()

    def _prepare_topics(self) -> None:
        stream_topics.prepare_topics_of_shards(self.settings)
        stream_topics.prepare_topics_of_group(self.settings)
        if self.settings.intake == "counts":
            stream_topics.prepare_counts_topic(self.settings)
        prepare_dead_letters(self.settings)


class _Member(ConsumerRebalanceListener):
    """One connection to the group; an outage ends it and the next one starts from Redis again."""

    def __init__(
        self,
        settings: Settings,
        redis: Redis,
        letters: DeadLetters,
        watch: Watch,
        topics: TopicWatch,
        stopping: asyncio.Event,
    ) -> None:
        self._settings, self._redis, self._watch, self._topics = settings, redis, watch, topics
        self._letters, self._stopping = letters, stopping
        self._epoch: EpochOpened | None = None  # the one that is counted; None while none is open
        self._journal: EpochJournal | None = None
        self._key = b""
        self._schemas: SchemaBook | None = None
        self._settler: SchemaSettler | None = None
        self._named: set[bytes] = set()  # the first bytes of records whose schemas are perhaps unsettled
        self._owned = Holdings[OwnedPartition](settings.stream, "partition", self._give_up)
        self._confirmed = 0.0
        self._feed = BarrierFeed(settings)
        self._consumer = batch_consumer(
            settings.kafka_address,
            **membership(settings, "intake"),
            auto_offset_reset="none",
            partition_assignment_strategy=(StickyPartitionAssignor,),
        )
        self._producer = producer(settings.kafka_address, settings.compression)
        self._sent = InFlight(self._producer, settings.kafka, watch)

    async def __aenter__(self) -> "_Member":
        try:
            await self._producer.start()
            await self._feed.reader.start()
            self._consumer.subscribe([self._settings.read_by_members], listener=self)
            with self._watch.progress.waiting("group-assignment"):
                await self._consumer.start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, why: type[BaseException] | None = None, *_: object) -> None:
        self._sent.drop()
        if self._settler is not None:
            self._settler.close()
        for reader in (self._consumer, self._feed.reader):
            await stop_client(reader.stop(), reader._client)
        await stop_producer(self._producer, why)

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """The group is about to divide the partitions anew: save all, so that whoever gets them can go on."""
        async with self._owned.lock:
            try:
                await self._save()
            except OUTAGES as lost:
                logger.info("partitions go without a checkpoint: %s", lost)
            self._owned.let_go()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Read nothing of a partition before it is taken over."""
        places = list(assigned)
        self._consumer.pause(*places)
        for place in places:
            self._consumer.seek(place, 0)  # where to go on is decided by Redis
        self._owned.assigned(place.partition for place in places)

    async def step(self) -> None:
        """Take over what was assigned, and count what has come.  Raises a `Refused`."""
        self._watch.beat()
        await self._confirm()
        if self._epoch is not None:
            await self._owned.open_due(partial(self._opened, self._epoch), self._watch.progress)
        await self._read()
        most = self._most if await self._all_settled() else 0
        async with self._owned.lock:
            if parts := [part for each in self._owned.values() for part in each.close(most)]:
                with self._watch.batch():
                    await self._hand_on(parts)
            if any(each.checkpoint_due for each in self._owned.values()):
                await self._save()
        self._tell()

    @property
    def _most(self) -> int:
        """The last barrier of the epoch that may close its round now."""
        return self._feed.sealed + ROUNDS_AHEAD

    async def _read(self) -> None:
        """Take in barriers and events; waits a little where nothing comes."""
        waiting = max((each.waiting_barriers for each in self._owned.values()), default=0)
        wanted: dict[TopicPartition, int] = {}
        reading: dict[TopicPartition, OwnedPartition] = {}
        for number, each in self._owned.items():
            if not each.intake.finished and (end := each.wanted(self._most)) > each.reached:
                place = self._place(number)
                wanted[place], reading[place] = end, each
        pause = 0 if reading else _POLL_MILLISECONDS
        barriers = await self._feed.read(pause, bool(self._owned) and waiting < _BARRIERS_AHEAD)
        headers = self._epoch is not None and self._epoch.epoch.reads_headers
        found = await self._consumer.records_up_to(wanted, _POLL_MILLISECONDS, headers)
        reached = await self._positions(reading)
        async with self._owned.lock:
            for barrier in barriers:
                for each in self._owned.values():
                    each.add_barrier(barrier)
            for place, position in reached.items():
                if self._owned.get(place.partition) is reading[place]:
                    records = found.get(place, ())
                    reading[place].add(records, position)
                    if self._settler is not None:
                        values = chain.from_iterable(each.values for each in records)
                        self._named |= {value[:HEADER_BYTES] for value in values if value}

    async def _all_settled(self) -> bool:
        """Whether all schemas that records name are settled; if not, a little time has passed."""
        if self._settler is None:
            return True
        named = set(self._named)
        settled = await self._settler.settle(named)
        if settled:
            self._named -= named
        else:  # by now, another member may know what this one cannot be told
            await asyncio.to_thread(self._settler.begin)
        return settled

    async def _positions(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where to read on; none of any if the group takes one away just now."""
        try:
            return {place: await self._consumer.position(place) for place in places}
        except IllegalStateError:
            return {}

    def _place(self, number: int) -> TopicPartition:
        return TopicPartition(self._settings.read_by_members, number)

    async def _hand_on(self, parts: list[PartOfRound]) -> None:
        """Send the frames and, when the broker has all of them, the heads."""
        settings = self._settings
        by_shard: dict[int, list[bytes]] = {}
        for part in parts:
            for frame in part.frames:
                by_shard.setdefault(frame.shard, []).append(encode(frame))
        for shard, values in by_shard.items():
            key = f"{settings.stream}/{shard}".encode()
            for batch in batches(self._producer, key, values):
                await self._sent.send(Addressed(settings.frames, shard, batch))
        await self._sent.settle()
        heads = [encode(part.head) for part in parts]
        for batch in batches(self._producer, settings.stream.encode(), heads):
            await self._sent.send(Addressed(settings.heads, HEADS_OF_MEMBERS, batch))
        await self._letters.put(letter for part in parts for letter in part.dead_letters)
        self._watch.operator.records.inc(sum(part.records for part in parts))

    async def save(self) -> None:
        """Save all partitions, before this process leaves the group."""
        async with self._owned.lock:
            await self._save()

    async def _save(self) -> None:
        """Write the state of all partitions that have counted something, when the broker has what they sent."""
        await self._sent.settle()
        await self._letters.written()
        began = time.monotonic()
        for number, each in self._owned.items():
            if not each.is_saved:
                await self._owned.guarded(number, asyncio.to_thread(_save, each))
        if not self._owned:
            return
        rounds = min(each.intake.round for each in self._owned.values())
        self._watch.checkpointed(rounds, 0, time.monotonic() - began)
        counted = {self._place(number): each.counted for number, each in self._owned.items()}
        try:
            await asyncio.wait_for(self._consumer.commit(counted), _OFFSET_SECONDS)
        except (KafkaError, TimeoutError) as error:
            logger.info("the group's offsets, which only monitors read, were not committed: %r", error)

    async def _opened(self, opened: EpochOpened, number: int, kept: OwnedPartition | None) -> OwnedPartition:
        """Take the partition over, unless it is still in memory, and read on where it stands."""
        owned = kept
        if owned is None:
            place = self._settings, self._redis, number, opened, self._key, self._schemas
            owned = await asyncio.to_thread(take_over, *place, self._topics.identities)
        self._consumer.seek(self._place(number), owned.reached)
        self._consumer.resume(self._place(number))
        last = (each.last_barrier for each in (*self._owned.values(), owned))
        least = min(last, key=lambda each: each.number)
        await self._feed.begin(opened.epoch.nonce, barrier_key(self._key), least)
        logger.info("stream %s: partition %d, round %d", self._settings.stream, number, owned.intake.round)
        return owned

    def _give_up(self, number: int, _: OwnedPartition) -> None:
        self._consumer.pause(self._place(number))

    async def _confirm(self) -> None:
        """Now and then, look for another epoch, and ask Redis who holds the partitions, and Kafka what is there."""
        if time.monotonic() - self._confirmed < _CONFIRM_SECONDS:
            return
        async with self._owned.lock:
            await self._follow_epochs()
            await self._owned.check_holds(self._watch.progress)
        places = [self._place(number) for number, _ in self._owned.items()] or [self._place(0)]
        ends = await ends_of(self._consumer, places)
        self._watch.answered(ends is not None)
        late = self._late
        held_up = any(each.waiting_barriers and not each.intake.finished for each in self._owned.values())
        cause = f"{self._settings.read_by_members} partition {late[0]}" if late else "seal"
        self._watch.progress.input(bool(late) or held_up, cause)
        self._confirmed = time.monotonic()

    @property
    def _late(self) -> list[int]:
        """The partitions that Kafka does not give, or not as far as the next barrier: nobody may lead them just now."""
        open_ones, most = self._owned.items(), self._most
        to_open = self._owned.to_open if self._epoch is not None else []
        return sorted([*to_open, *(number for number, each in open_ones if each.lacks_records(most))])

    async def _follow_epochs(self) -> None:
        """Begin with the epoch that is open, where it is not the one that is counted."""
        settings = self._settings
        find_key = partial(noise_key, settings.noise_key, self._redis, settings.stream, may_create=False)
        if self._journal is None:
            self._journal = await asyncio.to_thread(EpochJournal, settings, find_key)
        else:
            await asyncio.to_thread(self._journal.read_on)
        journal = self._journal
        last = journal.last
        if last is None or not journal.last_is_open or last.epoch.number not in journal.started:
            return  # the worker is about to open one
        if self._epoch is not None and last.epoch.nonce == self._epoch.epoch.nonce:
            return
        self._key = await asyncio.to_thread(find_key)
        check_key(last, self._key)
        last.epoch.check_settings(settings)
        if self._settler is not None:
            self._settler.close()
        self._schemas, self._named = SchemaBook(self._key, last.epoch.nonce), set()
        if settings.intake != "counts":  # the engine has read by schemas
            self._settler = settler_of(settings, last.epoch, self._schemas, self._watch, self._stopping)
        if self._settler is not None:
            await asyncio.to_thread(self._settler.begin)
        self._epoch = last
        self._consumer.pause(*(self._place(number) for number, _ in self._owned.items()))
        self._owned.begin_again()
        logger.info("stream %s: epoch %d", settings.stream, last.epoch.number)

    def _tell(self) -> None:
        """Say how far the slowest partition is, and how many records wait in each."""
        lag, stream = 0, self._settings.stream
        self._watch.operator.partition_lag.clear()
        for number, each in self._owned.items():
            waits = max(0, (self._consumer.highwater(self._place(number)) or 0) - each.counted)
            self._watch.operator.partition_lag.labels(stream, str(number)).set(waits)
            lag += waits
        if self._owned:
            slowest = min((each.intake for each in self._owned.values()), key=lambda each: each.passed)
            if self._watch.facts.epoch != slowest.epoch.number:
                self._watch.began(slowest)
            self._watch.counted(slowest.round, lag)
            barriers = max(each.waiting_barriers for each in self._owned.values())
            self._watch.operator.lag_barriers.set(barriers + self._feed.lag)


def _save(partition: OwnedPartition) -> None:
    partition.commit(partition.prepare())
