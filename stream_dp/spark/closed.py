"""Whether Spark keeps what it counts to itself: its page and its logs tell how much that is, which is private."""

from collections.abc import Mapping

from stream_dp.errors import Refused

_EVERYWHERE = {
    "spark.ui.enabled": ("false", "true", "its page answers without a login, and shows how much was counted"),
    "spark.eventLog.enabled": ("false", "false", "its event log keeps plans, sizes and errors"),
}
_BETWEEN_MACHINES = {
    "spark.authenticate": ("true", "false", "anybody could run tasks, and read the noise key with them"),
    "spark.network.crypto.enabled": (
        "true",
        "false",
        "counts and settings would cross the network in the clear",
    ),
    "spark.io.encryption.enabled": ("true", "false", "what it keeps on disk would be in the clear"),
}
"""By setting: the value that it must have, the one that Spark takes without it, and why."""


class SparkOpen(Refused):
    """Spark would show what is private; the message says which settings to add."""


def require_closed(settings: Mapping[str, str]) -> None:
    """Raise `SparkOpen` unless these settings of a Spark application keep what it counts to itself."""
    is_local = settings.get("spark.master", "local").startswith("local")
    wanted = _EVERYWHERE if is_local else _EVERYWHERE | _BETWEEN_MACHINES
    wrong = {
        name: (value, why)
        for name, (value, default, why) in wanted.items()
        if settings.get(name, default).lower() != value
    }
    if wrong:
        reasons = "; ".join(f"{name} = {value}, else {why}" for name, (value, why) in wrong.items())
        raise SparkOpen(f"Spark would show what is private: set {reasons}")
