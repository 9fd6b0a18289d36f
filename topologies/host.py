"""The Faust app around one service: Faust keeps its lifecycle, the signals and the web port, and nothing else."""

import tempfile
from typing import Any, cast

import faust
from faust.app.base import BootStrategy

from stream_dp.settings import Settings


def hosted(service: faust.Service, name: str, settings: Settings) -> faust.App:
    """An app that runs `service`.  Its web port is closed unless set, and never serves tables."""
    app = faust.App(
        name,
        broker=f"kafka://{settings.kafka}",
        datadir=f"{tempfile.gettempdir()}/{name}",  # Faust insists on a folder; nothing is kept there
        web_host="127.0.0.1",
        web_port=settings.web_port or None,
        web_tables_enabled=False,
        web_router_enabled=False,
        autodiscover=False,
    )
    # Decided here, because the faust command turns web_enabled on by itself.
    app.boot_strategy = BootStrategy(app, enable_kafka=False, enable_web=settings.web_port > 0)
    app.service(cast(Any, service))  # Faust takes instances too, its types only classes
    return app
