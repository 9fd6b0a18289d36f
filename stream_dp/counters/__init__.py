"""Continual counters behind one protocol (protocol.py), chosen by the setting `mechanism`."""

from stream_dp.counters.binary import BinaryMechanism

Mechanism = BinaryMechanism
"""A calibrated counter of any kind, as an epoch keeps it."""

DISCRETE = {"binary": BinaryMechanism}
"""By name, those whose noise hides unit shifts of discrete Gaussians: `nodes_per_event` for each item of an event."""

MECHANISMS = ("binary",)
"""All names."""
