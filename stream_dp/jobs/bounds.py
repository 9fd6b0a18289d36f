"""What the parameters of one-shot mechanisms may be, by name: one rule for all mechanisms that take them."""

from collections.abc import Mapping
from typing import Any

from stream_dp.batch.cost import require_count, require_positive
from stream_dp.jobs.rows import SEPARATOR

_LARGEST_EPSILON = 30.0
"""Beyond, what the draws lack at values of the neighbour's noise would not vanish: privacy/one_shot_noise.py."""
LEAST_DELTA = 1e-15
"""The least that a job may guarantee: what draws and thresholds err by is not charged (one_shot_noise.py)."""

MOST_ITEMS = 1_000_000
"""The most that k, kbar and items_per_user may be: above, a threshold and its noise take too much memory."""

_SIZES = ("k", "least", "kbar", "items_per_user", "tokens", "threshold", "most", "marks", "queries")


def check(given: Mapping[str, Any]) -> None:
    """Raise ValueError for values that no mechanism takes."""
    if (epsilon := given.get("epsilon")) is not None:
        require_positive("epsilon", epsilon)
        if epsilon > _LARGEST_EPSILON:
            raise ValueError(f"epsilon must be at most {_LARGEST_EPSILON:g}, not {epsilon:g}.")
    if (delta := given.get("delta")) is not None and not LEAST_DELTA <= delta <= 0.1:
        raise ValueError(f"delta must lie between {LEAST_DELTA:g} and 0.1, not {delta:g}.")
    for name in _SIZES:
        if given.get(name) is not None:
            check_size(name, given[name])
    if given.get("kbar", MOST_ITEMS) < given.get("k", 1):
        raise ValueError(f"k = {given['k']} asks for more than the kbar = {given['kbar']} items: raise kbar.")
    for name, each in (("bins", "label"), ("examples", "example")):
        if given.get(name) is not None:
            check_size(name, len(given[name]))
            if len(set(given[name])) != len(given[name]):
                raise ValueError(f"{name} must name each {each} once.")
    if any(SEPARATOR in example for example in given.get("examples", ())):
        raise ValueError("no example may hold a tab: it separates examples from labels.")


def check_size(name: str, size: int) -> None:
    """Raise ValueError for what is no whole number from 1 to `MOST_ITEMS`."""
    require_count(name, size)
    if size > MOST_ITEMS:
        raise ValueError(f"{name} must be at most {MOST_ITEMS}, not {size}.")
