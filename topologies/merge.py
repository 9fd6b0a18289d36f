"""The merge of a stream's shards as a Faust app: `<stream>.shards` in, whole rounds in `<stream>.releases` out.

    stream-dp merge --stream shop
    STREAM_DP_STREAM=shop STREAM_DP_SHARDS=4 faust -A topologies.merge worker

It needs no Redis and no key.  Of several, Kafka lets one work, and another take its place.
"""

from typing import Any

import faust

from stream_dp.config.reading import load_settings
from stream_dp.workers.merge import MergeWorker
from topologies.host import WorkerService, hosted


def create_app(service: WorkerService) -> faust.App:
    """The Faust app around the merge."""
    settings = service.worker.settings
    return hosted(service, f"{settings.stream}.merge", settings)


def __getattr__(name: str) -> Any:
    """`app` for the `faust` command, made when it asks: importing this module needs no settings."""
    if name == "app":
        return create_app(WorkerService(MergeWorker(load_settings())))
    raise AttributeError(name)
