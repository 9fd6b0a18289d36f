"""A member of the intake's consumer group as a Faust app: partitions of the events topic in, `<stream>.frames` out.

    stream-dp intake --stream shop
    STREAM_DP_STREAM=shop STREAM_DP_SHARDS=2 STREAM_DP_INTAKE=group STREAM_DP_ROUNDS=ticks \
        faust -A topologies.intake worker

Kafka's group divides the partitions among all processes that run this.  Events are not read through an agent: a
partition goes on where its state in Redis says, and is saved before the group takes it away.
"""

from typing import Any

import faust

from stream_dp.config.reading import load_settings
from stream_dp.workers.intake import IntakeWorker
from topologies.host import WorkerService, hosted


def create_app(service: WorkerService) -> faust.App:
    """The Faust app around one member of the group."""
    settings = service.worker.settings
    return hosted(service, f"{settings.stream}.intake", settings)


def __getattr__(name: str) -> Any:
    """`app` for the `faust` command, made when it asks: importing this module needs no settings."""
    if name == "app":
        return create_app(WorkerService(IntakeWorker(load_settings())))
    raise AttributeError(name)
