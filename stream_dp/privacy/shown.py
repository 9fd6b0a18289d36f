"""The rules for which labels a round shows."""

from typing import Literal

Shown = Literal["kept", "each-round", "window"]
"""Which labels a round shows: those that have reached their threshold in it or before it, in it alone, or in the last W
rounds, which windows count."""
