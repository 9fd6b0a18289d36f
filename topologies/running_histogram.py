"""The running histogram as a Faust app: `<stream>.events` in, `<stream>.releases` out.

    stream-dp worker --stream shop
    STREAM_DP_STREAM=shop faust -A topologies.running_histogram worker

Faust keeps the lifecycle, the supervision, the signals and the web port.  Events are not read through an agent:
batches go straight from the client to the pipeline, and the checkpoint in Redis, not the group's offset, decides
where work resumes.
"""

import asyncio
import tempfile
from typing import Any, cast

import faust
from faust.app.base import BootStrategy

from stream_dp.resume import NewEpoch
from stream_dp.settings import Settings, load_settings
from stream_dp.worker import REFUSALS, Worker


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
    """The Faust app around the stream's service.  Its web port is closed unless set, and never serves tables."""
    settings = running_histogram.worker.settings
    name = f"{settings.stream}.running-histogram"
    app = faust.App(
        name,
        broker=f"kafka://{settings.kafka}",
        datadir=f"{tempfile.gettempdir()}/{name}",  # Faust insists on a folder; nothing is kept there
        web_host="127.0.0.1",
        web_port=settings.web_port or None,
        web_tables_enabled=False,
        web_router_enabled=False,
        autodiscover=False,
    )
    # Decided here, because the faust command turns web_enabled on by itself.
    app.boot_strategy = BootStrategy(app, enable_kafka=False, enable_web=settings.web_port > 0)
    app.service(cast(Any, running_histogram))  # Faust takes instances too, its types only classes
    return app


def __getattr__(name: str) -> Any:
    """`app` for the `faust` command, made when it asks: importing this module needs no settings."""
    if name == "app":
        return create_app(RunningHistogram(load_settings()))
    raise AttributeError(name)
