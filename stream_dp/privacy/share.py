"""A noisy number as a part of another noisy number: shares, with intervals."""

from math import ceil, floor, sqrt
from statistics import NormalDist
from typing import Annotated

import msgspec

Part = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Share(msgspec.Struct, frozen=True):
    """A part of a whole, from 0 to 1, between `low` and `high`."""

    value: Part
    low: Part
    high: Part

    @property
    def percent(self) -> str:
        """For people; the ends are rounded outwards.

        >>> Share(0.4512, 0.4432, 0.4601).percent
        '45% (44% to 47%)'
        """
        low, high = floor(100 * self.low), ceil(100 * self.high)
        return f"{100 * self.value:.0f}% ({low}% to {high}%)"


def share_of(
    part: float,
    part_sd: float,
    whole: float,
    whole_sd: float,
    confidence: float = 0.95,
    covariance: float = 0.0,
) -> Share | None:
    """part / whole, both with normal noise of this `covariance`; None if the whole may be nothing.

    The ends are those of Fieller (1954): the ratios r for which part - r whole is as near to 0 as its noise explains.
    Raises ValueError for a confidence outside (0, 1).
    """
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence is between 0 and 1, not {confidence}")
    reach = NormalDist().inv_cdf((1 + confidence) / 2)
    a, c = (value**2 - (reach * sd) ** 2 for value, sd in ((whole, whole_sd), (part, part_sd)))
    b = part * whole - reach**2 * covariance
    if a <= 0 or whole <= 0:
        return None
    root = sqrt(max(0.0, b * b - a * c))
    return Share(*(min(1.0, max(0.0, each)) for each in (part / whole, (b - root) / a, (b + root) / a)))


def share_between(
    low: float, high: float, whole: float | None, whole_sd: float | None, confidence: float = 0.95
) -> Share | None:
    """A count with this interval as a part of a whole; None if that is not known, or may be nothing."""
    if whole is None or whole_sd is None:
        return None
    sd = (high - low) / 2 / NormalDist().inv_cdf((1 + confidence) / 2)
    return share_of((low + high) / 2, sd, whole, whole_sd, confidence)


def share_over_cap(over: float | None, units: float | None, sd: float | None) -> Share | None:
    """Both with noise of this standard deviation; None if one is not known, or the units may be none."""
    return None if over is None or units is None or sd is None else share_of(over, sd, units, sd)
