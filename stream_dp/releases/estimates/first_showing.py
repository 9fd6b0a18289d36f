"""How large the noise of a kept label is when the label is first shown.

A label is shown from the first tested round T on in which its noisy count y reaches tau.  That round is no accident:
the noise that lifts a label over its threshold is the largest of many, so y - 1.96 sd .. y + 1.96 sd hardly ever holds
the true count at T where noise changes much from round to round.

The law.  Say that the true count has grown evenly, x l / T after round l, and write n = (y - x) / sd(T) for the noise.
Then n has, up to a factor, the density

    exp(-n^2 / 2)  *  1/x  *  P(no tested round l < T reaches tau(l) | n),

with 1/x because no size of a label is likelier than another before it is seen.  Given n, the noise of an earlier round
is normal with mean corr(l, T) n sd(l).  What is left of it is taken for a common factor, a quarter of its variance, and
independent rests.  Given the factor, so many rounds cross as their probabilities add up to, in clumps of two, so that

    P(no crossing | n, factor) = exp(-1/2 sum over l < T of Phibar((tau(l) - x l / T - E noise - factor) / rest)).

The sum runs over few rounds, each for the rounds around it.  The quarter and the two were chosen by simulation of
labels that grow evenly.  Those of real logs do not quite, so the standard deviation of n is taken a tenth larger
(`python -m benchmarks intervals` says how often the intervals hold).

Afterwards.  A first crossing needs a peak, and a peak is forgotten faster than any other noise: at round t the noise is
taken for normal with correlation corr(T, t)^2, not corr(T, t), to that at T.  That, too, was found by simulation.

What it does not cover: labels that `each-round` shows, and true counts that jump shortly before they are shown, whose
intervals lie too low.  Only released values enter: which rounds were tested, when the label was shown, sd, tau and y.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from stream_dp.counters.noise_shape import NoiseShape

_COMMON = 0.25
_CLUMP = 2.0
_UNEVEN = 1.1
_NOISE = np.linspace(-4, 6, 51)
_FACTORS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
_EVEN_TESTS = 96
_TESTS_PER_LEVEL = 12


class Noise(NamedTuple):
    """Of a count, in units of the round's sd."""

    mean: float
    sd: float


def noise_when_shown(
    shape: NoiseShape, round_number: int, sd: float, tau: float, count: float, step: int
) -> Noise:
    """Mean and standard deviation of the noise, both in units of `sd`, of a label first shown in this round.

    `sd` and `tau` are the round's, `count` is the label's released one, and every `step`-th round is released.
    """
    true = count - _NOISE * sd
    possible = true >= 0.5
    if not possible.any():
        return Noise(0.0, 1.0)
    log_density = np.where(possible, -(_NOISE**2) / 2 - np.log(np.maximum(true, 0.5)), -np.inf)
    density = np.exp(log_density - log_density.max()) * _unseen_before(
        shape, round_number, sd, tau, true, step
    )
    if not density.sum() > 1e-200:
        return Noise(0.0, 1.0)  # so far above tau that a label must have jumped there
    density /= density.sum()
    mean = float(density @ _NOISE)
    return Noise(mean, _UNEVEN * float(np.sqrt(density @ (_NOISE - mean) ** 2)))


def _unseen_before(
    shape: NoiseShape, round_number: int, sd: float, tau: float, true: NDArray[np.float64], step: int
) -> NDArray[np.float64]:
    """The probability that no earlier round showed the label, for each value of its noise."""
    tests, numbers = _tests(round_number // step, bool(shape.shares))
    if not len(tests):
        return np.ones(len(_NOISE))
    rounds, last = tests * step, np.array([round_number])
    scale = sd / float(shape.sds(last)[0])
    sds = shape.sds(rounds) * scale
    taus = 1 + _deviations(shape, rounds, round_number, (tau - 1) / sd) * sds
    explained = shape.correlations(rounds, last) * sds
    rests = np.sqrt(np.maximum(sds**2 - explained**2, 1e-9 * sds**2))
    expected = (rounds / round_number)[:, None] * true + explained[:, None] * _NOISE
    gaps = (taus[:, None] - 0.5 - expected) / rests[:, None]
    unseen = np.zeros(len(_NOISE))
    for factor, weight in zip(_FACTORS, _WEIGHTS / _WEIGHTS.sum(), strict=True):
        crossings = numbers @ ndtr((np.sqrt(_COMMON) * factor - gaps) / np.sqrt(1 - _COMMON))
        unseen += weight * np.exp(-crossings / _CLUMP)
    return unseen


def _deviations(
    shape: NoiseShape, rounds: NDArray[np.int64], round_number: int, known: float
) -> NDArray[np.float64]:
    """How many standard deviations tau lies from 1 in `rounds`, where it is `known` in one of them."""
    if not shape.shares:
        return np.full(len(rounds), known)
    tails = float(ndtr(-known)) * np.array(shape.shares) / shape.shares[_level(round_number)]
    return -ndtri(np.clip(tails, 1e-300, 0.5))[np.bitwise_count((rounds & -rounds) - 1)]


def _level(round_number: int) -> int:
    return (round_number & -round_number).bit_length() - 1


@lru_cache(maxsize=64)
def _tests(last: int, by_level: bool) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Some of the tests 1 .. `last` - 1, and how many each stands for."""
    if not by_level:
        edges = np.linspace(0, 1, min(_EVEN_TESTS, max(0, last - 1)) + 1) ** 0.7 * (last - 1)
        return np.round((edges[1:] + edges[:-1]) / 2 + 0.5).astype(np.int64), np.diff(edges)
    tests, numbers = [np.empty(0, np.int64)], [np.empty(0)]
    for level in range(max(0, last - 1).bit_length()):
        there = (last - 1 >> level) - (last - 1 >> level + 1)
        some = min(there, _TESTS_PER_LEVEL)
        places = ((np.arange(some) + 0.5) * there / some).astype(np.int64)
        tests.append(2 * places + 1 << level)
        numbers.append(np.full(some, there / some))
    return np.concatenate(tests), np.concatenate(numbers)
