"""The Faust app around one service: Faust keeps its lifecycle and the signals to stop, and nothing else."""

import asyncio
import signal
from typing import Any, NoReturn, Protocol, cast

import faust
from faust.app.base import BootStrategy

from stream_dp.config.settings import Settings
from stream_dp.errors import Refused
from stream_dp.operations import stacks
from stream_dp.operations.memory import collect_seldom, keep_freed

REFUSED = 2
"""The exit status of a worker that gave up."""


class Runs(Protocol):
    """What `WorkerService` hosts: it works until `stop`, or raises a `Refused`."""

    settings: Settings

    async def run(self) -> None: ...

    def stop(self) -> None: ...


class WorkerService(faust.Service):
    """A worker as a Faust service; `refusal` says why it gave up, if it did."""

    def __init__(self, worker: Runs) -> None:
        super().__init__()
        self.worker = worker
        self.refusal: Exception | None = None
        self._ended = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None

    @faust.Service.task
    async def _work(self) -> None:
        collect_seldom()
        keep_freed()
        try:
            await self.worker.run()
        except Refused as refusal:
            self.log.error("%s", refusal)
            self.refusal = refusal
        finally:
            self._ended.set()
        if not self.should_stop and self.beacon.root is not None:
            self._stopping = self.loop.create_task(self.beacon.root.data.stop())

    async def on_stop(self) -> None:
        """Stop gracefully: what was sent is saved before the process ends."""
        self.worker.stop()
        await self._ended.wait()


class Host(faust.Worker):
    """Faust's worker, but SIGUSR2 writes stacks and starts no debugger, which would stop the worker for ever."""

    def install_signal_handlers(self) -> None:
        """The signals to stop are Faust's."""
        super().install_signal_handlers()
        self.loop.remove_signal_handler(signal.SIGUSR2)
        stacks.tell_on_signal()


def _command(service: WorkerService) -> type[faust.Worker]:
    """What the faust command runs the app with: it ends with status 2 where the service gave up."""

    class Command(Host):
        def execute_from_commandline(self) -> NoReturn:
            try:
                super().execute_from_commandline()
            except SystemExit:
                if service.refusal is not None:
                    raise SystemExit(REFUSED) from None
                raise

    return Command


class _App(faust.App):
    """An app without a folder: nothing would be kept there, and on a shared machine anybody may have made it before."""

    async def on_first_start(self) -> None:
        """Faust would make the folder."""


def hosted(service: WorkerService, role: str) -> faust.App:
    """An app that runs `service`, without Faust's own web server."""
    settings = service.worker.settings
    app = _App(
        f"{settings.stream}.{role.replace('_', '-')}",
        broker=f"kafka://{settings.kafka}",
        autodiscover=False,
        Worker=_command(service),
    )
    # Decided here, because the faust command turns web_enabled on by itself.
    app.boot_strategy = BootStrategy(app, enable_kafka=False, enable_web=False)
    app.service(cast(Any, service))  # Faust takes instances too, its types only classes
    return app
