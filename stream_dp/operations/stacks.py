"""Where a process is: `kill -USR2 PID` makes it print the stack of each thread and asyncio task on standard error.

Only the names of files and functions are told, and no value of any variable: nothing there is private.
"""

import asyncio
import faulthandler
import gc
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

_SIGNAL = "SIGUSR2"  # not every system has it
_STANDARD_ERROR = 2


def tell_on_signal() -> None:
    """From now on, tell on SIGUSR2.  Threads are told even while one of them lets no other one run."""
    number = getattr(signal, _SIGNAL, None)
    if number is None or sys.__stderr__ is None:
        return
    faulthandler.unregister(number)  # it would not take the signal back from whoever has taken it since
    signal.signal(number, lambda *_: _tell_tasks())
    faulthandler.register(number, file=_STANDARD_ERROR, all_threads=True, chain=True)


def tasks() -> str:
    """The tasks that are not done, each with the calls that it waits in, the innermost last."""
    waiting = [each for each in gc.get_objects() if isinstance(each, asyncio.Task) and not each.done()]
    return "".join(f"Task {each.get_name()}:\n{''.join(_calls(each.get_coro()))}" for each in waiting)


def _tell_tasks() -> None:
    os.write(_STANDARD_ERROR, f"{tasks()}That is where process {os.getpid()} stands.\n".encode())


def _calls(awaited: Any) -> Iterator[str]:
    while awaited is not None:
        frame, inner = _frame_of(awaited)
        if frame is not None:
            yield f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_qualname}\n'
        elif inner is None:
            yield f"  waits for a {type(awaited).__name__}\n"
        awaited = inner


def _frame_of(awaited: Any) -> tuple[FrameType | None, Any]:
    """The frame of a coroutine or generator, and what it waits for."""
    for frame, inner in (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom"), ("ag_frame", "ag_await")):
        if hasattr(awaited, frame):
            return getattr(awaited, frame), getattr(awaited, inner)
    return None, None
