"""The process that a worker starts to write its barriers: `process.py` says how the two talk."""

import logging
import os
import sys
from threading import Event, Thread

import msgspec

from stream_dp.barriers.process import REFUSED, Task
from stream_dp.barriers.writer import BarrierWriter
from stream_dp.errors import Refused
from stream_dp.operations import stacks


def _end_with_parent() -> None:
    """Nothing more comes through standard input: it ends when the worker closes it, or dies in any way.

    It is read without a buffer, whose lock would abort a process that ends by itself meanwhile.
    """
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(0)


def main() -> int:
    """Write barriers until the worker ends; returns the exit status where it is refused."""
    stacks.tell_on_signal()
    line = sys.stdin.buffer.readline()
    if not line:
        return 0  # the worker has ended before it had a task
    task = msgspec.json.decode(line, type=Task)
    Thread(target=_end_with_parent, daemon=True).start()
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(levelname)s %(message)s")
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    try:
        BarrierWriter(task.settings, bytes.fromhex(task.key)).run(Event())
    except Refused as refused:
        logging.error("%s", refused)
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())
