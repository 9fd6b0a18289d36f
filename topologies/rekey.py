"""What copies a topic by user as a Faust app: the data source in, the stream's events topic out.

    stream-dp rekey --settings stream.toml

Records are not read through an agent: they and how far they were read are written in one transaction.
"""

from typing import Any

import faust

from stream_dp.config.reading import load_settings
from stream_dp.workers.rekey import Rekeyer
from topologies.host import WorkerService, hosted


def create_app(service: WorkerService) -> faust.App:
    """The Faust app around the one that copies."""
    settings = service.worker.settings
    return hosted(service, f"{settings.stream}.rekey", settings)


def __getattr__(name: str) -> Any:
    """`app` for the `faust` command, made when it asks: importing this module needs no settings."""
    if name == "app":
        return create_app(WorkerService(Rekeyer(load_settings())))
    raise AttributeError(name)
