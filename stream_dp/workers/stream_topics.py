"""The topics of a stream before it is worked on: made where they may be made, and refused where they cannot serve."""

import logging

from stream_dp.barriers.topic import needs_barriers, prepare_barriers
from stream_dp.config.settings import Settings
from stream_dp.epochs.journal import check_journal
from stream_dp.epochs.registry import Registry, ledger_as_far_as_known
from stream_dp.epochs.schemas_topic import check_schemas_topic
from stream_dp.events.counted_round import LARGEST_PART
from stream_dp.kafka import log, roles
from stream_dp.kafka.rights import Right
from stream_dp.kafka.time_limits import LIMITS, time_warnings
from stream_dp.sinks.dead_letters import prepare_dead_letters
from stream_dp.sinks.framing import LARGEST_BATCH

logger = logging.getLogger(__name__)


def prepare_topics(settings: Settings, registry: Registry) -> None:
    """Make sure that all topics of a worker can serve; warns of what they may lose.  Raises `LogRefused`."""
    kafka, events, ledger = settings.kafka_address, settings.events, registry.ledger_of(settings.data_source)
    if settings.create_topics:
        log.create_topics(kafka, *((events,) if settings.owns_events else ()), settings.epochs)
        _create_releases(settings)
    found = log.describe_all(
        kafka, (events, settings.releases, settings.epochs, ledger), *log.CHECKED, *LIMITS
    )
    if events not in found:
        raise log.missing(events, many_partitions=True)
    for warning in log.check_topic(kafka, events, many_partitions=True, found=found[events]):
        logger.warning(warning)
    _check_releases(settings, found.get(settings.releases))
    for journal in (settings.epochs, ledger) if ledger in found else (settings.epochs,):
        check_journal(kafka, journal, found.get(journal))
        for warning in time_warnings(settings, journal, found.get(journal)):
            logger.warning(warning)
    if needs_barriers(settings, found[events].partitions):
        prepare_barriers(settings)
    if settings.mapping is not None and settings.mapping.names_schemas:
        if settings.create_topics:
            log.create_topics(kafka, settings.schemas)
        check_schemas_topic(settings)
    if settings.engine != "worker":
        prepare_counts_topic(settings)
    prepare_dead_letters(settings)


def prepare_counts_topic(settings: Settings) -> None:
    """Make sure that the counts topic can serve."""
    if settings.create_topics:
        log.create_topics(settings.kafka_address, settings.counts)
    for warning in log.check_topic(settings.kafka_address, settings.counts, LARGEST_PART):
        logger.warning(warning)


def worker_rights(settings: Settings, registry: Registry | None = None) -> list[Right]:
    """What the worker needs in Kafka; the topic of charges is the default one if this user may not read which it is."""
    source = settings.data_source
    if registry is not None:
        return roles.worker(settings, registry.ledger_of(source))
    return roles.worker(settings, ledger_as_far_as_known(settings.kafka_address, source))


def prepare_releases_topic(settings: Settings) -> None:
    """Make sure that the releases topic can serve, and warn if it keeps releases longer or shorter than it should."""
    if settings.create_topics:
        _create_releases(settings)
    _check_releases(settings)


def _create_releases(settings: Settings) -> None:
    days = settings.releases_retention_days
    log.create_topics(settings.kafka_address, settings.releases, retention_days=days)


def _check_releases(settings: Settings, found: log.Described | None = None) -> None:
    topic, days = settings.releases, settings.releases_retention_days
    checked = log.check_topic(settings.kafka_address, topic, LARGEST_BATCH, retention_days=days, found=found)
    for warning in checked + time_warnings(settings, topic, found):
        logger.warning(warning)
