"""The running histogram as a Faust app: `<stream>.events` in, `<stream>.releases` out, or frames for its shards.

    stream-dp worker --stream shop
    STREAM_DP_STREAM=shop faust -A topologies.running_histogram worker

Faust keeps the lifecycle, the supervision, the signals and the web port.  Events are not read through an agent:
batches go straight from the client to the pipeline, and the checkpoint in Redis, not the group's offset, decides
where work resumes.
"""

from typing import Any

import faust

from stream_dp.config.reading import load_settings
from stream_dp.workers.histogram import Worker
from topologies.host import WorkerService, hosted


def create_app(service: WorkerService) -> faust.App:
    """The Faust app around the stream's worker."""
    settings = service.worker.settings
    return hosted(service, f"{settings.stream}.running-histogram", settings)


def __getattr__(name: str) -> Any:
    """`app` for the `faust` command, made when it asks: importing this module needs no settings."""
    if name == "app":
        return create_app(WorkerService(Worker(load_settings())))
    raise AttributeError(name)
