"""Differentially private streaming histograms over labels nobody listed in advance.

The names below are all that other programs should import; docs/reference.md describes them.  Each is loaded when it is
first used, so that importing the package takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stream_dp.errors import needs_extra

if TYPE_CHECKING:
    from stream_dp.config.connections import KafkaAddress, TlsFiles
    from stream_dp.config.secret import SettingsError
    from stream_dp.engine.histogram import HorizonReached
    from stream_dp.errors import Refused, StreamDpError
    from stream_dp.jobs.request import BadRequest
    from stream_dp.jobs.results_table import results
    from stream_dp.kafka.log import LogRefused
    from stream_dp.local.calibration import Calibration, calibrate
    from stream_dp.local.histogram import Histogram, run
    from stream_dp.local.key_file import KeyFileRefused
    from stream_dp.local.ledger import Ledger
    from stream_dp.local.one_shot import Answer, histogram, label_votes, set_union, top_k
    from stream_dp.notebook.live import watch
    from stream_dp.releases.history import history
    from stream_dp.releases.lookup import release_at
    from stream_dp.releases.smoothing import Smoother
    from stream_dp.releases.subscribe import read_table, subscribe
    from stream_dp.releases.subscription import Subscription
    from stream_dp.releases.table_topic import Table
    from stream_dp.releases.topic import BadPosition
    from stream_dp.releases.whole_release import WholeRelease
    from stream_dp.releases.windows import Window

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "BadPosition",
    "BadRequest",
    "Calibration",
    "Histogram",
    "HorizonReached",
    "KafkaAddress",
    "KeyFileRefused",
    "Ledger",
    "LogRefused",
    "Refused",
    "SettingsError",
    "Smoother",
    "StreamDpError",
    "Subscription",
    "Table",
    "TlsFiles",
    "WholeRelease",
    "Window",
    "__version__",
    "calibrate",
    "histogram",
    "history",
    "label_votes",
    "read_table",
    "release_at",
    "results",
    "run",
    "set_union",
    "subscribe",
    "top_k",
    "watch",
]

_HOMES = {
    "config.connections": ("KafkaAddress", "TlsFiles"),
    "config.secret": ("SettingsError",),
    "engine.histogram": ("HorizonReached",),
    "errors": ("Refused", "StreamDpError"),
    "jobs.request": ("BadRequest",),
    "jobs.results_table": ("results",),
    "kafka.log": ("LogRefused",),
    "local.calibration": ("Calibration", "calibrate"),
    "local.histogram": ("Histogram", "run"),
    "local.key_file": ("KeyFileRefused",),
    "local.ledger": ("Ledger",),
    "local.one_shot": ("Answer", "histogram", "label_votes", "set_union", "top_k"),
    "notebook.live": ("watch",),
    "releases.smoothing": ("Smoother",),
    "releases.history": ("history",),
    "releases.lookup": ("release_at",),
    "releases.subscribe": ("read_table", "subscribe"),
    "releases.subscription": ("Subscription",),
    "releases.table_topic": ("Table",),
    "releases.topic": ("BadPosition",),
    "releases.whole_release": ("WholeRelease",),
    "releases.windows": ("Window",),
}

_EXTRAS = {"releases": "estimates", "releases.history": "local", "notebook": "notebook"}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            extra = _EXTRAS.get(home) or _EXTRAS.get(home.partition(".")[0], "local")
            with needs_extra(f"stream_dp.{name}", extra):
                return getattr(import_module(f"stream_dp.{home}"), name)
    raise AttributeError(f"module 'stream_dp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
