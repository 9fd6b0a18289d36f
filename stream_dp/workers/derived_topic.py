"""Keeps a topic that follows from the releases alone, such as the table, and waits for servers that are away."""

import logging
from collections.abc import Callable
from threading import Event

from kafka.errors import KafkaError

from stream_dp.config.settings import Settings
from stream_dp.kafka import log
from stream_dp.kafka.outages import Outages
from stream_dp.kafka.rights import require_seen
from stream_dp.operations.retry import Attempts, Needed
from stream_dp.workers.topic_watch import TopicChanged

logger = logging.getLogger(__name__)

_AGAIN_SECONDS = 1.0


def keep(settings: Settings, needed: Needed, follow: Callable[[], None], stopping: Event) -> None:
    """Call `follow` whenever there are releases to read, until `stopping`.

    `follow` returns when it is stopped, and raises `TopicChanged` or KafkaError where it has to begin again.  `needed`:
    the rights without which it cannot go on.  Raises `LogRefused` as `follow` does, and `Refused`.
    """
    outages = Outages()
    attempts = Attempts(settings, needed, outages)
    while not stopping.is_set():
        attempts.begin()
        wait = _AGAIN_SECONDS
        try:
            if log.existing(settings.kafka_address, settings.releases):
                outages.over()
                follow()
            else:
                require_seen(settings.kafka_address, settings.releases)
                logger.info("waiting for the topic %r, which the worker makes", settings.releases)
        except TopicChanged as changed:
            logger.warning("the topic %r was changed or re-created: starting over", changed.topic)
        except (KafkaError, OSError) as outage:
            wait = attempts.failed(outage)
        stopping.wait(wait)
