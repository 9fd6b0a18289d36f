"""How a command that runs until it is stopped learns that it is."""

import signal
from threading import Event


def until_stopped() -> Event:
    """An event that Ctrl-C or SIGTERM sets.  The second one ends the process at once, as if this had not been called.

    An exception would not do: Python drops one that is raised while it finalises an object.
    """
    stopping = Event()

    def stop(*_: object) -> None:
        stopping.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return stopping
