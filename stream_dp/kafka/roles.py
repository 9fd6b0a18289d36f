"""The rights in Kafka that each process of a stream needs, and no others.

A test on Apache Kafka gives a user exactly these, and takes each away in turn (tests/system/test_rights.py).
"""

from stream_dp.config.settings import Settings
from stream_dp.config.topic_names import SOURCES
from stream_dp.events.rounds import TICKS
from stream_dp.kafka.rights import Operation, Right

_LOG: tuple[Operation, ...] = ("READ", "WRITE", "DESCRIBE_CONFIGS")


def _topic(name: str, *operations: Operation) -> list[Right]:
    return [Right(name, each) for each in operations]


def _made(settings: Settings, *topics: str) -> list[Right]:
    """What it takes to make topics that are not there yet, where the settings say that the process makes them."""
    return [Right(each, "CREATE") for each in topics if settings.create_topics]


def _follower(settings: Settings, topic: str) -> list[Right]:
    """What it takes to write a topic that follows from the releases."""
    return _topic(settings.releases, "READ") + _topic(topic, *_LOG) + _made(settings, topic)


def worker(settings: Settings, ledger: str, partitions: int = 1) -> list[Right]:
    """What the worker needs for an events topic of so many partitions, but for dead letters, without which it goes on.

    `ledger` is the topic of the source's charges.  The data source is registered before, by an operator:
    `stream-dp budget set` does it.
    """
    topics = [settings.epochs, ledger, settings.releases]
    needed = _topic(settings.events, "READ", "DESCRIBE_CONFIGS") + _topic(SOURCES, "READ")
    needed += _topic(settings.epochs, *_LOG) + _topic(ledger, *_LOG)
    needed += _topic(settings.releases, *_LOG)
    if settings.rounds == TICKS or partitions > 1:
        topics += [settings.barriers]
        needed += _topic(
            settings.barriers, *(_LOG if settings.write_barriers else ("READ", "DESCRIBE_CONFIGS"))
        )
    if settings.mapping is not None and settings.mapping.names_schemas:
        topics += [settings.schemas]
        needed += _topic(settings.schemas, *_LOG)
    if settings.engine != "worker":
        topics += [settings.counts]
        needed += _topic(settings.counts, "READ", "DESCRIBE_CONFIGS")
    ours = [settings.events] if settings.owns_events else []
    return needed + _made(settings, *ours, *topics)


def dead_letters(settings: Settings) -> list[Right]:
    """What the worker needs to write dead letters; without it they wait in memory, and are lost when it ends."""
    return _topic(settings.dead_letters, "WRITE", "DESCRIBE_CONFIGS") + _made(settings, settings.dead_letters)


def spark(settings: Settings) -> list[Right]:
    """What the driver and the executors of `stream-dp spark` need, but for dead letters."""
    needed = _topic(settings.events, "READ", "DESCRIBE_CONFIGS") + _topic(settings.epochs, "READ")
    needed += _topic(settings.barriers, "READ") + _topic(settings.counts, "READ", "WRITE", "DESCRIBE_CONFIGS")
    topics = [settings.counts]
    if settings.mapping is not None and settings.mapping.names_schemas:
        topics += [settings.schemas]
        needed += _topic(settings.schemas, *_LOG)
    return needed + _made(settings, *topics)


def barriers_writer(settings: Settings) -> list[Right]:
    """What `stream-dp barriers` needs; it reads no event."""
    return (
        _topic(settings.events, "DESCRIBE")
        + _topic(settings.epochs, "READ")
        + _topic(settings.barriers, "READ", "WRITE")
    )


def table_writer(settings: Settings) -> list[Right]:
    """What `stream-dp table` needs."""
    return _follower(settings, settings.table)


def windows_writer(settings: Settings) -> list[Right]:
    """What `stream-dp windows` needs."""
    return _follower(settings, settings.windows_topic)


def history_writer(settings: Settings) -> list[Right]:
    """What `stream-dp history` needs."""
    return _follower(settings, settings.history_topic)


def dashboard(settings: Settings) -> list[Right]:
    """What the dashboard needs.  It shows the results of jobs too where it may read their topic."""
    return _topic(settings.releases, "READ") + _topic(settings.epochs, "READ")


def subscriber(settings: Settings) -> list[Right]:
    """What a program that subscribes needs, and `stream-dp tail`."""
    return _topic(settings.releases, "READ")


def jobs_worker(settings: Settings, ledger: str) -> list[Right]:
    """What `stream-dp jobs worker` needs."""
    return (
        _topic(settings.jobs, "READ")
        + _topic(settings.results, "READ", "WRITE")
        + _topic(SOURCES, "READ")
        + _topic(settings.events, "READ", "DESCRIBE_CONFIGS")
        + _topic(ledger, *_LOG)
    )


def one_shot(settings: Settings, ledger: str) -> list[Right]:
    """What `stream-dp histogram` and its like need to read the stream's events and to publish their result."""
    return (
        _topic(settings.events, "READ", "DESCRIBE_CONFIGS")
        + _topic(SOURCES, "READ")
        + _topic(ledger, *_LOG)
        + _topic(settings.results, "READ", "WRITE")
        + _made(settings, ledger, settings.results)
    )


def erase(settings: Settings, copy: str) -> list[Right]:
    """What `stream-dp erase` needs to copy the events topic into another one, which it makes."""
    return (
        _topic(settings.events, "READ", "DESCRIBE_CONFIGS")
        + _topic(copy, "CREATE", "WRITE")
        + _topic(SOURCES, *_LOG)
        + _topic(settings.dead_letters, "DELETE")
    )
