"""One connection of a worker to Kafka, from a checkpoint on: reads, counts, sends, and writes checkpoints beside that.

The order is what makes it safe to die at any point: count a batch and send its releases; when a checkpoint is due, wait
until the broker has them, and only then write the state to Redis.
"""

import asyncio
import logging
import time
from collections import deque

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, KafkaTimeoutError

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import EpochRefused
from stream_dp.engine.release_schedule import ReleaseSchedule
from stream_dp.errors import NotReady
from stream_dp.events.barrier_chain import BarrierChain
from stream_dp.events.merged_log import LogPart, one_by_one
from stream_dp.events.record import Record
from stream_dp.events.rounds import events_of
from stream_dp.kafka.consuming import batch_consumer
from stream_dp.operations.watch import Watch
from stream_dp.pipeline.pipeline import Output
from stream_dp.privacy.vector import Vector
from stream_dp.sinks.dead_letters import DeadLetters
from stream_dp.sinks.framing import first_ends, records_left
from stream_dp.sinks.sending import InFlight, producer, stop_client, stop_producer
from stream_dp.store.checkpoints import CheckpointStore, PreparedCheckpoint
from stream_dp.workers.counted_log import CountedLog
from stream_dp.workers.counts_reader import CountsReader
from stream_dp.workers.events_reader import EventsReader
from stream_dp.workers.resume import Resumed
from stream_dp.workers.schemas import SchemaSettler, settler_of
from stream_dp.workers.topic_watch import TopicWatch
from stream_dp.workers.window_blocks import WindowBlocks

logger = logging.getLogger(__name__)

_TURNS = 8  # of the event loop, from an answer of Kafka's to the next request
_LONGEST_SILENCE_SECONDS = 30.0
_CONFIRM_SECONDS = 2.0
_CONFIRM_ANSWER_SECONDS = 3.0


class Session:
    """One connection to Kafka from a checkpoint on; an outage ends it and the next one starts from Redis again."""

    def __init__(
        self,
        settings: Settings,
        store: CheckpointStore,
        resumed: Resumed,
        letters: DeadLetters,
        watch: Watch,
        topics: TopicWatch,
        stopping: asyncio.Event,
    ) -> None:
        self.pipeline = resumed.pipeline
        self._stopping = stopping
        self._watch = watch
        self._confirmed = time.monotonic()
        self._settings = settings
        self._store = store
        self._resumed = resumed
        self._topics = topics
        self._sink = resumed.sink
        self._first_ends = deque[int]()  # the rounds after which the batches of a backlog end at first
        if self.pipeline.epoch.release_schedule == ReleaseSchedule():
            # The last round that was released: a checkpoint may stand at a later one where not all are.
            released = max(self.pipeline.round, self._sink.not_given_again)
            self._first_ends.extend(first_ends(released, settings.batch_rounds) if released else ())
        self._checkpointed = (self.pipeline.round, time.monotonic())
        self._writing: asyncio.Task[None] | None = None
        self._letters, self._awaits_letters = letters, False
        self._blocks = WindowBlocks(resumed.epochs, self.pipeline.epoch)
        self._journal = TopicPartition(settings.epochs, 0)
        self._log = CountedLog(settings, resumed.digester)
        self._log.counted(self.pipeline.position)
        self._consumer = batch_consumer(settings.kafka_address, auto_offset_reset="none")
        barrier = self.pipeline.position.barrier
        chain = None if barrier is None else BarrierChain(resumed.barrier_key, settings.stream, barrier)
        self._reader: EventsReader | CountsReader
        if self._sink.counts_offset is not None:
            assert chain is not None, "an engine counts rounds of barriers"
            place = settings, self._consumer, resumed.counted, self._sink.counts_offset, chain, resumed.ends
            self._reader = CountsReader(*place, stop_there=resumed.closing)
        else:
            self._reader = EventsReader(
                settings,
                self._consumer,
                self.pipeline.position,
                chain,
                resumed.ends,
                stop_there=resumed.closing,
                by_events=events_of(self.pipeline.epoch.privacy["rounds"]) is not None,
                headers=self.pipeline.epoch.reads_headers,
            )
        self._producer = producer(settings.kafka_address, settings.compression)
        self._in_flight = InFlight(
            self._producer, settings.releases, settings.kafka, watch, settings.batch_rounds
        )
        self._schemas: SchemaSettler | None = None  # the engine has read by schemas, if there is one
        if isinstance(self._reader, EventsReader):
            schemas = self.pipeline.intake.schemas
            self._schemas = settler_of(settings, self.pipeline.epoch, schemas, watch, stopping)
        self._unread: list[LogPart] = []  # what was read and names a schema that is not settled yet

    async def __aenter__(self) -> "Session":
        try:
            for client in (self._producer, self._consumer, self._log.reader):
                await client.start()
        except BaseException:
            await self.__aexit__()
            raise
        if self._schemas is not None:
            await asyncio.to_thread(self._schemas.begin)
        self._reader.begin()
        self._log.begin()
        return self

    async def __aexit__(self, why: type[BaseException] | None = None, *_: object) -> None:
        await self._in_flight.drop()
        if self._schemas is not None:
            self._schemas.close()
        if (
            self._writing is not None
        ):  # a thread: it cannot be called off, and why it failed is of no interest now
            await asyncio.gather(self._writing, return_exceptions=True)
        for reader in (self._consumer, self._log.reader):
            await stop_client(reader.stop(), reader._client)
        await stop_producer(self._producer, why)

    async def read(self) -> list[LogPart]:
        """What comes next in the log; nothing if that takes a while, or needs a schema that nobody can tell now."""
        self._watch.beat()
        if not self._unread:
            rounds, at_once = self.pipeline.epoch.privacy["rounds"], self._settings.batch_rounds
            open_records = self.pipeline.intake.open_records
            while self._first_ends and self._first_ends[0] <= self.pipeline.round:
                self._first_ends.popleft()
            first_end = self._first_ends[0] if self._first_ends else None
            most = records_left(rounds, at_once, self.pipeline.round, open_records, first_end)
            self._unread = await self._reader.read(most)
        if self._schemas is not None:
            values = [each.value for each in one_by_one(self._unread) if isinstance(each, Record)]
            if not await self._schemas.settle(values):
                return []
        entries, self._unread = self._unread, []
        return entries

    @property
    def holds_back(self) -> bool:
        """Whether something that was counted waits for the rest of its batch, and so may not be saved yet."""
        return self._sink.holds_back

    async def ends_batch(self) -> bool:
        """Whether what is held back waits for nothing more, because the log ended here when the batch began."""
        return self.holds_back and not self._unread and await self._reader.at_segment_end()

    async def caught_up(self) -> bool:
        """Whether all that the log held at the start has been read."""
        return not self._unread and await self._reader.caught_up()

    @property
    def barrier_lag(self) -> int:
        """How many barriers are known to wait."""
        return self._reader.barrier_lag

    @property
    def lag(self) -> int:
        """How many records are known to wait."""
        return self._reader.lag(self.pipeline.intake.offsets)

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
        if not self._log.holds_any:  # nothing was counted yet when this session began
            self._log.counted(self.pipeline.position)
        if time.monotonic() - self._confirmed < _CONFIRM_SECONDS:
            return
        with self._watch.progress.waiting("redis"):
            await asyncio.to_thread(self._store.check_hold)
        await self._log.check(self.pipeline.position)
        offsets = self.pipeline.intake.offsets
        try:
            # The other consumer's connection waits for records, and would answer after them.
            asked = self._log.reader.end_offsets([*self._places(offsets), self._journal])
            ends = await asyncio.wait_for(asked, _CONFIRM_ANSWER_SECONDS)
        except (KafkaError, TimeoutError):
            self._watch.answered(False)
        else:
            self._watch.answered(True)
            self._watch.progress.input(
                self._resumed.closing
                or any(ends[place] > offset for place, offset in self._places(offsets).items()),
                self._awaited,
            )
            await self._check_open(ends[self._journal])
        self._confirmed = time.monotonic()

    @property
    def _awaited(self) -> str | None:
        """What a round that does not end waits for, as far as it is known."""
        if isinstance(self._reader, CountsReader) and self._reader.awaited:
            return self._reader.awaited
        return "barrier" if self.pipeline.position.barrier is not None else None

    def _places(self, offsets: Vector) -> dict[TopicPartition, int]:
        """The offset of each partition of the events topic."""
        return {TopicPartition(self._settings.events, number): each for number, each in enumerate(offsets)}

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

    async def catch_up(self) -> bool:
        """Compute the rounds that were published after the checkpoint again, compare, and send what is missing.

        Returns whether it has; not if the worker is to stop while it waits for a schema, and then nothing is sent.
        Raises `EpochRefused` at the first difference, with nothing sent.
        """
        missing = Output()
        while last := self._sink.not_given_again:
            if await self.caught_up() or self.pipeline.finished:
                raise EpochRefused(
                    f"the releases go up to round {last}, which the events topic and the key do not reproduce: "
                    "the log or the releases were changed; nothing is sent"
                )
            entries = await self.read()
            if self._unread:
                if self._stopping.is_set():
                    return False
                continue
            self._watch.progress.input(True, self._awaited)
            if self._reader.silence > _LONGEST_SILENCE_SECONDS and self._awaited == "engine":
                raise NotReady(
                    "the engine has not counted what was released: run `stream-dp spark --state FOLDER`"
                )
            if self._reader.silence > _LONGEST_SILENCE_SECONDS:
                raise KafkaTimeoutError(f"no records of {self._settings.events!r}, which holds more")
            output = self._sink.missing(await self._processed(entries))
            missing.releases += output.releases
            missing.dead_letters += output.dead_letters
        await asyncio.to_thread(self._store.check_hold)
        await self._send(missing, await self._reader.at_segment_end())
        return True

    async def count(self, entries: list[LogPart], ends: bool = False) -> None:
        """Count what was read and send the batches of releases that have ended; `ends`: the last one has, in any case.

        Raises `Fenced`, with nothing sent, where that fails.
        A worker that slept finds out here that another one took over: what it can still send was read before that.
        Redis is asked after the log was read, and answers while it is counted.
        """
        holds = asyncio.get_running_loop().run_in_executor(None, self._store.check_hold)
        try:
            output = await self._processed(entries)
        finally:
            await holds
        await self._send(output, ends or await self._reader.at_segment_end())

    async def _processed(self, entries: list[LogPart]) -> Output:
        """What they give.  Meanwhile batches that were sent before go their way."""
        output = Output()
        for step in self.pipeline.steps(entries):
            output = step
            for _ in range(_TURNS):
                await asyncio.sleep(0)
        self._blocks.see(output.blocks)
        return output

    async def _send(self, output: Output, ends: bool) -> None:
        """Hand batches to the producer; waits only while too many are unanswered.  `ends`: the open one has ended."""
        ends = ends or self.pipeline.round in self._first_ends
        for batch in self._sink.batches(output, self.pipeline.round, ends, self._producer):
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
        return self._settings.checkpoint_pace.is_due(new_rounds, time.monotonic() - at)

    async def begin_checkpoint(self) -> None:
        """Wait until everything sent is in the broker, copy the state, and write it while work goes on."""
        await self.finish_checkpoint()
        await self._in_flight.settle()
        await self._log.check(self.pipeline.position)
        await self._topics.still_same(self._watch)
        if isinstance(self._reader, CountsReader):
            self._sink.counts_offset = self._reader.counts_offset
        checkpoint = self._sink.checkpoint(self.pipeline, self._resumed.key_check, self._in_flight)
        self._checkpointed = (checkpoint.state.round, time.monotonic())
        labels = len(checkpoint.state.labels)
        prepared = self._store.prepare(checkpoint)
        self._awaits_letters = True
        self._writing = asyncio.create_task(self._write(prepared, labels))

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

    async def _write(self, prepared: PreparedCheckpoint, labels: int) -> None:
        """Write the state to Redis.

        After this the dead letters before it are never made again, so they are written first if they can be.
        Labels are added to those that are there, so what the start has not read of them is read first.
        """
        round_number = self._checkpointed[0]
        await asyncio.to_thread(self._store.check_unread)
        await self._letters.written()
        self._awaits_letters, began = False, time.monotonic()
        await asyncio.to_thread(self._blocks.write)
        await asyncio.to_thread(self._store.commit, prepared)
        self._watch.checkpointed(round_number, labels, time.monotonic() - began)
