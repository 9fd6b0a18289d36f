"""A job from the command line in a process of its own, which ends itself with SIGKILL at one step of its work."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import stream_dp.cli.one_shot
from stream_dp.cli import main
from stream_dp.jobs import runner, steps
from stream_dp.jobs.store import JobRecords
from stream_dp.local.books import LocalBooks
from stream_dp.store import ledger_file
from stream_dp.store.any_ledger import AnyLedger
from tests.system.worker_process import PROCESSES, Kill, _interrupted

__all__ = ["stream_dp"]  # it is loaded before processes are forked

STEPS: dict[str, tuple[Any, str]] = {
    "make the file": (ledger_file, "_make"),
    "begin its journal": (ledger_file, "_begin"),
    "prepare": (runner, "prepare"),
    "admit": (JobRecords, "admit"),
    "open the ledger": (LocalBooks, "ledger"),
    "append a record": (ledger_file, "_append"),
    "charge": (AnyLedger, "charge"),
    "read and compute": (runner, "compute"),
    "store the result": (JobRecords, "keep"),
}
"""The steps of a job by name: the owner and the name of what carries them out."""


def run(words: Sequence[str], state: Path, released: Path, kill: Kill | None = None) -> int | None:
    """`stream-dp` with these words; its exit status.  What it would release is written to `released` before it may."""
    process = PROCESSES.Process(target=_run, args=(list(words), state, released, kill))
    process.start()
    process.join()
    return process.exitcode


def _run(words: list[str], state: Path, released: Path, kill: Kill | None) -> None:
    os.environ["XDG_STATE_HOME"] = str(state)
    compute = steps.compute

    def noted(*arguments: Any) -> Any:
        result = compute(*arguments)
        with released.open("a") as file:
            file.write(json.dumps([result.labels, result.counts]) + "\n")
        return result

    setattr(runner, "compute", noted)  # noqa: B010
    if kill is not None:
        owner, name = STEPS[kill.step]
        setattr(owner, name, _interrupted(getattr(owner, name), kill))
    sys.argv = ["stream-dp", *words]
    main()
