"""The driver: it follows the epochs of one stream, and lets Spark count one turn after the other.

Nothing that it writes depends on when or where it runs, so one that is started beside another does no harm; a lease
keeps them from writing one folder at a time.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from stream_dp.config.connections import redis_client
from stream_dp.config.settings import Settings, SettingsError
from stream_dp.epochs.journal import EpochJournal, EpochOpened, check_key
from stream_dp.epochs.schemas_topic import schema_records
from stream_dp.events.dead_letter import DeadLetter
from stream_dp.events.schema_book import SchemaBook
from stream_dp.jobs.spark import Spark, cores_of, told
from stream_dp.kafka import roles
from stream_dp.kafka.clients import kept_clients
from stream_dp.operations.backoff import pause
from stream_dp.operations.ports import Ports
from stream_dp.operations.retry import retry_until_done
from stream_dp.operations.watch import Watch
from stream_dp.privacy.keyed_noise import check_golden_draw
from stream_dp.sinks.dead_letters import DeadLetters, prepare_dead_letters
from stream_dp.spark.barrier_wait import BarrierWait
from stream_dp.spark.closed import require_closed
from stream_dp.spark.engine import EngineEpoch, UnsettledSchemas
from stream_dp.spark.tasks import ANSWER, refusals_told
from stream_dp.store.lease import Lease
from stream_dp.store.noise_key import noise_key
from stream_dp.workers.schemas import SchemaSettler, settler_of
from stream_dp.workers.stream_topics import prepare_counts_topic
from stream_dp.workers.topic_watch import TopicWatch

logger = logging.getLogger(__name__)

_REDIS_SECONDS = 30.0
_WAIT_MILLISECONDS, _EPOCHS_SECONDS = 500, 2.0
_TASKS_A_CORE = 2
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # Java hands on what Python counts, and starts sooner so


class SparkWorker:
    """Counts one stream on Spark until it is stopped or refused.

    `folder`: where the engine keeps what it has counted; the driver and all executors read and write there.
    """

    def __init__(self, settings: Settings, folder: Path, spark: Spark | None = None) -> None:
        """Raises `SettingsError` for what cannot run there; nothing is connected yet."""
        if settings.engine != "spark":
            raise SettingsError(
                'the stream\'s worker reads all events itself: set engine = "spark", for it too'
            )
        self.settings, self._folder = settings, folder
        self._spark = spark or Spark(JAVA)
        self._stopping = asyncio.Event()
        self._redis = redis_client(settings.redis_address, socket_timeout=_REDIS_SECONDS)
        self._lease = Lease(self._redis, f"{settings.stream}/spark")
        self._leads = False  # whether the lease is held here
        self.watch = Watch(settings.stream, settings.data_source)
        self._ports = Ports(settings, self.watch)
        self._letters = DeadLetters(settings, self.watch)

    def stop(self) -> None:
        """Ask `run` to return after the turn that is under way."""
        self._stopping.set()

    async def run(self) -> None:
        """Work until `stop`.  An outage of Kafka, Redis or Spark is waited out; raises a `Refused`."""
        check_golden_draw()
        with self._ports, kept_clients(), self._lease:
            async with self._letters:
                needed = partial(roles.spark, self.settings)
                await retry_until_done(
                    self._attempt, lambda: False, self._stopping, self.settings, needed, self.watch
                )

    async def _attempt(self) -> None:
        await asyncio.to_thread(self._prepare)
        mapping = self.settings.mapping
        schemas = ("schemas",) if mapping is not None and mapping.names_schemas else ()
        topics = TopicWatch(self.settings, "events", "barriers", "epochs", "counts", *schemas)
        topics.may_grow(self.settings.events)
        await topics.guard(self._work(topics), self.watch)

    def _prepare(self) -> None:
        prepare_counts_topic(self.settings)
        prepare_dead_letters(self.settings)
        self._spark.start()
        with told(self._spark.session):
            configured = dict(self._spark.session.sparkContext.getConf().getAll())
        require_closed(configured)

    async def _work(self, topics: TopicWatch) -> None:
        await asyncio.to_thread(topics.look)
        while not self._leads:
            self.watch.beat()
            self._leads = await asyncio.to_thread(self._lease.claim)
            if not self._leads:
                await pause(self._stopping, _EPOCHS_SECONDS)
            if self._stopping.is_set():
                return
        beside = self.watch, self._stopping, self._letters
        counting = _Counting(self.settings, self._folder, self._spark, self._key, *beside)
        try:
            while not self._stopping.is_set():
                self.watch.beat()
                if not await counting.step():
                    await counting.wait()
                else:
                    await topics.still_same(self.watch)
        finally:
            counting.close()
            self.watch.ended()

    def _key(self) -> bytes:
        return noise_key(self.settings.noise_key, self._redis, self.settings.stream, may_create=False)


class _Counting:
    """One connection of the driver: the epoch that is open, and what settles the schemas of its records."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        spark: Spark,
        key: Callable[[], bytes],
        watch: Watch,
        stopping: asyncio.Event,
        letters: DeadLetters,
    ) -> None:
        self._settings, self._folder, self._spark, self._key = settings, folder, spark, key
        self._watch, self._stopping, self._letters = watch, stopping, letters
        self._loop = asyncio.get_running_loop()
        self._journal: EpochJournal | None = None
        self._looked = 0.0
        self._epoch: EngineEpoch | None = None
        self._settler: SchemaSettler | None = None
        self._barriers: BarrierWait | None = None

    def close(self) -> None:
        """Leave the registry and the broker."""
        if self._settler is not None:
            self._settler.close()
        if self._barriers is not None:
            self._barriers.close()

    async def wait(self) -> None:
        """Return when a barrier has come, or there may be something else to do."""
        epoch = self._epoch
        if epoch is None or epoch.finished:
            await pause(self._stopping, _WAIT_MILLISECONDS / 1_000)
        elif not epoch.waiting:  # else it waits for schemas, and has waited
            await asyncio.to_thread(self._await_barrier, epoch.next_barrier)

    def _await_barrier(self, offset: int) -> None:
        if self._barriers is None:
            self._barriers = BarrierWait(self._settings)
        self._barriers.wait(offset, _WAIT_MILLISECONDS)

    async def step(self) -> bool:
        """Count the next turn; False if nothing has come.  Raises a `Refused`."""
        if time.monotonic() - self._looked > _EPOCHS_SECONDS:
            await asyncio.to_thread(self._follow_epochs)
            self._looked = time.monotonic()
            self._watch.answered(True)
        epoch = self._epoch
        if epoch is None:
            return False
        await asyncio.to_thread(epoch.read_barriers)
        try:
            with self._watch.batch():
                records = await asyncio.to_thread(epoch.turn)
        except UnsettledSchemas as unsettled:
            await self._settle(epoch, unsettled)
            return False
        if records is not None:
            self._watch.counted(epoch.round, epoch.lag)
            self._watch.operator.records.inc(records)
        self._watch.operator.lag_barriers.set(epoch.waiting)
        return records is not None

    def _hand_on(self, letters: Sequence[DeadLetter]) -> None:
        asyncio.run_coroutine_threadsafe(self._write(letters), self._loop).result()

    async def _write(self, letters: Sequence[DeadLetter]) -> None:
        await self._letters.put(letters)
        await self._letters.written()

    def _follow_epochs(self) -> None:
        """Begin with the epoch that is open, unless it is the one that is counted."""
        if self._journal is None:
            self._journal = EpochJournal(self._settings, self._key)
        else:
            self._journal.read_on()
        last = self._journal.last
        if last is None or not self._journal.last_is_open or last.epoch.number not in self._journal.started:
            return  # the worker is about to open one
        if self._epoch is None or last.epoch.nonce != self._epoch.epoch.nonce:
            self._begin(last, self._journal)

    def _begin(self, opened: EpochOpened, journal: EpochJournal) -> None:
        key = self._key()
        check_key(opened, key)
        opened.epoch.check_settings(self._settings)
        session = self._spark.session
        place = self._folder, partial(run_on, session), partial(cores_of, session)
        epoch = EngineEpoch(self._settings, opened, journal, key, *place, self._hand_on)
        if self._settler is not None:
            self._settler.close()
        book = SchemaBook(key, opened.epoch.nonce)
        self._settler = settler_of(self._settings, opened.epoch, book, self._watch, self._stopping)
        if self._settler is not None:
            self._settler.begin()
            epoch.schemas = [*filter(None, schema_records(self._settings))]
        self._epoch = epoch
        self._watch.began(epoch.epoch, epoch.round)
        logger.info("stream %s: epoch %d, round %d", self._settings.stream, opened.epoch.number, epoch.round)

    async def _settle(self, epoch: EngineEpoch, unsettled: UnsettledSchemas) -> None:
        """Ask what the schemas are that records name; if nobody tells just now, a little time has passed."""
        assert self._settler is not None, "only what names schemas lacks any"
        if await self._settler.settle(unsettled.heads):
            epoch.schemas = [*filter(None, await asyncio.to_thread(schema_records, self._settings))]


def run_on(session: Any, tasks: Any, number: int) -> Iterator[bytes]:
    """See `RunsTasks`; `session` is a `pyspark.sql.SparkSession`."""
    parallel = min(number, _TASKS_A_CORE * cores_of(session))
    with told(session), refusals_told():
        found = session.range(0, number, 1, parallel).mapInArrow(tasks, ANSWER).toArrow()
    answers = dict(zip(found.column(0).to_pylist(), found.column(1).to_pylist(), strict=True))
    yield from (answers[task] for task in range(number))
