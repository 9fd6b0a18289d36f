"""Top-k and histogram jobs as a Faust app: requests from `<stream>.jobs`, results to `<stream>.results`.

    stream-dp jobs worker --stream shop --job top-k --job histogram
    STREAM_DP_STREAM=shop faust -A topologies.top_k worker

Faust keeps the lifecycle, the timer of the schedules and the signals.  Requests are not read through an
agent: Faust may pass over the first record that waits when it starts, and a request must never be lost.
"""

import asyncio
from typing import Any

import faust

from stream_dp.config.reading import load_settings
from stream_dp.errors import Refused
from stream_dp.jobs.worker import JobWorker
from stream_dp.operations.ports import web_port
from topologies.host import hosted


class Jobs(faust.Service):
    """The worker as a Faust service; `refusal` says why it gave up, if it did."""

    def __init__(self, worker: JobWorker) -> None:
        super().__init__()
        self.worker = worker
        self.refusal: Exception | None = None
        self._ended = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None

    @faust.Service.task
    async def _work(self) -> None:
        try:
            with web_port(self.worker.settings):
                await asyncio.to_thread(self.worker.run)
        except Refused as refusal:
            self.log.error("%s", refusal)
            self.refusal = refusal
        finally:
            self._ended.set()
        if self.refusal is not None and self.beacon.root is not None:
            self._stopping = self.loop.create_task(self.beacon.root.data.stop())

    @faust.Service.timer(1.0)
    async def _schedules(self) -> None:
        await asyncio.to_thread(self.worker.ask_for_due)

    async def on_stop(self) -> None:
        """A job that is running is left, and taken up again at the next start."""
        self.worker.stop()
        await self._ended.wait()


def create_app(jobs: Jobs) -> faust.App:
    """The Faust app around the worker."""
    settings = jobs.worker.settings
    return hosted(jobs, f"{settings.stream}.jobs.{'+'.join(jobs.worker.jobs)}", settings)


def __getattr__(name: str) -> Any:
    """`app` for the `faust` command, made when it asks: importing this module needs no settings."""
    if name == "app":
        return create_app(Jobs(JobWorker(load_settings(), ("top-k", "histogram"))))
    raise AttributeError(name)
