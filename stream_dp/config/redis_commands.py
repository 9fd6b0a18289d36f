"""How commands are sent to Redis: large values from where they are, and no error repeats what was sent."""

from typing import Any, cast

from redis import Redis
from redis.client import Pipeline
from redis.connection import HiredisRespSerializer

LARGE = 1 << 16
"""So many bytes are a large value."""

_NOTHING = b"$0\r\n\r\n"  # an empty value at the end of a command


class UncopiedValues(HiredisRespSerializer):
    """The same bytes as redis-py sends, but for a large value at the end of a command, which hiredis would copy.

    All commands of a transaction are packed before the first is sent, so copies of a checkpoint would be as large as
    the checkpoint.
    """

    def pack(self, *args: Any) -> list[bytes]:
        """The pieces of one command."""
        value, nothing = args[-1], cast(Any, b"")
        if not isinstance(value, bytes) or len(value) < LARGE:
            return super().pack(*args)
        begun = b"".join(super().pack(*args[:-1], nothing)).removesuffix(_NOTHING)
        return [begun + b"$%d\r\n" % len(value), value, b"\r\n"]


class QuietRedis(Redis):
    """A client whose transactions fail with what Redis has answered: redis-py adds the command, with labels in it."""

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> Pipeline:
        """See redis-py."""
        return _QuietPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)


class _QuietPipeline(Pipeline):
    def annotate_exception(self, exception: Exception, number: int, command: Any) -> None:
        """Leave the exception as it is."""
