"""Intervals of counts that are released because they are large: what lifted them over a threshold is allowed for.

A count y = c + N is released if y >= t, and then N is no noise like any other: of labels that are about as frequent as
the threshold asks, those are seen whose noise is high.  So c is not in y - 1.96 sd .. y + 1.96 sd in 95% of cases, but
in 80% or fewer where all labels are near t.  What is the law of y given that it is released?

    low: the c at which P(N >= y - c) / P(N >= t - c) is 2.5%.  The ratio grows with c, so it holds for that c or more.
    high: the c at which P(N <= y - c) is 2.5%.  Given y >= t this is less, so high errs on the safe side.

(Fithian, Sun and Taylor 2014: what is conditional on being selected is right for all that are.)  Where t is not known,
the least y that is released stands for it: it is t or more, and low falls as t rises.  Of a count right at t the first
says nothing, so low is at least y less what no noise of any of `LABELS` labels exceeds (Andrews, Kitagawa and McCloskey
2019, "hybrid"), but for a chance of 1%.

Counts are whole numbers and their noise is discrete: tails are those of the continuous law, and ends are rounded
outwards.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtri

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]
Law = Literal["normal", "laplace"]

LABELS = 10_000_000
_MISSED = 0.025
_OUTERMOST = 0.01 / LABELS
_HALVINGS = 60
_ROOT_2 = float(np.sqrt(2))


def interval_ends(counts: Integers, sd: float, law: Law, least: int | None) -> tuple[Integers, Integers]:
    """The ends of 95% intervals of true counts, int64 of the shape of `counts`, which are noisy.

    `sd`: of the noise.  `least`: from which noisy count on they were released; None if all were.
    """
    reach = _point(law, _MISSED) * sd
    low = counts - reach if least is None else lower_ends(counts, sd, law, least, _MISSED)
    return _whole(np.floor(low)), _whole(np.ceil(counts + reach))


def lower_ends(counts: Integers, sd: float, law: Law, least: int, missed: float) -> Reals:
    """The counts above which the true ones lie but for a chance of `missed`, not rounded; see `interval_ends`."""
    tail = _log_tail(law)
    outer, inner = counts - _point(law, min(_OUTERMOST, missed)) * sd, counts - _point(law, missed) * sd
    for _ in range(_HALVINGS):
        middle = (outer + inner) / 2
        above = tail((counts - middle) / sd) - tail((least - middle) / sd)
        is_out = above < np.log(missed)
        outer, inner = np.where(is_out, middle, outer), np.where(is_out, inner, middle)
    return np.asarray(outer, np.float64)


def _whole(ends: Reals) -> Integers:
    return np.maximum(0, ends).astype(np.int64)


def _point(law: Law, chance: float) -> float:
    """How many standard deviations noise exceeds with this chance."""
    return float(-ndtri(chance)) if law == "normal" else float(-np.log(2 * chance)) / _ROOT_2


def _log_tail(law: Law) -> Callable[[Reals], Reals]:
    """The logarithm of the chance that noise is so many standard deviations or more."""
    return (lambda x: log_ndtr(-x)) if law == "normal" else _log_laplace_tail


def _log_laplace_tail(x: Reals) -> Reals:
    scaled = _ROOT_2 * x
    return np.where(scaled > 0, -np.log(2) - scaled, np.log1p(-np.exp(np.minimum(scaled, 0)) / 2))
