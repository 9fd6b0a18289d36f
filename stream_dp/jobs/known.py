"""Noisy counts of PUBLIC bins, and the bins of the largest noisy counts, calibrated to the guarantee of the whole job.

A user counts with at most `items_per_user` of the bins: what is no bin is dropped before a user's items are sampled, so
that bound is never more than the number of bins, and where there are no more bins than that, nobody is sampled at all.
What they compute, with its sources: stream_dp/batch/known_domain.py.
"""

import math
from dataclasses import replace

import numpy as np

from stream_dp.batch.known_domain import (
    GaussianKnownHistogram,
    KnownHistogram,
    gaussian_known_histogram,
    known_histogram,
)
from stream_dp.batch.result import Outcome
from stream_dp.jobs.calibrated import Calibrated, calibrated, sampled
from stream_dp.jobs.counted import Counted
from stream_dp.jobs.declared import one_shot
from stream_dp.jobs.defaults import GAUSSIAN_COUNT_ITEMS, GAUSSIAN_TOP_ITEMS, JOINT_LABELS, LAPLACE_ITEMS
from stream_dp.jobs.request import JobName
from stream_dp.jobs.shares import pick_share
from stream_dp.privacy.accounting import discrete_gaussian_sigma_squared
from stream_dp.privacy.discrete_gaussian import LEAST_SIGMA_SQUARED
from stream_dp.privacy.one_shot_noise import OneShotNoise

_TWO_BINS = {"bins": ["a", "b"], "items_per_user": 2}


@one_shot("histogram", "known", "counts", ({"epsilon": 2.0, **_TWO_BINS},))
def calibrate_known_histogram(
    epsilon: float, bins: list[str], items_per_user: int = LAPLACE_ITEMS, eta: float = 0.0
) -> Calibrated:
    """A noisy count of every one of the public bins; with eta, those below the high-pass threshold become 0."""
    most = min(items_per_user, len(bins))
    parameters = KnownHistogram(epsilon / most, len(bins), most, eta)
    return calibrated(sampled(most), known_histogram, parameters, 0.0, bins=bins)


@one_shot("histogram", "known-gaussian", "counts", ({"epsilon": 2.0, "delta": 0.02, **_TWO_BINS},))
def calibrate_known_gaussian(
    epsilon: float, delta: float, bins: list[str], items_per_user: int = GAUSSIAN_COUNT_ITEMS
) -> Calibrated:
    """Calibrate counts of public bins with Gaussian noise, which is less than Laplace noise for users of many bins."""
    most = min(items_per_user, len(bins))
    sigma_squared = max(LEAST_SIGMA_SQUARED, discrete_gaussian_sigma_squared(epsilon, delta, most))
    parameters = GaussianKnownHistogram(sigma_squared, len(bins), most)
    alone = epsilon, delta
    return calibrated(sampled(most), gaussian_known_histogram, parameters, delta, alone=alone, bins=bins)


@one_shot("top-k", "laplace-known", "counts", ({"epsilon": 2.0, "k": 1, **_TWO_BINS},))
def calibrate_laplace_top_known(
    epsilon: float, k: int, bins: list[str], items_per_user: int = LAPLACE_ITEMS
) -> Calibrated:
    """The k public bins of largest noisy count, with these counts."""
    return _largest(calibrate_known_histogram(epsilon, bins, items_per_user), k)


@one_shot("top-k", "gaussian-known", "counts", ({"epsilon": 2.0, "delta": 0.02, "k": 1, **_TWO_BINS},))
def calibrate_gaussian_top_known(
    epsilon: float, delta: float, k: int, bins: list[str], items_per_user: int = GAUSSIAN_TOP_ITEMS
) -> Calibrated:
    """Calibrate the k public bins of largest noisy count with Gaussian noise."""
    return _largest(calibrate_known_gaussian(epsilon, delta, bins, items_per_user), k)


def least_noise(
    job: JobName, epsilon: float, delta: float, bins: int, bound: int | None, pure: bool, k: int | None
) -> tuple[str, int | None]:
    """The mechanism of least noise, and how many bins of a user it counts, which is None for draws that need no bound.

    Every bin competes whatever it holds, so the noise alone decides, and it follows from what is given.  With a `bound`
    counts are asked for.  `pure`: whether mechanisms may be chosen that are dear beside other charges.  `k` is that of
    a top-k: few labels are more often right if they are drawn at once, whatever the noise.
    """
    if k is not None and bound is None and pure and 1 < k <= min(bins - 1, JOINT_LABELS * epsilon):
        return "joint-known", None
    most = min(bins, bound or (GAUSSIAN_TOP_ITEMS if job == "top-k" else GAUSSIAN_COUNT_ITEMS))
    gaussian, laplace = ("gaussian-known", "laplace-known") if job == "top-k" else ("known-gaussian", "known")
    noise = {gaussian: math.sqrt(discrete_gaussian_sigma_squared(epsilon, delta, most))}
    if pure:
        noise[laplace] = math.sqrt(2) * most / epsilon
    if k is not None and bound is None:
        each, _ = pick_share(epsilon, delta, k, threshold=False)
        noise["gumbel-known"] = math.pi / math.sqrt(6) / each
    least = min(noise, key=lambda name: noise[name])
    return least, None if least == "gumbel-known" else most


def _largest(counted: Calibrated, k: int) -> Calibrated:
    """The first k by falling noisy count: a function of what the histogram releases."""

    def run(rows: Counted, noise: OneShotNoise) -> Outcome:
        found = counted.run(rows, noise)
        assert found.counts is not None
        order = np.argsort(-found.counts, kind="stable")
        return replace(found, items=found.items[order], counts=found.counts[order]).first(k)

    return replace(counted, run=run)
