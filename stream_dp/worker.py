"""The worker of one stream: records in, releases out, checkpoints to Redis.  The host around the pipeline.

The order is what makes it safe to die at any point: process a batch, send its releases and wait until the broker
has them, then (when due) checkpoint to Redis, then commit the offset to Kafka, which only monitors read.
After any start, what the releases topic holds beyond the checkpoint is computed again and compared before
anything is sent.
"""

import asyncio
import logging
import time

from aiokafka import TopicPartition
from aiokafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    UnsupportedCodecError,
)

from stream_dp.barriers.chain import BarrierChain
from stream_dp.barriers.merged_log import LogEntry
from stream_dp.barriers.process import BarrierProcess
from stream_dp.connections import aiokafka_options, redis_client
from stream_dp.consuming import consumer
from stream_dp.dead_letters import DeadLetters
from stream_dp.epoch import EpochRefused
from stream_dp.events_reader import EventsReader
from stream_dp.framing import records_left
from stream_dp.log import LogRefused
from stream_dp.operations.ports import Ports
from stream_dp.operations.watch import Watch
from stream_dp.patience import pause, persevere
from stream_dp.pipeline import Output, Position
from stream_dp.privacy.keyed_noise import WrongNoise, check_golden_draw
from stream_dp.record_batches import UnreadableBatch
from stream_dp.records import Record
from stream_dp.resume import NewEpoch, Resumed, another_log, open_next, resume
from stream_dp.sending import InFlight, producer, stop_client, stop_producer
from stream_dp.settings import Settings, SettingsError
from stream_dp.shards.frames import FrameRefused
from stream_dp.shards.merge import ShardsRefused
from stream_dp.standby import await_turn
from stream_dp.store.checkpoints import (
    CheckpointStore,
    Fenced,
    PreparedCheckpoint,
    StateDamaged,
    Superseded,
)
from stream_dp.store.lease import LEASE_SECONDS, Lease
from stream_dp.store.ledger import LedgerRefused
from stream_dp.store.noise_key import NoKey
from stream_dp.topic_watch import TopicWatch

logger = logging.getLogger(__name__)

REFUSALS = (
    EpochRefused,
    Fenced,
    FrameRefused,
    LedgerRefused,
    LogRefused,
    NoKey,
    SettingsError,
    ShardsRefused,
    StateDamaged,
    UnreadableBatch,
    WrongNoise,
)
"""Why a worker does not go on: doing so would break the promise.  Their messages say what to change."""

_TOPICS = ("events", "barriers", "releases", "epochs", "ledger", "dead_letters")
_REDIS_SECONDS = 30.0
_LONGEST_SILENCE_SECONDS = 30.0
_OFFSET_SECONDS = 5.0
_CONFIRM_SECONDS = 2.0
_CONFIRM_ANSWER_SECONDS = 3.0


class Worker:
    """Runs one stream until it is stopped, refused, or at a horizon where the settings say stop."""

    def __init__(self, settings: Settings, new_epoch: NewEpoch | None = None, standby: bool = False) -> None:
        """`standby`: wait until no other worker lives that holds the stream, instead of taking it over.

        Raises `SettingsError` for an address, credentials or a port that cannot be; nothing is connected yet.
        """
        self.settings = settings
        self._standby, self._has_turn = standby, False
        self._new_epoch = new_epoch
        self.rounds = 0
        self.finished = False
        self._stopping = asyncio.Event()
        aiokafka_options(settings.kafka_address)
        self._redis = redis_client(settings.redis_address, socket_timeout=_REDIS_SECONDS)
        self._store = CheckpointStore(self._redis, settings.stream)
        self._lease = Lease(self._redis, settings.stream)
        self.watch = Watch(settings.stream, settings.data_source)
        self._ports = Ports(settings, self.watch)
        self._barriers = BarrierProcess(settings)
        self._letters = DeadLetters(settings, self.watch)

    def stop(self) -> None:
        """Ask `run` to checkpoint what has been sent and to return."""
        self._stopping.set()

    async def run(self) -> None:
        """Work until `stop` or the end.  An outage of Kafka or Redis is waited out; raises one of `REFUSALS`."""
        check_golden_draw()
        with self._ports, self._lease:
            async with self._letters:
                while not await self._has_run():
                    await self._step_back()

    async def _has_run(self) -> bool:
        """Whether the work is done; if not, another worker took the stream over and this one is to stand by."""
        try:
            with self._barriers:
                await persevere(
                    self._attempt, lambda: self.finished, self._stopping, self.settings, self.watch
                )
        except Superseded as taken:
            if not self._standby or self._stopping.is_set():
                raise
            logger.warning("stream %s: %s and stands by", self.settings.stream, taken)
            return False
        return True

    async def _take_turn(self) -> None:
        """Take the stream over from whoever has it or, standing by, once nobody who lives has it."""
        if self._standby:
            await await_turn(self._lease, self.settings, self._stopping, self.watch)
        else:
            await asyncio.to_thread(self._lease.seize)
        self._has_turn = not self._stopping.is_set()

    async def _step_back(self) -> None:
        """Hold nothing, and give whoever took over the time to show that it lives."""
        self._has_turn = False
        await asyncio.to_thread(self._lease.release)
        self._store = CheckpointStore(self._redis, self.settings.stream)
        await pause(self._stopping, LEASE_SECONDS)

    async def _attempt(self) -> None:
        if not self._has_turn:
            await self._take_turn()
        if self._stopping.is_set():
            return
        topics = TopicWatch(self.settings, *_TOPICS, *(("frames",) if self.settings.shards else ()))
        try:
            await topics.guard(self._resume_and_work(topics), self.watch)
        except OffsetOutOfRangeError as lost:
            [partition] = lost.args[0]
            raise LogRefused(
                f"the topic {partition.topic!r} no longer holds the next record to count: it was truncated or "
                "re-created; restore it, or open a new epoch, which is charged, with --new-epoch"
            ) from None
        except UnsupportedCodecError as codec:
            raise LogRefused(
                f"the topic {self.settings.events!r} holds records that cannot be read: {codec}"
            ) from None

    async def _resume_and_work(self, topics: TopicWatch) -> None:
        place = (self.settings, self._store, self._redis)
        with self.watch.progress.waiting("start"):
            resumed = await asyncio.to_thread(resume, *place, self._new_epoch, topics)
        if not resumed.closing:
            self._new_epoch = None  # it is open: an outage from here on must not open another one
        self.watch.beat()
        counted: Position | None = None
        try:
            beside = self._letters, self.watch, topics
            async with _Session(self.settings, self._store, resumed, *beside) as session:
                await session.catch_up()
                self.watch.began(session.pipeline)
                try:
                    await self._work(session, resumed)
                finally:
                    self.watch.ended()
            counted = resumed.pipeline.position
        except (EpochRefused, LogRefused, OffsetOutOfRangeError) as lost:
            if self._new_epoch is None:
                raise
            logger.warning("the old epoch cannot be counted to its end: %s", lost)
        if self._new_epoch is not None and not self._stopping.is_set():
            await asyncio.to_thread(open_next, *place, resumed.epochs, self._new_epoch, counted)
            self._new_epoch = None

    async def _work(self, session: "_Session", resumed: Resumed) -> None:
        """Count until stopped, at the horizon, or (where an epoch is to be closed) where the log ended at the start.

        Where the settings do not say stop, the next session begins with the next epoch.
        """
        pipeline, closing = session.pipeline, resumed.closing
        logger.info(
            "stream %s: epoch %d, round %d of %d",
            self.settings.stream,
            pipeline.epoch.number,
            pipeline.round,
            pipeline.epoch.mechanism.horizon,
        )
        writes_barriers = (
            pipeline.position.barrier is not None and not closing and self.settings.write_barriers
        )
        while not pipeline.finished:
            if closing and await session.caught_up():
                break
            if self._stopping.is_set() and not session.holds_back:
                break
            if writes_barriers:
                self._barriers.run(resumed.barrier_key)
            entries = await session.read()
            if entries or await session.ends_batch():
                with self.watch.batch():
                    await session.count(entries)
            elif self._stopping.is_set():
                break
            self.rounds = pipeline.round
            self.watch.counted(pipeline.round, session.lag)
            self.watch.open_round(session.open_records)
            if session.checkpoint_due:
                await session.begin_checkpoint()
            await session.check_checkpoint()
            await session.confirm()
            if self.watch.budget_due and self.settings.metrics_port:
                await asyncio.to_thread(self.watch.read_budget, self._redis, pipeline.position.next_offset)
        if pipeline.finished or (closing and await session.caught_up()):
            await session.count([], ends=True)
        if not session.holds_back:
            await session.begin_checkpoint()
        await session.finish_checkpoint()
        self.rounds = pipeline.round
        self.finished = pipeline.finished and not closing and self.settings.at_horizon == "stop"
        if self.finished:
            logger.warning(
                "the horizon of %d rounds is reached: nothing more is released; --new-epoch opens another epoch, "
                "which is charged",
                pipeline.round,
            )


class _Session:
    """One connection to Kafka from a checkpoint on; an outage ends it and the next one starts from Redis again."""

    def __init__(
        self,
        settings: Settings,
        store: CheckpointStore,
        resumed: Resumed,
        letters: DeadLetters,
        watch: Watch,
        topics: TopicWatch,
    ) -> None:
        self.pipeline = resumed.pipeline
        self._watch = watch
        self._confirmed = time.monotonic()
        self._settings = settings
        self._store = store
        self._resumed = resumed
        self._topics = topics
        self._outlet = resumed.outlet
        self._checkpointed = (self.pipeline.round, time.monotonic())
        self._writing: asyncio.Task[None] | None = None
        self._letters, self._awaits_letters = letters, False
        self._partition = TopicPartition(settings.events, 0)
        self._journal = TopicPartition(settings.epochs, 0)
        self._counted = self._last_counted()
        self._reader_of_counted = consumer(
            settings.kafka_address,
            auto_offset_reset="none",
            max_partition_fetch_bytes=1,  # one batch comes in any case
            fetch_max_wait_ms=1,
        )
        self._consumer = consumer(
            settings.kafka_address, group_id=f"{settings.stream}.running-histogram", auto_offset_reset="none"
        )
        barrier = self.pipeline.position.barrier
        self._reader = EventsReader(
            settings,
            self._consumer,
            self.pipeline.position,
            None if barrier is None else BarrierChain(resumed.barrier_key, settings.stream, barrier),
            resumed.ends,
            stop_there=resumed.closing,
        )
        self._producer = producer(settings.kafka_address, settings.compression)
        self._in_flight = InFlight(self._producer, settings.kafka, watch)

    async def __aenter__(self) -> "_Session":
        try:
            for client in (self._producer, self._consumer, self._reader_of_counted):
                await client.start()
        except BaseException:
            await self.__aexit__()
            raise
        self._reader.begin()
        self._reader_of_counted.assign([self._partition])
        self._reader_of_counted.pause(self._partition)
        return self

    async def __aexit__(self, why: type[BaseException] | None = None, *_: object) -> None:
        self._in_flight.drop()
        if self._writing is not None:  # a thread: it cannot be called off
            await asyncio.wait({self._writing})
        for reader in (self._consumer, self._reader_of_counted):
            await stop_client(reader.stop(), reader._client)
        await stop_producer(self._producer, why)

    async def read(self) -> list[LogEntry]:
        """What comes next in the log; nothing if that takes a while."""
        self._watch.beat()
        rounds, at_once = self.pipeline.epoch.privacy["rounds"], self._settings.batch_rounds
        open_records = self.pipeline.intake.open_records
        return await self._reader.read(records_left(rounds, at_once, self.pipeline.round, open_records))

    @property
    def holds_back(self) -> bool:
        """Whether something that was counted waits for the rest of its batch, and so may not be saved yet."""
        return self._outlet.holds_back

    async def ends_batch(self) -> bool:
        """Whether what is held back waits for nothing more, because the log ended here when the batch began."""
        return self.holds_back and await self._reader.at_segment_end()

    async def caught_up(self) -> bool:
        """Whether all that the log held at the start has been read."""
        return await self._reader.caught_up()

    @property
    def lag(self) -> int:
        """How many records are known to wait."""
        return self._reader.lag(self.pipeline.intake.next_offset)

    @property
    def open_records(self) -> int:
        """How many records the open round holds by now, all of them in memory."""
        return self.pipeline.intake.open_records + self._reader.held_back

    async def confirm(self) -> None:
        """Where nothing was sent for a while, ask Redis who holds the stream and Kafka whether it is there.

        A stream without events would otherwise not notice that it cannot go on.  Raises `Fenced`, `LogRefused`,
        `EpochRefused` where the epoch was closed meanwhile, or a `RedisError`; Kafka's clients reconnect by themselves,
        so its absence is only reported.
        """
        if not self._counted[1]:  # nothing was counted yet when this session began
            self._counted = self._last_counted()
        if time.monotonic() - self._confirmed < _CONFIRM_SECONDS:
            return
        with self._watch.progress.waiting("redis"):
            await asyncio.to_thread(self._store.check_hold)
        await self._check_log()
        try:
            asked = self._consumer.end_offsets([self._partition, self._journal])
            ends = await asyncio.wait_for(asked, _CONFIRM_ANSWER_SECONDS)
        except (KafkaError, TimeoutError):
            self._watch.answered(False)
        else:
            self._watch.answered(True)
            self._watch.progress.input(
                ends[self._partition] > self.pipeline.intake.next_offset,
                "barrier" if self._settings.rounds == "ticks" else None,
            )
            await self._check_open(ends[self._journal])
        self._confirmed = time.monotonic()

    async def _check_open(self, journal_end: int) -> None:
        """Raise `EpochRefused` if the epochs topic, which ends at `journal_end` by now, says that the epoch is closed.

        Nothing that it counted from there on would be charged.
        """
        journal, number = self._resumed.epochs.journal, self.pipeline.epoch.number
        if journal_end != journal.end:
            await asyncio.to_thread(journal.read_on)
        if number in journal.closed:
            raise EpochRefused(
                f"epoch {number} was closed at offset {journal.closed[number].end_offset} while it ran: open the next "
                "one, which is charged, with --new-epoch"
            )

    async def _check_log(self) -> None:
        """Raise `LogRefused` if what was counted when this was asked last is another record now.

        A topic that is made anew under a running worker, with more records, would otherwise just seem to go on.  No
        answer is no proof of that, and neither is a record that the topic's retention has removed.
        """
        offset, counted = self._counted
        if counted:
            reader = self._reader_of_counted
            reader.seek(self._partition, offset)
            reader.resume(self._partition)
            try:
                found = await reader.getmany(
                    self._partition, timeout_ms=int(_CONFIRM_ANSWER_SECONDS * 1000), max_records=1
                )
            except OffsetOutOfRangeError:
                first = await reader.beginning_offsets([self._partition])
                if first[self._partition] <= offset:
                    raise
            else:
                if self._partition not in found:
                    return
                [record] = found[self._partition]
                if self._resumed.digester.in_place(Record.of(record)) != counted:
                    raise another_log(self._settings, offset)
            finally:
                reader.pause(self._partition)
        self._counted = self._last_counted()

    def _last_counted(self) -> tuple[int, bytes]:
        """The offset of the last record that was counted, and its digest, which is empty where nothing was."""
        counted = self.pipeline.position.log
        return counted.last_offset or 0, counted.last

    async def catch_up(self) -> None:
        """Compute the rounds that were published after the checkpoint again, compare, and send what is missing.

        Raises `EpochRefused` at the first difference, with nothing sent.
        """
        missing = Output()
        while last := self._outlet.not_given_again:
            if await self.caught_up() or self.pipeline.finished:
                raise EpochRefused(
                    f"the releases go up to round {last}, which the events topic and the key do not give again: "
                    "the log or the releases were changed; nothing is sent"
                )
            entries = await self.read()
            if self._reader.silence > _LONGEST_SILENCE_SECONDS:
                raise KafkaTimeoutError(f"no records of {self._settings.events!r}, which holds more")
            output = self._outlet.missing(self.pipeline.process(entries))
            missing.releases += output.releases
            missing.frames += output.frames
            missing.dead_letters += output.dead_letters
        await asyncio.to_thread(self._store.check_hold)
        await self._send(missing, await self._reader.at_segment_end())

    async def count(self, entries: list[LogEntry], ends: bool = False) -> None:
        """Count what was read and send the batches of releases that have ended; `ends`: the last one has, in any case.

        Raises `Fenced`, with nothing sent, where that fails.
        A worker that slept finds out here that another one took over: what it can still send was read before that.
        Redis is asked after the log was read, and answers while it is counted.
        """
        holds = asyncio.get_running_loop().run_in_executor(None, self._store.check_hold)
        try:
            output = self.pipeline.process(entries)
        finally:
            await holds
        await self._send(output, ends or await self._reader.at_segment_end())

    async def _send(self, output: Output, ends: bool) -> None:
        """Hand batches to the producer; waits only while too many are unanswered.  `ends`: the open one has ended."""
        for batch in self._outlet.addressed(output, self.pipeline.round, ends, self._producer):
            await self._in_flight.send(batch)
        await self._letters.put(output.dead_letters)
        self._watch.sent(output)

    @property
    def checkpoint_due(self) -> bool:
        """Whether enough rounds or enough time has passed since the last checkpoint, and nothing is held back."""
        rounds, at = self._checkpointed
        new_rounds = self.pipeline.round - rounds
        if self.holds_back or self._awaits_letters:
            return False
        return new_rounds >= self._settings.checkpoint_rounds or (
            new_rounds > 0 and time.monotonic() - at >= self._settings.checkpoint_seconds
        )

    async def begin_checkpoint(self) -> None:
        """Wait until everything sent is in the broker, copy the state, and write it while work goes on."""
        await self.finish_checkpoint()
        await self._in_flight.settle()
        await self._check_log()
        await self._topics.still_same(self._watch)
        checkpoint = self._outlet.checkpoint(self.pipeline, self._resumed.key_check, self._in_flight)
        self._checkpointed = (checkpoint.state.round, time.monotonic())
        labels = len(checkpoint.state.labels)
        prepared = self._store.prepare(checkpoint)
        self._awaits_letters = True
        self._writing = asyncio.create_task(self._write(prepared, labels, checkpoint.position.next_offset))

    async def check_checkpoint(self) -> None:
        """Raise what has gone wrong with the checkpoint that was begun last, if that is known yet."""
        if self._writing is not None and self._writing.done():
            await self.finish_checkpoint()

    async def finish_checkpoint(self) -> None:
        """Wait until the checkpoint that was begun last is in Redis.  Raises `Fenced` or a `RedisError`."""
        writing, self._writing = self._writing, None
        if writing is not None:
            with self._watch.progress.waiting("redis"):
                await writing

    async def _write(self, prepared: PreparedCheckpoint, labels: int, next_offset: int) -> None:
        """Write the state to Redis, then commit the offset.

        After this the dead letters before it are never made again, so they are written first if they can be.
        """
        round_number = self._checkpointed[0]
        await self._letters.written()
        self._awaits_letters, began = False, time.monotonic()
        await asyncio.to_thread(self._store.commit, prepared)
        self._watch.checkpointed(round_number, labels, time.monotonic() - began)
        try:
            commit = self._consumer.commit({self._partition: next_offset})
            # Without a limit, aiokafka would wait for a missing broker for ever.
            await asyncio.wait_for(commit, _OFFSET_SECONDS)
        except (KafkaError, TimeoutError) as error:
            logger.info("the group's offset, which only monitors read, was not committed: %r", error)
