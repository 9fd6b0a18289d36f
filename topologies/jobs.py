"""The worker of jobs, as the host runs it."""

import asyncio

from stream_dp.jobs.worker import JobWorker
from stream_dp.operations.ports import liveness


class Jobs:
    """A worker of jobs in a thread."""

    def __init__(self, worker: JobWorker) -> None:
        self.worker = worker
        self.settings = worker.settings

    async def run(self) -> None:
        """Answer requests until `stop`; a job that is running then is taken up again at the next start."""
        with liveness(self.settings):
            await asyncio.to_thread(self.worker.run)

    def stop(self) -> None:
        """Ask `run` to return soon."""
        self.worker.stop()
