"""Errors that are the user's to mend: they end a command with one sentence and status 2, not a stack trace."""

from stream_dp.errors import Refused


class Mistake(Exception):
    """Something the user can put right; the message says what, in one sentence."""


def sentence(error: Exception) -> str | None:
    """What to tell the user about `error`; None for a defect of this program, which deserves its stack trace."""
    if not isinstance(error, Mistake | Refused):
        # Imported only now: together they take a second, which no command that works should wait for.
        from kafka.errors import KafkaError
        from redis.exceptions import RedisError

        from stream_dp.dev.child_process import ServerFailed

        if isinstance(error, KafkaError | RedisError):
            server = "Kafka" if isinstance(error, KafkaError) else "Redis"
            return f"{server} did not do what was asked ({error}): check that it runs and what it permits"
        if not isinstance(error, ServerFailed):
            return None
    return str(error)
