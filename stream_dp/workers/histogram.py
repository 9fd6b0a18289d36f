"""The worker of one stream: records in, releases out, checkpoints to Redis.  The host around the pipeline.

After any start, what the releases topic holds beyond the checkpoint is computed again and compared before
anything is sent.
"""

import asyncio
import logging
from functools import partial

from aiokafka.errors import OffsetOutOfRangeError, UnsupportedCodecError

from stream_dp.barriers.process import BarrierProcess
from stream_dp.config.connections import aiokafka_options, redis_client
from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import EpochRefused
from stream_dp.epochs.registry import Registry
from stream_dp.events.rounds import TICKS
from stream_dp.kafka.clients import kept_clients
from stream_dp.kafka.log import LogRefused
from stream_dp.operations.backoff import pause
from stream_dp.operations.ports import Ports
from stream_dp.operations.retry import retry_until_done
from stream_dp.operations.watch import Watch
from stream_dp.pipeline.pipeline import Position
from stream_dp.privacy.keyed_noise import check_golden_draw
from stream_dp.sinks.dead_letters import DeadLetters
from stream_dp.store.checkpoints import CheckpointStore
from stream_dp.store.fence import Superseded
from stream_dp.store.lease import LEASE_SECONDS, Lease
from stream_dp.workers.resume import NewEpoch, Resumed, WarmState, open_next, resume
from stream_dp.workers.session import Session
from stream_dp.workers.standby import Standby
from stream_dp.workers.stream_topics import worker_rights
from stream_dp.workers.topic_watch import TopicWatch

logger = logging.getLogger(__name__)

_TOPICS = ("events", "barriers", "releases", "epochs", "dead_letters")
_REDIS_SECONDS = 30.0


class Worker:
    """Runs one stream until it is stopped, refused, or at a horizon where the settings say stop."""

    def __init__(self, settings: Settings, new_epoch: NewEpoch | None = None, standby: bool = False) -> None:
        """`standby`: wait until no other worker lives that holds the stream, instead of taking it over.

        Raises `SettingsError` for an address, credentials or a port that cannot be; nothing is connected yet.
        """
        self.settings = settings
        self._standby, self._has_turn = standby, False
        self._warm: WarmState | None = None  # what it knew of the state before its turn came
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
        """Work until `stop` or the end.  An outage of Kafka or Redis is waited out; raises a `Refused`."""
        check_golden_draw()
        with self._ports, self._lease, kept_clients():
            async with self._letters:
                while not await self._has_run():
                    await self._step_back()

    async def _has_run(self) -> bool:
        """Whether the work is done; if not, another worker took the stream over and this one is to stand by."""
        try:
            with self._barriers:
                await retry_until_done(
                    self._attempt,
                    lambda: self.finished,
                    self._stopping,
                    self.settings,
                    partial(worker_rights, self.settings),
                    self.watch,
                )
        except Superseded as taken:
            if not self._standby or self._stopping.is_set():
                raise
            logger.warning("stream %s: %s and stands by", self.settings.stream, taken)
            return False
        return True

    async def _await_turn(self) -> None:
        """Stand by until nobody who lives has the stream."""
        if self.settings.rounds == TICKS and self.settings.write_barriers:
            self._barriers.prepare()
        standby = Standby(self.settings, self._redis, self._lease, self.watch)
        self._warm = await standby.await_turn(self._stopping)
        self._has_turn = not self._stopping.is_set()

    async def _step_back(self) -> None:
        """Hold nothing, and give whoever took over the time to show that it lives."""
        self._has_turn = False
        await asyncio.to_thread(self._lease.release)
        self._store = CheckpointStore(self._redis, self.settings.stream)
        await pause(self._stopping, LEASE_SECONDS)

    async def _attempt(self) -> None:
        if self._standby and not self._has_turn:
            await self._await_turn()
        if self._stopping.is_set():
            return
        registry = await asyncio.to_thread(Registry, self.settings.kafka_address)
        mapping = self.settings.mapping
        schemas = ("schemas",) if mapping is not None and mapping.names_schemas else ()
        topics = TopicWatch(
            self.settings,
            *_TOPICS,
            *schemas,
            *(("counts",) if self.settings.engine != "worker" else ()),
            ledger=registry.ledger_of(self.settings.data_source),
        )
        try:
            await topics.guard(self._resume_and_work(topics, registry), self.watch)
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

    async def _resume_and_work(self, topics: TopicWatch, registry: Registry) -> None:
        with self.watch.progress.waiting("start"):
            warm, self._warm = self._warm, None
            wanted = registry, self._new_epoch, topics, warm, self._lease.seize
            resumed = await asyncio.to_thread(resume, self.settings, self._store, self._redis, *wanted)
        if resumed.pipeline.position.barrier is not None:
            topics.may_grow(self.settings.events)
        if not resumed.closing:
            self._new_epoch = None  # it is open: an outage from here on must not open another one
        self.watch.beat()
        counted: Position | None = None
        try:
            beside = self._letters, self.watch, topics, self._stopping
            async with Session(self.settings, self._store, resumed, *beside) as session:
                if not await session.catch_up():
                    return
                self.watch.began(session.pipeline.epoch, session.pipeline.round)
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
            await asyncio.to_thread(open_next, self.settings, resumed.epochs, self._new_epoch, counted)
            self._new_epoch = None

    async def _work(self, session: Session, resumed: Resumed) -> None:
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
        if closing:
            logger.info("it is counted up to where the log ends now, and then closed")
        if self.settings.known_labels is not None:
            logger.info(
                "stream %s: %s are known in advance, from %s, and are shown whatever their counts: the list must be "
                "public, and must not come from the events",
                self.settings.stream,
                pipeline.epoch.privacy.get("known_labels"),
                self.settings.known_labels.removeprefix("file:"),
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
            if not await self._step(session):
                break
            if self.watch.budget_due and self.settings.metrics_address:
                await asyncio.to_thread(self.watch.read_budget, self._redis, pipeline.position.offsets)
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

    async def _step(self, session: Session) -> bool:
        """Take what comes next in the log; False if nothing does, and the worker was asked to stop.

        1. Read what comes next in the log.
        2. Count it, while Redis says whether this worker still has the stream; if not, nothing of it is sent.
        3. Hand batches of releases that have ended to the producer, in their order, and set dead letters aside.
        4. If a checkpoint is due, wait until the broker has all that was sent, copy the state, and go on while dead
           letters, then the state are written.
        5. Stop if the checkpoint before could not be written: another worker has taken over, or the log has changed.
        6. If nothing was sent for a while, ask Redis and Kafka whether this worker may go on.

        Wherever it dies, the next one begins with the last checkpoint, counts the same again, compares that with what
        is published, and sends what is missing.
        """
        entries = await session.read()
        if entries or await session.ends_batch():
            with self.watch.batch():
                await session.count(entries)  # steps 2 and 3
        elif self._stopping.is_set():
            return False
        self.rounds = session.pipeline.round
        self.watch.counted(self.rounds, session.lag)
        self.watch.operator.lag_barriers.set(session.barrier_lag)
        self.watch.open_round(session.open_records)
        if session.checkpoint_due:
            await session.begin_checkpoint()
        await session.check_checkpoint()
        await session.confirm()
        return True
