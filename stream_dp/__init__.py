"""Differentially private streaming histograms over labels nobody listed in advance."""

__version__ = "0.1.0"

from stream_dp.subscribe import Subscription, subscribe

__all__ = ["Subscription", "__version__", "subscribe"]
