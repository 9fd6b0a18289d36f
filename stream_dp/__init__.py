"""Differentially private streaming histograms over labels nobody listed in advance."""

__version__ = "0.1.0"

from stream_dp.releases.subscription import Subscription, read_table, subscribe

__all__ = ["Subscription", "__version__", "read_table", "subscribe"]
