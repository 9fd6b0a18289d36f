"""A member of the shards' consumer group as a Faust app: `<stream>.frames` in, `<stream>.shards` out.

    stream-dp shard --stream shop
    STREAM_DP_STREAM=shop STREAM_DP_SHARDS=4 faust -A topologies.shard worker

Kafka's group divides the shards among all processes that run this.  Frames are not read through an agent: a shard goes
on where its checkpoint in Redis says, and is saved before the group takes it away.
"""

from typing import Any

import faust

from stream_dp.config.reading import load_settings
from stream_dp.workers.shard import ShardWorker
from topologies.host import WorkerService, hosted


def create_app(service: WorkerService) -> faust.App:
    """The Faust app around one member of the group."""
    settings = service.worker.settings
    return hosted(service, f"{settings.stream}.shard", settings)


def __getattr__(name: str) -> Any:
    """`app` for the `faust` command, made when it asks: importing this module needs no settings."""
    if name == "app":
        return create_app(WorkerService(ShardWorker(load_settings())))
    raise AttributeError(name)
