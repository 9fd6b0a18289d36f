"""Continual counters behind one protocol (protocol.py), chosen by the setting `mechanism`."""

from stream_dp.counters.binary import BinaryMechanism
from stream_dp.counters.blt import BltMechanism
from stream_dp.counters.honaker import HonakerMechanism
from stream_dp.counters.smooth import SmoothMechanism

Mechanism = BinaryMechanism | HonakerMechanism | SmoothMechanism | BltMechanism
"""A calibrated counter of any kind, as an epoch keeps it."""

DISCRETE: dict[str, type[BinaryMechanism] | type[HonakerMechanism] | type[SmoothMechanism]] = {
    "binary": BinaryMechanism,
    "honaker": HonakerMechanism,
    "smooth": SmoothMechanism,
}
"""By name, those whose noise hides unit shifts of discrete Gaussians."""

MECHANISMS = (*DISCRETE, "blt")
"""All names."""
