"""What can go wrong, by what to do about it.

`StreamDpError` is all of it.  Directly below it stand, beside what is about one record or one request alone:

- `Refused`: stop.  Going on would break the guarantee or give something wrong, until somebody changes something.  A
  command prints the sentence and ends with status 2; a worker ends.
- `NotReady`: wait.  A server, a machine or another process is not there yet or any more.  A worker reports it and tries
  again, as it does when a client of Kafka or Redis raises an error; a command prints the sentence and ends.

No class is both.  A kind of either has a name of its own, near what raises it, only where somebody treats it in another
way than its base.  `stream_dp` has the names of those that its users may want to catch.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

_LONGEST = 400


class StreamDpError(Exception):
    """Anything that this package raises on purpose."""


def spoken(error: BaseException) -> str:
    """What went wrong, in few words: the clients of servers put whole requests, and so events, into some errors."""
    text = str(error)
    if not text or len(text) > _LONGEST or "Request" in text or "Response" in text:
        return str(getattr(error, "description", None) or type(error).__name__)
    return text


class NotReady(StreamDpError):
    """What is needed will be there later, so wait: `awaits` says who has to do something."""

    awaits: ClassVar[str] = "the engine of the stream"


class Refused(StreamDpError):
    """Going on would break the guarantee or give something wrong.  The message says why, and what to change."""


class StoreUnreachable(NotReady):
    """An object store does not answer, or ended an answer in the middle."""

    awaits = "the object store"


class SparkFailed(NotReady):
    """Spark did not start or come to an end."""

    awaits = "Spark"


class WorkerEnds(Refused):
    """No job can be done here, and refusing one would tell something of the rows: it stays unanswered."""


class ExtraMissing(Refused):
    """Something needs packages that only an extra of this one installs; the message says which."""


@contextmanager
def needs_extra(what: str, extra: str) -> Iterator[None]:
    """Around imports that `what` needs: says how to install the extra, where it is not.  Raises `ExtraMissing`."""
    try:
        yield
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package == __name__.partition(".")[0]:
            raise
        raise ExtraMissing(
            f"{what} needs {package}, which is not installed: run pip install 'stream_dp[{extra}]'"
        ) from None
