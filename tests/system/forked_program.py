"""The programs that users start, forked from a server that has imported most of them: they start in milliseconds."""

import multiprocessing
import os
import sys
import threading
from collections.abc import Sequence
from multiprocessing.process import BaseProcess

from stream_dp.cli import main as command_line
from tests.system import loud_worker
from tests.system.leaks import LOUD
from tests.system.streams import Stream, as_values
from tests.system.worker_process import PROCESSES


def start(stream: Stream, *words: str, **changed: object) -> BaseProcess:
    """`stream-dp` with these words, or the worker `LOUD`, for a stream; what it prints is in the stream's log."""
    values = {**as_values(stream.settings), **changed}
    settings = {
        f"STREAM_DP_{name.upper()}": str(value) for name, value in values.items() if value is not None
    }
    process = PROCESSES.Process(target=_run, args=(words, settings, str(stream.log_file)))
    process.start()
    stream.workers.append(process)
    return process


def _run(words: Sequence[str], settings: dict[str, str], log_file: str) -> None:
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()  # type: ignore[union-attr]
    for name in [name for name in os.environ if name.startswith("STREAM_DP_")]:
        del os.environ[name]
    os.environ.update(settings)
    output = os.open(log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for standard in (1, 2):
        os.dup2(output, standard)
    if words == (LOUD,):
        loud_worker.main()
    else:
        sys.argv = ["stream-dp", *words]
        command_line()
