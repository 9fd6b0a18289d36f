"""What a user may do in Kafka, and what to say when a right is missing.

Kafka tells with each topic what the user who asks may do there.  A topic that they may not even describe it hides, and
its clients then find no partitions, wait, or say nothing at all.  So whoever fails asks here which rights are missing.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

from kafka.errors import (
    AuthorizationError,
    KafkaError,
    TopicAuthorizationFailedError,
)

from stream_dp.config.connections import Kafka
from stream_dp.errors import Refused
from stream_dp.kafka.clients import admin_client, borrowed

Operation = Literal["READ", "WRITE", "CREATE", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS"]
_NO_PRODUCER = "ClusterAuthorizationFailedError"
"""What a producer of kafka-python is told, in the text of a plain KafkaError, if its user may write to no topic."""

_A_NAME = re.compile(r"[A-Za-z0-9._+-]{1,249}")


class Right(NamedTuple):
    """A right as Kafka's ACLs have it.  READ and WRITE imply DESCRIBE."""

    topic: str
    operation: Operation


class NotPermitted(TopicAuthorizationFailedError):
    """Kafka has refused something for want of this right."""

    def __init__(self, right: Right) -> None:
        super().__init__(right)
        self.right = right

    def __str__(self) -> str:
        return told([self.right])


def told(rights: Iterable[Right]) -> str:
    """The sentence that names the rights that are missing.

    >>> told([Right("orders", "READ"), Right("orders", "DESCRIBE_CONFIGS")]).partition(":")[0]
    "Kafka does not give this user the right READ and DESCRIBE_CONFIGS on the topic 'orders'"
    """
    operations: dict[str, list[str]] = {}
    for topic, operation in dict.fromkeys(rights):
        operations.setdefault(topic, []).append(operation)
    places = [f"{' and '.join(each)} on the topic {topic!r}" for topic, each in operations.items()]
    return (
        f"Kafka does not give this user the right {', '.join(places)}: have an administrator give it; "
        "`stream-dp check --rights` lists all that a stream needs, and the commands"
    )


def rights_on(kafka: Kafka, topic: str) -> set[str] | None:
    """What this user may do with the topic, such as READ and WRITE; None where the broker does not tell.

    Empty where they may not even know whether there is such a topic.
    """
    return _rights_on(kafka, [topic])[topic]


def _rights_on(kafka: Kafka, topics: list[str]) -> dict[str, set[str] | None]:
    """See `rights_on`: those on each of these topics."""
    with borrowed(admin_client, kafka) as admin:
        described = admin.describe_topics(topics)
    return {
        each["name"]: set()
        if each["error_code"] == TopicAuthorizationFailedError.errno
        else set(each["authorized_operations"] or ()) or None
        for each in described
    }


def missing_rights(kafka: Kafka, needed: Iterable[Right]) -> list[Right] | None:
    """Which of the `needed` rights this user lacks; None if the broker tells nothing of rights.  Raises KafkaError.

    Whether a topic that does not exist could be made it does not tell.
    """
    needed = list(needed)
    given = _rights_on(kafka, list(dict.fromkeys(each.topic for each in needed)))
    if all(found is None for found in given.values()):
        return None
    return [each for each in needed if _is_missing(each, given[each.topic])]


def _is_missing(right: Right, given: set[str] | None) -> bool:
    if given is None:
        return False
    return right.operation not in given and (right.operation != "CREATE" or not given)


def require_rights(kafka: Kafka, needed: Iterable[Right]) -> None:
    """Raise `Refused` if this user lacks any of the `needed` rights, as far as the broker tells."""
    if missing := missing_rights(kafka, needed):
        raise Refused(told(missing))


def refuse_without_rights(kafka: Kafka, needed: Iterable[Right], failure: Exception) -> None:
    """Raise `Refused` where `failure` comes from a right that this user lacks; else it is something else."""
    if not _is_of_kafka(failure):
        return
    refused = [failure.right] if isinstance(failure, NotPermitted) else []
    needed = [*needed, *refused]
    try:
        missing = missing_rights(kafka, needed)
    except KafkaError:
        missing = None
    if missing is None:  # nobody tells, so the failure itself has to
        missing = [each for each in needed if each.topic in _refused_names(failure)]
    # Nobody ever tells of a topic that does not exist whether it may be made, so a refusal to make it is believed.
    missing += [each for each in refused if each.operation == "CREATE" and each not in missing]
    if missing:
        raise Refused(told(missing)) from failure


@contextmanager
def naming(operation: Operation, topic: str) -> Iterator[None]:
    """Around what needs this right: a refusal of the broker then says which.  Raises `NotPermitted`."""
    try:
        yield
    except NotPermitted:
        raise
    except KafkaError as error:
        if isinstance(error, AuthorizationError) or _NO_PRODUCER in str(error):
            name = min(_refused_names(error), default=topic)
            raise NotPermitted(Right(name, operation)) from error
        raise


def require_seen(kafka: Kafka, topic: str, operation: Operation = "READ") -> None:
    """Raise `NotPermitted`, which names what is needed, if this user may not know whether there is such a topic."""
    if rights_on(kafka, topic) == set():
        raise NotPermitted(Right(topic, operation))


def _is_of_kafka(failure: Exception) -> bool:
    """Whether an error is of either Kafka client: told by name, because subscribers install only one of them."""
    return KafkaError.__name__ in [kind.__name__ for kind in type(failure).__mro__]


def _refused_names(failure: Exception) -> set[str]:
    """The topics that the broker has refused, as the clients say it."""
    if not _is_of_kafka(failure) or getattr(failure, "errno", None) != TopicAuthorizationFailedError.errno:
        return set()
    names: set[str] = set()
    for argument in failure.args:
        if isinstance(argument, Right):
            names.add(argument.topic)
        elif isinstance(argument, str):
            names.add(argument)
        elif isinstance(argument, set | frozenset | list | tuple):
            names.update(map(str, argument))
    return {
        each for each in names if _A_NAME.fullmatch(each)
    }  # an admin client gives the request and the answer
