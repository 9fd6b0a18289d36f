"""Waiting for one's turn: a worker that stands by has done beforehand whatever does not need the stream.

It has loaded the program, calibrated the counter and counted an event of its own, which takes seconds of a cold start,
and it rehearses: now and then it asks Kafka and Redis what a start asks first, so that its connections are open and
what it has to know about the brokers is known.

A start that follows makes every check of a cold start, in the same order and after the fence.  Nothing that the
rehearsal has found out is believed: it only saves the time to connect.
"""

import asyncio
import logging
from collections import deque

from kafka.errors import KafkaError

from stream_dp import log
from stream_dp.epoch import Epoch
from stream_dp.operations.watch import Watch
from stream_dp.patience import pause
from stream_dp.pipeline import Pipeline
from stream_dp.privacy.keyed_noise import KEY_BYTES
from stream_dp.records import Record
from stream_dp.settings import Settings
from stream_dp.store.lease import Lease

logger = logging.getLogger(__name__)

_LOOK_AGAIN_SECONDS = 0.05
_REHEARSE_AGAIN_SECONDS = 1.0


async def await_turn(lease: Lease, settings: Settings, stopping: asyncio.Event, watch: Watch) -> None:
    """Return when the lease is held here, or `stopping`.  Raises RedisError."""
    await asyncio.to_thread(_warm_up, settings)
    rehearsals, waits = asyncio.create_task(_rehearse_now_and_then(settings)), False
    try:
        while not stopping.is_set() and not await asyncio.to_thread(lease.claim):
            if not waits:
                logger.info("stream %s: another worker works, this one stands by", settings.stream)
                waits = True
            watch.beat()
            watch.answered(True)
            await pause(stopping, _LOOK_AGAIN_SECONDS)
    finally:
        rehearsals.cancel()
    watch.answered(False)
    if waits and not stopping.is_set():
        logger.warning("stream %s: the other worker is gone, this one takes over", settings.stream)


def _warm_up(settings: Settings) -> None:
    """Count one event under a key that is nobody's, so that all code is loaded and the calibration is known."""
    epoch = Epoch.open(settings, 1, 0)
    pipeline = Pipeline(epoch, bytes(KEY_BYTES), settings.events)
    pipeline.process([Record(0, 0, None, b'{"items": ["warm"]}')])


async def _rehearse_now_and_then(settings: Settings) -> None:
    while True:
        try:
            await asyncio.to_thread(_rehearse, settings)
        except (KafkaError, log.LogRefused) as reason:  # it may be put right before the turn comes
            logger.debug("a start would not go well now: %s", reason)
        await asyncio.sleep(_REHEARSE_AGAIN_SECONDS)


def _rehearse(settings: Settings) -> None:
    """Ask for what a start reads: the ends of two topics, and what stands there."""
    kafka = settings.kafka_address
    for topic in (settings.events, settings.releases):
        log.check_topic(kafka, topic)
        held = log.offsets(kafka, topic)
        deque(log.read(kafka, topic, max(held.first, held.end - 1), held.end), maxlen=0)
