"""What every exception of this package has in common.

The kinds are defined where they are raised.  `stream_dp` has the names of those that its users may want to catch.
"""


class StreamDpError(Exception):
    """Anything that this package raises on purpose."""


class NotReady(StreamDpError):
    """Something that another process of the stream is about to do, and that this one has to wait for."""


class Refused(StreamDpError):
    """Going on would break the guarantee or give something wrong.  The message says why, and what to change."""
