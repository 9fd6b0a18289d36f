"""The mechanisms of a histogram job, each calibrated to the guarantee of the whole job.

What they compute, with their sources: stream_dp/batch/.
"""

from stream_dp.batch.histogram import (
    GaussianHistogram,
    LaplaceHistogram,
    gaussian_histogram,
    laplace_histogram,
)
from stream_dp.batch.known_domain import SparseVector, sparse_vector
from stream_dp.batch.two_stage import TwoStage, two_stage
from stream_dp.jobs.calibrated import Calibrated, calibrated, counted, sampled
from stream_dp.jobs.declared import one_shot
from stream_dp.jobs.defaults import GAUSSIAN_COUNT_ITEMS, LAPLACE_ITEMS
from stream_dp.jobs.shares import gaussian_shares, laplace_share

_SMALL = tuple({"epsilon": 2.0, "delta": 0.02, "items_per_user": most} for most in (1, 2))


@one_shot("histogram", "laplace", "counts", _SMALL)
def calibrate_laplace_histogram(
    epsilon: float, delta: float, items_per_user: int = LAPLACE_ITEMS
) -> Calibrated:
    """All labels whose noisy count reaches a threshold, with their counts."""
    parameters = LaplaceHistogram(*laplace_share(epsilon, delta, items_per_user), items_per_user)
    return calibrated(sampled(items_per_user), laplace_histogram, parameters, delta)


@one_shot("histogram", "gaussian", "counts", _SMALL)
def calibrate_gaussian_histogram(
    epsilon: float, delta: float, items_per_user: int = GAUSSIAN_COUNT_ITEMS
) -> Calibrated:
    """Calibrate a histogram with Gaussian noise, which is less than Laplace noise for users with many items."""
    parameters = GaussianHistogram(*gaussian_shares(epsilon, delta, items_per_user), items_per_user)
    return of_samples(parameters, (epsilon, delta))


def of_samples(parameters: GaussianHistogram, alone: tuple[float, float]) -> Calibrated:
    """Of samples of users' items; the whole is (epsilon, delta)-DP."""
    return calibrated(
        sampled(parameters.items_per_user), gaussian_histogram, parameters, alone[1], alone=alone
    )


@one_shot("histogram", "two-stage", "counts")
def calibrate_two_stage(
    epsilon: float, delta: float, items_per_user: int = GAUSSIAN_COUNT_ITEMS
) -> Calibrated:
    """Counts of the items_per_user labels of each user that a first stage shows to be frequent."""
    return of_stages(TwoStage(epsilon, delta, items_per_user))


def of_stages(parameters: TwoStage) -> Calibrated:
    """Of the labels of each user that a first stage shows to be frequent."""
    return calibrated(lambda rows, noise: rows.weighing(), two_stage, parameters, parameters.delta)


@one_shot(
    "histogram", "sparse-vector", "counts", ({"epsilon": 8.0, "bins": ["a"], "threshold": 2, "most": 1},)
)
def calibrate_sparse_vector(epsilon: float, bins: list[str], threshold: int, most: int) -> Calibrated:
    """The first `most` public bins that reach `threshold`; users may hold any number of items."""
    return calibrated(
        counted, sparse_vector, SparseVector(epsilon, len(bins), threshold, most), 0.0, bins=bins
    )
