"""The worker of jobs, as the host runs it."""

import asyncio

from stream_dp.jobs.worker import JobWorker
from stream_dp.operations.ports import liveness

_SCHEDULES_SECONDS = 1.0


class Jobs:
    """A worker of jobs in a thread, and beside it what asks for the jobs that are due."""

    def __init__(self, worker: JobWorker) -> None:
        self.worker = worker
        self.settings = worker.settings

    async def run(self) -> None:
        """Answer requests until `stop`; a job that is running then is taken up again at the next start."""
        with liveness(self.settings):
            working = asyncio.create_task(asyncio.to_thread(self.worker.run))
            asking = asyncio.create_task(self._ask_for_due())
            await asyncio.wait((working, asking), return_when=asyncio.FIRST_COMPLETED)
            self.stop()
            await working
            if asking.done():
                await asking  # it never ends but by an error
            asking.cancel()

    async def _ask_for_due(self) -> None:
        while True:
            await asyncio.sleep(_SCHEDULES_SECONDS)
            await asyncio.to_thread(self.worker.ask_for_due)

    def stop(self) -> None:
        """Ask `run` to return soon."""
        self.worker.stop()
