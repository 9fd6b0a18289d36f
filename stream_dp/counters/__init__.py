"""Continual counters behind one protocol (protocol.py), chosen by the setting `mechanism`."""

from stream_dp.counters.binary import BinaryMechanism
from stream_dp.counters.blt import BltMechanism
from stream_dp.counters.honaker import HonakerMechanism
from stream_dp.counters.smooth import SmoothMechanism
from stream_dp.counters.window import WindowMechanism

Mechanism = BinaryMechanism | HonakerMechanism | SmoothMechanism | BltMechanism | WindowMechanism
"""A calibrated counter of any kind, as an epoch keeps it."""

DISCRETE: dict[str, type[BinaryMechanism] | type[HonakerMechanism] | type[SmoothMechanism]] = {
    "binary": BinaryMechanism,
    "honaker": HonakerMechanism,
    "smooth": SmoothMechanism,
}
"""By name, those whose noise hides unit shifts of discrete Gaussians."""

MECHANISMS = (*DISCRETE, "blt")
"""The names of all that count since an epoch's first round, up to a horizon."""

WINDOW = "window"
"""The name of the one that counts the last rounds, for ever."""
