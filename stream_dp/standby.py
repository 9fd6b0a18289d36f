"""Waiting for one's turn: a worker that stands by has done beforehand whatever does not need the stream.

It has loaded the program, calibrated the counter and counted an event of its own, which takes seconds of a cold start.
The checkpoint is read when its turn comes: a second and a half for a million labels (`python -m benchmarks recovery`).
"""

import asyncio
import logging

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


async def await_turn(lease: Lease, settings: Settings, stopping: asyncio.Event, watch: Watch) -> None:
    """Return when the lease is held here, or `stopping`.  Raises RedisError."""
    await asyncio.to_thread(_warm_up, settings)
    waits = False
    while not stopping.is_set() and not await asyncio.to_thread(lease.claim):
        if not waits:
            logger.info("stream %s: another worker works, this one stands by", settings.stream)
            waits = True
        watch.beat()
        watch.answered(True)
        await pause(stopping, _LOOK_AGAIN_SECONDS)
    watch.answered(False)
    if waits and not stopping.is_set():
        logger.warning("stream %s: the other worker is gone, this one takes over", settings.stream)


def _warm_up(settings: Settings) -> None:
    """Count one event under a key that is nobody's, so that all code is loaded and the calibration is known."""
    epoch = Epoch.open(settings, 1, 0)
    pipeline = Pipeline(epoch, bytes(KEY_BYTES), settings.events)
    pipeline.process([Record(0, 0, None, b'{"items": ["warm"]}')])
