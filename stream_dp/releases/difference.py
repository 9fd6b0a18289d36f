"""Whether one noisy number is larger than another: their difference, with its interval."""

from math import hypot
from typing import NamedTuple


class Difference(NamedTuple):
    """How much larger one count is than another, between `low` and `high`."""

    value: float
    low: float
    high: float

    @property
    def answer(self) -> str:
        """Whether the first one is larger.

        >>> Difference(30.0, 12.5, 47.5).answer, Difference(3.0, -14.5, 20.5).answer
        ('above', 'cannot tell')
        """
        return "above" if self.low > 0 else "below" if self.high < 0 else "cannot tell"


def difference_of(first: tuple[float, float], second: tuple[float, float]) -> Difference:
    """The difference of two counts with independent noise, from their intervals.

    Variances add up, so half the length of its interval is the root of the sum of both halves' squares.

    >>> difference_of((90, 110), (60, 80))
    Difference(value=30.0, low=15.857864376269049, high=44.14213562373095)
    """
    (low, high), (other_low, other_high) = first, second
    value = (low + high - other_low - other_high) / 2
    reach = hypot(high - low, other_high - other_low) / 2
    return Difference(value, value - reach, value + reach)
