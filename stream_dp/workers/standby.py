"""A standby: it does in advance whatever does not need the stream, and waits for its turn.

It has loaded the program, calibrated the counter and counted an event of its own, which takes seconds of a cold start.
And it rehearses: every second it asks Kafka what a start asks first, so that its clients are connected and know the
brokers, and whenever there is a new checkpoint it looks as a start does before it takes the stream over (resume.py).
It is ready once nothing stands against that, and says so if something does.

Nothing that a rehearsal finds is believed.  When the turn comes, the start makes every check of a cold start, in the
same order; from the rehearsal it has open connections, the labels of the checkpoint that was read last, and what
follows from them: their rows and the ids that their noise is drawn with.  They are used if the digest of the labels
that Redis has by then says that it begins with these.  Whether Redis still holds them is looked at beside the work,
before the first checkpoint adds to them.
"""

import asyncio
import logging
import time
from collections import deque

from redis import Redis

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.epochs.registry import Registry
from stream_dp.errors import Refused
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.kafka.rights import NotPermitted, require_rights
from stream_dp.operations.backoff import pause
from stream_dp.operations.retry import OUTAGES
from stream_dp.operations.watch import Watch
from stream_dp.pipeline.pipeline import Pipeline
from stream_dp.privacy.keyed_noise import KEY_BYTES
from stream_dp.store.checkpoints import CheckpointStore
from stream_dp.store.lease import Lease
from stream_dp.workers.resume import WarmState, look
from stream_dp.workers.stream_topics import worker_rights

logger = logging.getLogger(__name__)

_LOOK_AGAIN_SECONDS = 0.05
_REHEARSE_AGAIN_SECONDS, _REST = 1.0, 20
"""It rests so long between two rehearsals, and so many times as long as the last one took: a large state takes long."""


class Standby:
    """A worker of a stream that another one works on."""

    def __init__(self, settings: Settings, redis: Redis, lease: Lease, watch: Watch) -> None:
        self._settings, self._redis, self._lease, self._watch = settings, redis, lease, watch
        self._store = CheckpointStore(redis, settings.stream)
        # At the checkpoint that was read last, if nobody uses it up just now.
        self._copy: WarmState | None = None
        self._told, self._is_ready = "", False

    async def await_turn(self, stopping: asyncio.Event) -> WarmState | None:
        """Return when the lease is held here, or `stopping`.  Raises RedisError.

        Gives what it has of the last checkpoint that was read, if one was.
        """
        settings, waits = self._settings, False
        await asyncio.to_thread(_warm_up, settings)
        rehearsals = asyncio.create_task(self._rehearse_now_and_then())
        try:
            while not stopping.is_set() and not await asyncio.to_thread(self._lease.claim):
                if not waits:
                    logger.info("stream %s: another worker is alive, this one stands by", settings.stream)
                    waits = True
                self._watch.beat()
                self._watch.answered(self._is_ready)
                await pause(stopping, _LOOK_AGAIN_SECONDS)
        finally:
            rehearsals.cancel()
        self._watch.answered(False)
        if waits and not stopping.is_set():
            logger.warning("stream %s: the other worker is gone, this one takes over", settings.stream)
        return self._take_copy()

    def _take_copy(self) -> WarmState | None:
        copy, self._copy = self._copy, None
        return copy

    async def _rehearse_now_and_then(self) -> None:
        while True:
            began = time.monotonic()
            try:
                await asyncio.to_thread(self._rehearse)
            except NotPermitted as refused:
                self._tell(str(refused))
            except OUTAGES as outage:  # a start waits for servers
                logger.debug("no rehearsal just now: %s", outage)
            except Refused as refused:
                self._tell(str(refused))
            except Exception as defect:  # at which a rehearsal may fail, and the worker may not
                self._store = CheckpointStore(self._redis, self._settings.stream)  # reads everything anew
                if type(defect).__name__ != self._told:
                    self._told = type(defect).__name__
                    logger.exception(
                        "stream %s: a rehearsal of this standby failed; it is tried again, and until it succeeds a "
                        "take-over may take as long as a cold start",
                        self._settings.stream,
                    )
            await asyncio.sleep(max(_REHEARSE_AGAIN_SECONDS, _REST * (time.monotonic() - began)))

    def _tell(self, why: str) -> None:
        """Say, once, why this worker could not take over now; that may be put right before its turn comes."""
        self._is_ready = False
        if why != self._told:
            self._told = why
            logger.warning(
                "stream %s: as things are now, this one could not take over: %s", self._settings.stream, why
            )

    def _rehearse(self) -> None:
        kafka = self._settings.kafka_address
        for topic in (self._settings.events, self._settings.releases):
            log.check_topic(kafka, topic, many_partitions=topic == self._settings.events)
            held = log.offsets(kafka, topic)
            deque(log.read(kafka, topic, max(held.first, held.end - 1), held.end), maxlen=0)
        if not self._is_ready:
            require_rights(kafka, worker_rights(self._settings))
        if not self._is_ready or self._store.has_changed():
            self._look()

    def _look(self) -> None:
        """Do what a start does before it takes the stream over.  Raises its refusals."""
        settings = self._settings
        registry = Registry(settings.kafka_address)
        found = look(settings, self._store, self._redis, registry, warm=self._take_copy())
        self._copy = WarmState.of(self._store, found)
        if not self._is_ready:
            self._told, self._is_ready = "", True
            logger.info(
                "stream %s: what it starts from is read and compared, and it is ready to take over",
                settings.stream,
            )


def _warm_up(settings: Settings) -> None:
    """Count one event under a key that is nobody's, so that all code is loaded and the calibration is known."""
    epoch = Epoch.open(settings, 1, 0)
    pipeline = Pipeline(epoch, bytes(KEY_BYTES), settings.events)
    pipeline.process([Record(0, 0, None, b'{"items": ["warm"]}')])
