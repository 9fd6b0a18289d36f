"""Copies a topic into one where all records of a user stand in one partition, each record exactly once.

Every record is copied, events or not: whoever reads the copy decides what counts.  Where a user's records go is
computed from the user that the mapping finds (user_partitions.py); a record that is nobody's stays in the partition
whose number it came from.  Where records name the schemas of a registry, no record is copied before its schema is
known, or known not to be there.

Records, and how far the source has been copied, are written in one transaction of Kafka.  A process that is killed
leaves a transaction that is aborted, one that slept finds itself fenced off, and neither writes anything twice.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError, ProducerFenced, TransactionalIdAuthorizationFailed

from stream_dp.config.connections import aiokafka_options
from stream_dp.config.settings import Settings, SettingsError
from stream_dp.errors import Refused
from stream_dp.events.event import BadRecord
from stream_dp.events.mapping.decoder import decoder_of
from stream_dp.events.mapping.mapping import Mapping
from stream_dp.events.record import Record
from stream_dp.events.rounds import TICKS
from stream_dp.events.schema_book import SchemaBook
from stream_dp.events.user_partitions import partition_rule
from stream_dp.kafka import log, roles
from stream_dp.kafka.clients import kept_clients
from stream_dp.kafka.consuming import consumer
from stream_dp.kafka.rights import require_rights
from stream_dp.kafka.topic_metadata import METADATA_MILLISECONDS, make_no_topics
from stream_dp.operations.retry import retry_until_done
from stream_dp.operations.watch import Watch
from stream_dp.privacy.keyed_noise import KEY_BYTES, NONCE_BYTES
from stream_dp.sinks.sending import stop_client, stop_producer
from stream_dp.workers.schemas import SchemaSettler, SchemasInMemory

logger = logging.getLogger(__name__)

SOURCE_HEADER = "stream-dp-source"
"""The header of a copy: the partition and the offset of the record that it is a copy of, as in `7:4711`."""

_POLL_MILLISECONDS = 200
_RECORDS_AT_ONCE = 5_000
_LOOK_SECONDS = 5.0

_Rule = Callable[[str], int | None]


class RekeyRefused(Refused):
    """The topic cannot be copied; the message says why, and what to do."""


class Copied(msgspec.Struct, frozen=True):
    """How far a source has been copied: the next offset of each partition; the copy has so many `partitions`."""

    source: str
    offsets: list[int]
    partitions: int


class Rekeyer:
    """Copies the data source of a stream into its events topic, until it is stopped or refused."""

    def __init__(self, settings: Settings) -> None:
        """Raises `SettingsError`; nothing is connected yet."""
        section = settings.mapping
        if (
            settings.unit != "user"
            or section is None
            or section.partitioner is None
            or settings.rounds != TICKS
        ):
            raise SettingsError(
                'a topic is copied for streams that a group reads by user: set unit = "user", rounds = "ticks" and, '
                'in [events], partitioner = "murmur2"'
            )
        if settings.data_source == settings.events:
            raise SettingsError(
                f'the copy is the events topic, {settings.events!r}: set source = "..." to the topic that is to be '
                "copied, whose budget the stream then spends"
            )
        self.settings = settings
        self.watch = Watch(settings.stream, settings.data_source)
        self._section, self._rule = section, section.partitioner
        self._stopping = asyncio.Event()
        schemas = SchemaBook(bytes(KEY_BYTES), bytes(NONCE_BYTES))
        self._decode = decoder_of(Mapping.of(section), schemas.schema)
        self._settler = (
            SchemaSettler(SchemasInMemory(schemas), section, schemas, self.watch, self._stopping)
            if section.names_schemas
            else None
        )

    def stop(self) -> None:
        """Ask `run` to finish what it has begun to copy, and to return."""
        self._stopping.set()

    async def run(self) -> None:
        """Copy until `stop`.  An outage of Kafka is waited out; raises a `Refused`."""
        with kept_clients():
            needed = partial(roles.rekey, self.settings)
            try:
                await retry_until_done(
                    self._attempt, lambda: False, self._stopping, self.settings, needed, self.watch
                )
            finally:
                if self._settler is not None:
                    self._settler.close()

    async def _attempt(self) -> None:
        settings = self.settings
        partitions = await asyncio.to_thread(self._look)
        producer = AIOKafkaProducer(
            **aiokafka_options(settings.kafka_address),
            transactional_id=roles.rekey_id(settings),
            compression_type=None if settings.compression == "none" else settings.compression,
            metadata_max_age_ms=METADATA_MILLISECONDS,
        )
        make_no_topics(producer.client)
        reader = consumer(settings.kafka_address, auto_offset_reset="none")
        try:
            await producer.start()  # from here on, nobody who began before writes anything
            copied = await asyncio.to_thread(self._copied_by_now, partitions)
            await reader.start()
            await self._copy_on(producer, reader, copied)
        except ProducerFenced:
            raise RekeyRefused(
                f"another `stream-dp rekey` of the stream {settings.stream!r} has taken over, or this one slept in the "
                "middle of its work: only one can copy; start it again if no other one runs"
            ) from None
        except TransactionalIdAuthorizationFailed:
            raise RekeyRefused(
                f"Kafka lets this user begin no transaction as {roles.rekey_id(settings)}: give it the right WRITE "
                "on that transactional id (`stream-dp check --rights` lists the command); the broker of "
                "`stream-dp dev up` has no transactions, so use Apache Kafka"
            ) from None
        except OffsetOutOfRangeError as lost:
            [place] = lost.args[0]
            raise RekeyRefused(
                f"the topic {place.topic!r} no longer holds the next record of partition {place.partition}: it was "
                "truncated, re-created, or its retention has passed; restore it, or copy into a new topic for a new "
                "stream"
            ) from None
        finally:
            await stop_client(reader.stop(), reader._client)
            await stop_producer(producer)

    def _look(self) -> int:
        """Make sure of all that can be known before another process is fenced off; returns the copy's partitions."""
        settings, kafka = self.settings, self.settings.kafka_address
        require_rights(kafka, roles.rekey(settings))
        if not log.existing(kafka, settings.data_source):
            raise RekeyRefused(
                f"there is no topic {settings.data_source!r}: set source to the one that is to be copied"
            )
        if settings.create_topics:
            log.create_topics(
                kafka, settings.events, partitions=log.partitions_of(kafka, settings.data_source)
            )
            log.create_topics(kafka, settings.rekeyed)
        partitions = log.partitions_of(kafka, settings.events)
        self._copied_by_now(partitions)
        return partitions

    def _copied_by_now(self, partitions: int) -> Copied:
        """Where to go on.  Raises `RekeyRefused` where nothing tells, or another topic was copied."""
        settings, kafka = self.settings, self.settings.kafka_address
        sources = log.partitions_of(kafka, settings.data_source)
        last = self._last_told()
        if last is None:
            if (
                self._holds_copies() and self._last_told() is None
            ):  # nobody has copied the first ones meanwhile
                raise RekeyRefused(
                    f"the topic {settings.events!r} holds records, and {settings.rekeyed!r} does not say how far "
                    f"{settings.data_source!r} was copied: restore it, or copy into a new topic for a new stream"
                )
            return Copied(settings.data_source, [0] * sources, partitions)
        try:
            copied = msgspec.json.decode(last, type=Copied)
        except (msgspec.DecodeError, UnicodeError):
            raise RekeyRefused(
                f"the topic {settings.rekeyed!r} ends with a record that is not about this copy: another "
                "producer wrote to this topic"
            ) from None
        if (copied.source, copied.partitions) != (settings.data_source, partitions):
            raise RekeyRefused(
                f"{settings.events!r} is a copy of {copied.source!r} in {log.partitions_text(copied.partitions)}, and "
                f"now {settings.data_source!r} is to be copied into {partitions}: copy into a new topic for a new "
                "stream"
            )
        added = [0] * (sources - len(copied.offsets))
        return msgspec.structs.replace(copied, offsets=[*copied.offsets, *added])

    def _holds_copies(self) -> bool:
        """Whether the copy holds a record that was committed; one that was aborted takes an offset alone."""
        kafka, topic = self.settings.kafka_address, self.settings.events
        return any(
            next(log.read(kafka, topic, held.first, held.end, number), None) is not None
            for number, held in enumerate(log.offsets_of_all(kafka, topic))
        )

    def _last_told(self) -> bytes | None:
        """The last record of the topic that tells how far it is; offsets are also taken by what was aborted."""
        kafka, topic = self.settings.kafka_address, self.settings.rekeyed
        held, span = log.offsets(kafka, topic), 1
        while span < held.end - held.first:
            span *= 16
            found = list(log.read(kafka, topic, max(held.first, held.end - span), held.end))
            if found:
                return found[-1].value
        return None

    async def _copy_on(self, producer: AIOKafkaProducer, reader: AIOKafkaConsumer, copied: Copied) -> None:
        """Copy until stopped, or until the source has got more partitions."""
        settings, offsets = self.settings, list(copied.offsets)
        rule = partition_rule(self._rule, copied.partitions, self._section.key_encoding)
        places = [TopicPartition(settings.data_source, number) for number in range(len(offsets))]
        reader.assign(places)
        for place in places:
            reader.seek(place, offsets[place.partition])
        logger.info(
            "stream %s: copying %s from offsets %s on", settings.stream, settings.data_source, offsets
        )
        looked = time.monotonic()
        while not self._stopping.is_set():
            self.watch.beat()
            found = await reader.getmany(timeout_ms=_POLL_MILLISECONDS, max_records=_RECORDS_AT_ONCE)
            records = [record for each in found.values() for record in each]
            if not await self._schemas_known(records):
                return
            if records:
                for place in found:
                    offsets[place.partition] = await reader.position(place)
                now = Copied(settings.data_source, offsets, copied.partitions)
                await self._copy(producer, records, rule, now)
            if time.monotonic() - looked >= _LOOK_SECONDS:
                if await asyncio.to_thread(
                    log.partitions_of, settings.kafka_address, settings.data_source
                ) != len(places):
                    return
                looked = time.monotonic()

    async def _schemas_known(self, records: Sequence[ConsumerRecord]) -> bool:
        """Wait until all schemas that the records name are known; false if that is not to be waited for any more."""
        if self._settler is None:
            return True
        values = [record.value for record in records]
        while not self._stopping.is_set():
            if await self._settler.settle(values):
                return True
            self.watch.beat()
        return False

    async def _copy(
        self, producer: AIOKafkaProducer, records: Sequence[ConsumerRecord], rule: _Rule, now: Copied
    ) -> None:
        """Copy these records in one transaction, with how far that is."""
        async with producer.transaction():
            answers = []
            for record in records:
                headers = [*record.headers, (SOURCE_HEADER, b"%d:%d" % (record.partition, record.offset))]
                key = (
                    b"" if record.key is None and record.value is None else record.key
                )  # no client sends neither
                place = {
                    "partition": self._partition(record, rule, now.partitions),
                    "timestamp_ms": record.timestamp,
                }
                answers.append(
                    await producer.send(self.settings.events, record.value, key, headers=headers, **place)
                )
            answers.append(await producer.send(self.settings.rekeyed, msgspec.json.encode(now), partition=0))
            await asyncio.gather(*answers)

    def _partition(self, record: ConsumerRecord, rule: _Rule, partitions: int) -> int:
        """Where the user's records stand; for a record that is nobody's, where its number says."""
        try:
            user = self._decode(Record.of(record)).user
        except BadRecord:
            user = None
        wanted = rule(user) if user is not None else None
        return record.partition % partitions if wanted is None else wanted
