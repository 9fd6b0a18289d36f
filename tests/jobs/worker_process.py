"""A worker of jobs in a process of its own, which `Kill` makes end itself with SIGKILL at one step of its work."""

import signal
from typing import Any

from stream_dp.config.settings import Settings
from stream_dp.epochs.journaled_ledger import JournaledLedger
from stream_dp.jobs import runner, worker
from stream_dp.jobs.store import JobStore
from stream_dp.store.ledger import Ledger
from tests.system.worker_process import Kill, _interrupted, begin

STEPS: dict[str, tuple[Any, str]] = {
    "prepare": (runner, "prepare"),
    "admit": (JobStore, "admit"),
    "charge Redis": (Ledger, "charge"),
    "charge Redis and the journal": (JournaledLedger, "charge"),
    "read and compute": (runner, "compute"),
    "store the result": (JobStore, "keep"),
    "publish": (worker._Session, "_publish"),
    "remember the offset": (JobStore, "answered"),
    "commit the offset": (worker._Session, "_commit"),
}
"""The steps of a job by name: the owner and the name of what carries them out."""


def run_worker(settings: Settings, log_file: str, kill: Kill | None) -> None:
    """Run a worker of all jobs until SIGTERM."""
    begin(log_file)
    if kill is not None:
        owner, name = STEPS[kill.step]
        setattr(owner, name, _interrupted(getattr(owner, name), kill))
    running = worker.JobWorker(settings)
    signal.signal(signal.SIGTERM, lambda *_: running.stop())
    running.run()
