"""The running histogram as a Faust app: `<stream>.events` in, `<stream>.releases` out.

    stream-dp worker --stream shop
    STREAM_DP_STREAM=shop faust -A topologies.running_histogram worker

Faust keeps the lifecycle, the supervision, the signals and the web port.  Events are not read through an agent:
batches go straight from the client to the pipeline, and the checkpoint in Redis, not the group's offset, decides
where work resumes.
"""

import asyncio
from typing import Any

import faust

from stream_dp.resume import NewEpoch
from stream_dp.settings import Settings, load_settings
from stream_dp.worker import REFUSALS, Worker
from topologies.host import hosted


class RunningHistogram(faust.Service):
    """The stream's worker as a Faust service; `refusal` says why it gave up, if it did."""

    def __init__(self, settings: Settings, new_epoch: NewEpoch | None = None) -> None:
        super().__init__()
        self.worker = Worker(settings, new_epoch)
        self.refusal: Exception | None = None
        self._ended = asyncio.Event()

    @faust.Service.task
    async def _work(self) -> None:
        try:
            await self.worker.run()
        except REFUSALS as refusal:
            self.log.error("%s", refusal)
            self.refusal = refusal
        finally:
            self._ended.set()
        if not self.should_stop and self.beacon.root is not None:
            self.loop.create_task(self.beacon.root.data.stop())

    async def on_stop(self) -> None:
        """Stop gracefully: what was sent is checkpointed before the process ends."""
        self.worker.stop()
        await self._ended.wait()


def create_app(running_histogram: RunningHistogram) -> faust.App:
    """The Faust app around the stream's service."""
    settings = running_histogram.worker.settings
    return hosted(running_histogram, f"{settings.stream}.running-histogram", settings)


def __getattr__(name: str) -> Any:
    """`app` for the `faust` command, made when it asks: importing this module needs no settings."""
    if name == "app":
        return create_app(RunningHistogram(load_settings()))
    raise AttributeError(name)
