"""Top-k and histogram jobs as a Faust app: requests from `<stream>.jobs`, results to `<stream>.results`.

    stream-dp jobs worker --stream shop --job top-k --job histogram
    STREAM_DP_STREAM=shop faust -A topologies.top_k worker

Faust keeps the lifecycle, the timer of the schedules, the signals and the web port.  Requests are not read through an
agent: Faust may pass over the first record that waits when it starts, and a request must never be lost.
"""

import asyncio
import tempfile
from typing import Any, cast

import faust
from faust.app.base import BootStrategy

from stream_dp.jobs.worker import JobWorker
from stream_dp.settings import load_settings


class Jobs(faust.Service):
    """The worker as a Faust service."""

    def __init__(self, worker: JobWorker) -> None:
        super().__init__()
        self.worker = worker
        self._ended = asyncio.Event()

    @faust.Service.task
    async def _work(self) -> None:
        try:
            await asyncio.to_thread(self.worker.run)
        finally:
            self._ended.set()

    @faust.Service.timer(1.0)
    async def _schedules(self) -> None:
        await asyncio.to_thread(self.worker.ask_for_due)

    async def on_stop(self) -> None:
        """A job that is running is left, and taken up again at the next start."""
        self.worker.stop()
        await self._ended.wait()


def create_app(jobs: Jobs) -> faust.App:
    """The Faust app around the worker.  Its web port is closed unless set, and never serves tables."""
    settings = jobs.worker.settings
    name = f"{settings.stream}.jobs.{'+'.join(jobs.worker.jobs)}"
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
    app.service(cast(Any, jobs))  # Faust takes instances too, its types only classes
    return app


def __getattr__(name: str) -> Any:
    """`app` for the `faust` command, made when it asks: importing this module needs no settings."""
    if name == "app":
        return create_app(Jobs(JobWorker(load_settings(), ("top-k", "histogram"))))
    raise AttributeError(name)
