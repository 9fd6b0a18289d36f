"""What every exception of this package has in common.

The kinds are defined where they are raised.  `stream_dp` has the names of those that its users may want to catch.
"""

from collections.abc import Iterator
from contextlib import contextmanager

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
    """Something that does not serve now, and that a worker waits for."""


class Refused(StreamDpError):
    """Going on would break the guarantee or give something wrong.  The message says why, and what to change."""


class StoreUnreachable(Refused, NotReady):
    """An object store does not answer, or ended an answer in the middle: commands end, and a worker waits for it."""


class SparkFailed(Refused, NotReady):
    """Spark did not start or come to an end: commands end, and a worker tries again."""


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
