"""The two rules for which labels a round shows."""

from typing import Literal

Shown = Literal["kept", "each-round"]
"""Which labels a round shows: those that have reached their threshold in it or before it, or in it alone."""
