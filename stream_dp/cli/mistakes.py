"""Mistakes that the user can correct: they end a command with one sentence and status 2, not a stack trace."""

from stream_dp.errors import Refused

_SERVERS = {"kafka.errors.KafkaError": "Kafka", "redis.exceptions.RedisError": "Redis"}
"""By the errors that their clients raise: by name, so that no command loads a client for this."""


_NOT_PERMITTED = "stream_dp.kafka.rights.NotPermitted"


class Mistake(Exception):
    """Something the user can put right; the message says what, in one sentence."""


def sentence(error: Exception) -> str | None:
    """What to tell the user about `error`; None for a defect of this program, which deserves its stack trace."""
    names = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__]
    if isinstance(error, Mistake | Refused) or _NOT_PERMITTED in names:
        return str(error)
    server = next((_SERVERS[name] for name in names if name in _SERVERS), None)
    if server is None:
        return None
    return f"{server} did not do what was asked ({error}): check that it runs and what it permits"
