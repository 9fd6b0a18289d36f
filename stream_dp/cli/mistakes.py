"""Mistakes that the user can correct: they end a command with one sentence and status 2, not a stack trace."""

from stream_dp.config.secret import REDIS_LOGIN
from stream_dp.errors import NotReady, Refused, spoken

_SERVERS = {"kafka.errors.KafkaError": "Kafka", "redis.exceptions.RedisError": "Redis"}
"""By the errors that their clients raise: by name, so that no command loads a client for this."""


_SPEAK_FOR_THEMSELVES = {"stream_dp.kafka.rights.NotPermitted", "stream_dp.kafka.clients.NotAuthenticated"}


JSON_LINES = f"{__name__}.json_lines"
"""The entry of a command's context that says that all it writes is to be lines of JSON."""


class Mistake(Exception):
    """Something the user can put right; the message says what, in one sentence."""


def sentence(error: Exception) -> str | None:
    """What to tell the user about `error`; None for a defect of this program, which deserves its stack trace."""
    names = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__]
    if isinstance(error, Mistake | Refused | NotReady) or _SPEAK_FOR_THEMSELVES & {*names}:
        return str(error)
    if "redis.exceptions.AuthenticationError" in names:
        return f"Redis refuses the user or the password ({error}): {REDIS_LOGIN}"
    server = next((_SERVERS[name] for name in names if name in _SERVERS), None)
    if server is None:
        return None
    return f"{server} did not do what was asked ({spoken(error)}): check that it runs and what it permits"
